//! Streams that go elsewhere while they are made: to an object store, over ssh, or encrypted into a file.
//!
//! One policy holds for both: [`Patience::UPLOAD`](pagehaul_run::Patience::UPLOAD) says how long what failed is tried again, and
//! [`Stop`] when a run that was cancelled ends. The store takes parts, so that a request is repeated; of an ssh connection the whole
//! stream is, from where it ended.

pub mod encrypted;
mod error;
mod file;
#[cfg(feature = "s3")]
mod s3;
mod ssh;

use std::fs::File;
use std::io::{self, PipeReader, Read, Seek};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

pub use error::{Tries, UploadError};
use pagehaul_encryption::{Encrypting, Recipients};
use pagehaul_physmem::file::{is_url, shown};
use pagehaul_run::Stop;

/// Bytes that wait in the pipe.
const PIPE: usize = 1 << 20;

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
    /// Who can read what is uploaded; if none are named, everybody.
    pub recipients: Option<Recipients>,
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
        let recipients = means.recipients.clone();
        let opened = open(url, most_bytes, means)?;
        Ok(Self::start(url, opened, recipients.as_ref())?)
    }

    /// Begins to encrypt a stream into a file that is open, called `name` in messages.
    pub fn encrypt(file: Arc<File>, name: &Path, recipients: &Recipients) -> Result<Self, UploadError> {
        Self::start(name, file::open(file, name), Some(recipients))
    }

    fn start(name: &Path, opened: Opened, recipients: Option<&Recipients>) -> Result<Self, UploadError> {
        let Opened { memory, warning, send } = opened;
        let failed = |what: &str, error| {
            UploadError::refused(format!("cannot write {}: {what}: {error}", shown(name).display()))
        };
        let (reader, writer) = io::pipe().map_err(|error| failed("cannot create a pipe", error))?;
        // A larger one has both sides run longer at a time; the system may not allow it.
        let _ = rustix::pipe::fcntl_setpipe_size(&writer, PIPE);
        let (is_whole, is_abandoned) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let contents = Contents { reader, is_whole: is_whole.clone(), is_abandoned: is_abandoned.clone() };
        let mut stream = stream(contents, recipients, name)?;
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

/// What is uploaded, encrypted or not.
type Stream = Box<dyn Read + Send>;

/// Returns the stream of some contents.
fn stream(
    contents: impl Read + Send + 'static,
    recipients: Option<&Recipients>,
    name: &Path,
) -> Result<Stream, UploadError> {
    let Some(recipients) = recipients else { return Ok(Box::new(contents)) };
    let encrypting = Encrypting::new(contents, recipients)
        .map_err(|error| UploadError::refused(format!("cannot write {}: {error}", shown(name).display())))?;
    Ok(Box::new(encrypting))
}

/// What is written to the pipe. Reading its end is an error unless its writer has declared it whole.
struct Contents {
    reader: PipeReader,
    is_whole: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
}

impl Read for Contents {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.reader.read(buf)?;
        if count == 0 && !buf.is_empty() && !self.is_whole.load(Ordering::Acquire) {
            self.is_abandoned.store(true, Ordering::Release);
            return Err(io::Error::other("its capture failed"));
        }
        Ok(count)
    }
}

/// Uploads a small file.
pub fn put(url: &Path, bytes: &[u8], means: Means) -> Result<(), UploadError> {
    let recipients = means.recipients.clone();
    let opened = open(url, || Ok::<_, UploadError>(bytes.len() as u64), means)?;
    let mut stream = stream(io::Cursor::new(bytes.to_vec()), recipients.as_ref(), url)?;
    (opened.send)(&mut stream).map(drop)
}

/// So many bytes of a file. One that has become shorter is an error, not a file that ends.
struct Whole {
    file: io::Take<File>,
    left: u64,
}

impl Read for Whole {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buf)?;
        self.left -= count as u64;
        if count == 0 && !buf.is_empty() && self.left > 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file has become shorter meanwhile",
            ));
        }
        Ok(count)
    }
}

/// Uploads a file as it is, again while its connection is lost.
pub fn put_file(url: &Path, file: &File, means: &Means) -> Result<(), UploadError> {
    let unreadable = |error: io::Error| {
        UploadError::refused(format!("cannot read what goes to {}: {error}", shown(url).display()))
    };
    let bytes = file.metadata().map_err(unreadable)?.len();
    let mut tries = Tries::new(&means.stop);
    loop {
        let mut file = file.try_clone().map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        let put = || {
            let opened = open(url, || Ok::<_, UploadError>(bytes), means.clone())?;
            let whole = Whole { file: file.take(bytes), left: bytes };
            (opened.send)(&mut stream(whole, means.recipients.as_ref(), url)?)
        };
        match put() {
            Err(error) if tries.another(&error) => {}
            result => return result.map(drop),
        }
    }
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
        let session = ssh::Session::begin(text, means.recipients.is_some(), means.stop)?;
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
