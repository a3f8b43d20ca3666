//! Dumps that go to an object store while they are made.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use pagehaul_present::number;
use pagehaul_remote::{RemoteError, Upload, Uploaded};
use pagehaul_vmcore::Source;

use crate::memory_use;

/// An upload of what is written to a pipe.
pub(crate) struct Uploading {
    url: String,
    pipe: Arc<File>,
    is_whole: Arc<AtomicBool>,
    thread: JoinHandle<Result<Uploaded, RemoteError>>,
    memory: u64,
}

impl Uploading {
    /// Begins an upload of up to `most_bytes`, or continues an earlier one.
    pub(crate) fn begin(url: &Path, most_bytes: u64) -> anyhow::Result<Self> {
        let url = url.to_string_lossy().into_owned();
        let upload = begin(&url, most_bytes)?;
        if upload.room() < most_bytes {
            let (room, most) = (number::bytes(upload.room()), number::bytes(most_bytes));
            tell!(
                "pagehaul: a dump of more than {room} fails; it may have {most}, but there is no memory for larger parts"
            );
        }
        let memory = upload.memory();
        let (reader, writer) = io::pipe().context("cannot create a pipe")?;
        let is_whole = Arc::new(AtomicBool::new(false));
        let stream = Stream { reader, is_whole: is_whole.clone() };
        let send = move || upload.send(stream);
        let thread =
            std::thread::Builder::new().name("upload".into()).spawn(send).context("cannot start a thread")?;
        Ok(Self { url, pipe: Arc::new(File::from(OwnedFd::from(writer))), is_whole, thread, memory })
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
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
    begin(url, bytes.len() as u64)?.send(bytes).with_context(|| format!("cannot write {url}"))?;
    Ok(())
}

fn begin(url: &str, most_bytes: u64) -> anyhow::Result<Upload> {
    // The rest is the capture's and the kernel's.
    let memory = memory_use::available() / 4;
    Upload::begin(url, most_bytes, memory).with_context(|| format!("cannot write {url}"))
}

/// The most bytes that a dump with `kept` bytes of the memory of `source` can have: they do not compress, and have descriptors.
pub(crate) fn most_bytes(source: &Source, kept: u64) -> u64 {
    let bitmaps = source.memory().ranges().end() >> 14;
    kept + kept / 64 + bitmaps + (64 << 20)
}
