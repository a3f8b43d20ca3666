//! Streams that go to another machine while they are made: to an object store, or over ssh.
//!
//! One policy holds for both: [`Patience::UPLOAD`](pagehaul_run::Patience::UPLOAD) says how long what failed is tried again, and
//! [`Stop`] when a run that was cancelled ends. The store takes parts, so that a request is repeated; of an ssh connection the whole
//! stream is, from where it ended.

mod error;
#[cfg(feature = "s3")]
mod s3;
mod ssh;

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub use error::UploadError;
use pagehaul_physmem::file::{is_url, shown};
use pagehaul_run::Stop;

/// Returns whether a file of this name is on another machine.
pub fn is_remote(path: &Path) -> bool {
    is_url(path) || ssh::is_ssh(path)
}

/// What an upload did.
#[derive(Debug, Clone, Copy)]
pub struct Uploaded {
    /// Bytes that an earlier, unfinished upload had left there.
    pub resumed: u64,
}

/// What an upload may use.
#[derive(Debug, Clone)]
pub struct Means {
    /// Bytes of memory.
    pub memory: u64,
    /// The end of the run.
    pub stop: Stop,
}

/// An upload that has begun.
struct Opened {
    /// Bytes of memory that it takes.
    memory: u64,
    /// What the user should know.
    warning: Option<String>,
    send: Box<Transfer>,
}

/// Takes a stream to where it goes.
type Transfer = dyn FnOnce(&mut Stream) -> Result<Uploaded, UploadError> + Send;

/// An upload of what is written to a pipe.
pub struct Uploading {
    pipe: Arc<File>,
    is_whole: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
    thread: JoinHandle<Result<Uploaded, UploadError>>,
    memory: u64,
    warning: Option<String>,
}

impl Uploading {
    /// Begins the upload of a stream of at most `most_bytes`, or continues an earlier one.
    pub fn begin<E: From<UploadError>>(
        url: &Path,
        most_bytes: impl FnOnce() -> Result<u64, E>,
        means: Means,
    ) -> Result<Self, E> {
        let Opened { memory, warning, send } = open(url, most_bytes, means)?;
        let failed = |what: &str, error| {
            E::from(UploadError::refused(format!("cannot write {}: {what}: {error}", shown(url).display())))
        };
        let (reader, writer) = io::pipe().map_err(|error| failed("cannot create a pipe", error))?;
        let (is_whole, is_abandoned) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut stream = Stream {
            reader: Reader::Pipe(reader),
            is_whole: is_whole.clone(),
            is_abandoned: is_abandoned.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("upload".into())
            .spawn(move || send(&mut stream))
            .map_err(|error| failed("cannot start a thread", error))?;
        let pipe = Arc::new(File::from(OwnedFd::from(writer)));
        Ok(Self { pipe, is_whole, is_abandoned, thread, memory, warning })
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// What the user should know before it is done.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The pipe. The upload ends when all copies of it are dropped.
    pub fn pipe(&self) -> Arc<File> {
        self.pipe.clone()
    }

    /// Completes the upload of a stream that is whole: what it names exists once this returns. Of another stream, what was
    /// uploaded stays where it is, and only an error that is the upload's own is returned.
    pub fn finish(self, is_whole: bool) -> Result<Uploaded, UploadError> {
        self.is_whole.store(is_whole, Ordering::Release);
        drop(self.pipe);
        let panicked = || Err(UploadError::refused("the thread that uploads panicked".to_owned()));
        let sent = self.thread.join().unwrap_or_else(|_| panicked());
        if !is_whole && self.is_abandoned.load(Ordering::Acquire) {
            Ok(Uploaded { resumed: 0 })
        } else {
            sent
        }
    }
}

/// The stream that is uploaded. Reading its end is an error unless its writer has declared the stream whole.
struct Stream {
    reader: Reader,
    is_whole: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
}

enum Reader {
    Pipe(PipeReader),
    Bytes(io::Cursor<Vec<u8>>),
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.reader {
            Reader::Pipe(pipe) => pipe.read(buf)?,
            Reader::Bytes(bytes) => bytes.read(buf)?,
        };
        if count == 0 && !buf.is_empty() && !self.is_whole.load(Ordering::Acquire) {
            self.is_abandoned.store(true, Ordering::Release);
            return Err(io::Error::other("its capture failed"));
        }
        Ok(count)
    }
}

/// Uploads a small file.
pub fn put(url: &Path, bytes: &[u8], means: Means) -> Result<(), UploadError> {
    let opened = open(url, || Ok::<_, UploadError>(bytes.len() as u64), means)?;
    let mut stream = Stream {
        reader: Reader::Bytes(io::Cursor::new(bytes.to_vec())),
        is_whole: Arc::new(AtomicBool::new(true)),
        is_abandoned: Arc::new(AtomicBool::new(false)),
    };
    (opened.send)(&mut stream).map(drop)
}

/// Opens what a URL names for up to so many bytes.
fn open<E: From<UploadError>>(
    url: &Path,
    most_bytes: impl FnOnce() -> Result<u64, E>,
    means: Means,
) -> Result<Opened, E> {
    let shown = shown(url);
    let shown = shown.display();
    // Another name would be another file.
    let text = url
        .to_str()
        .ok_or_else(|| UploadError::refused(format!("cannot write {shown}: the name is not UTF-8")))?;
    if ssh::is_ssh(url) {
        let session = ssh::Session::begin(text, means.stop)?;
        let send = Box::new(move |stream: &mut Stream| session.send(stream));
        return Ok(Opened { memory: 0, warning: None, send });
    }
    #[cfg(feature = "s3")]
    return Ok(s3::open(text, most_bytes()?, means)?);
    #[cfg(not(feature = "s3"))]
    {
        let _ = most_bytes;
        let why = "this pagehaul is built without object stores";
        Err(UploadError::refused(format!("cannot write {shown}: {why}")).into())
    }
}
