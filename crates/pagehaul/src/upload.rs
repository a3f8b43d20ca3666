//! Dumps that go to an object store while they are made.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use pagehaul_remote::{RemoteError, Upload, Uploaded};
use pagehaul_vmcore::Source;

/// An upload of what is written to a pipe.
pub(crate) struct Uploading {
    url: String,
    pipe: Arc<File>,
    is_whole: Arc<AtomicBool>,
    thread: JoinHandle<Result<Uploaded, RemoteError>>,
}

impl Uploading {
    /// Begins an upload of up to `most_bytes`, or continues an earlier one.
    pub(crate) fn begin(url: &Path, most_bytes: u64) -> anyhow::Result<Self> {
        let url = url.to_string_lossy().into_owned();
        let upload = Upload::begin(&url, most_bytes).with_context(|| format!("cannot write {url}"))?;
        let (reader, writer) = io::pipe().context("cannot create a pipe")?;
        let is_whole = Arc::new(AtomicBool::new(false));
        let stream = Stream { reader, is_whole: is_whole.clone() };
        let send = move || upload.send(stream);
        let thread =
            std::thread::Builder::new().name("upload".into()).spawn(send).context("cannot start a thread")?;
        Ok(Self { url, pipe: Arc::new(File::from(OwnedFd::from(writer))), is_whole, thread })
    }

    /// The pipe. The upload ends when all copies of it are dropped.
    pub(crate) fn pipe(&self) -> Arc<File> {
        self.pipe.clone()
    }

    /// Completes the upload. The object exists once this returns; an upload that is dropped leaves its parts in the store.
    pub(crate) fn finish(self) -> anyhow::Result<Uploaded> {
        self.is_whole.store(true, Ordering::Release);
        drop(self.pipe);
        let sent = self.thread.join().map_err(|_| anyhow!("the thread that uploads panicked"))?;
        let again = "what was uploaded stays in the store; the same command continues there";
        sent.with_context(|| format!("cannot write {}; {again}", self.url))
    }
}

/// What the capture writes. Its end is an error unless the capture says that it was the end.
struct Stream {
    reader: PipeReader,
    is_whole: Arc<AtomicBool>,
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buf)? {
            0 if !buf.is_empty() && !self.is_whole.load(Ordering::Acquire) => {
                Err(io::Error::other("its capture failed"))
            }
            count => Ok(count),
        }
    }
}

/// Uploads a small object.
pub(crate) fn put(url: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let write = || format!("cannot write {url}");
    Upload::begin(url, bytes.len() as u64).with_context(write)?.send(bytes).with_context(write)?;
    Ok(())
}

/// The most bytes that a dump of `source` can have: memory that does not compress, with its descriptors and bitmaps.
pub(crate) fn most_bytes(source: &Source) -> u64 {
    let memory = source.memory().ranges().bytes();
    memory + memory / 64 + (64 << 20)
}
