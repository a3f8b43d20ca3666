//! Dumps that go to another machine while they are made: to an object store, or over ssh.

#[cfg(feature = "remote")]
mod s3;
mod ssh;

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use pagehaul_physmem::file::is_url;
use pagehaul_vmcore::Source;

use crate::signals;

/// How long a host that was reached once is tried again. A network that comes back does not cost the dump.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long a host is tried that was never reached.
const FIRST_PATIENCE: Duration = Duration::from_secs(20);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MOST_WAIT: Duration = Duration::from_secs(15);

/// Returns whether a dump of this name goes to another machine.
pub(crate) fn is_remote(path: &Path) -> bool {
    is_url(path) || ssh::is_ssh(path)
}

/// What an upload did.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Uploaded {
    /// Bytes that an earlier, unfinished upload had left there.
    pub(crate) resumed: u64,
}

/// An upload that has begun.
struct Opened {
    /// Bytes of memory that it takes.
    memory: u64,
    send: Box<Transfer>,
}

/// Takes a stream to where it goes.
type Transfer = dyn FnOnce(&mut Stream) -> anyhow::Result<Uploaded> + Send;

/// An upload of what is written to a pipe.
pub(crate) struct Uploading {
    pipe: Arc<File>,
    is_whole: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Uploaded>>,
    memory: u64,
}

impl Uploading {
    /// Begins the upload of a dump of `source`, of which it keeps so many bytes, or continues an earlier one.
    pub(crate) fn begin(
        url: &Path,
        source: &Source,
        kept: impl FnOnce() -> anyhow::Result<u64>,
    ) -> anyhow::Result<Self> {
        let Opened { memory, send } = open(url, || Ok(most_bytes(source, kept()?)), Some(source))?;
        let (reader, writer) = io::pipe().context("cannot create a pipe")?;
        let (is_whole, is_abandoned) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let mut stream = Stream {
            reader: Reader::Pipe(reader),
            is_whole: is_whole.clone(),
            is_abandoned: is_abandoned.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("upload".into())
            .spawn(move || send(&mut stream))
            .context("cannot start a thread")?;
        Ok(Self { pipe: Arc::new(File::from(OwnedFd::from(writer))), is_whole, is_abandoned, thread, memory })
    }

    /// Bytes of memory that it takes.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    /// The pipe. The upload ends when all copies of it are dropped.
    pub(crate) fn pipe(&self) -> Arc<File> {
        self.pipe.clone()
    }

    /// Completes the upload of a stream that is whole: what it names exists once this returns. Of another stream, what was
    /// uploaded stays where it is, and only an error that is the upload's own is returned.
    pub(crate) fn finish(self, is_whole: bool) -> anyhow::Result<Uploaded> {
        self.is_whole.store(is_whole, Ordering::Release);
        drop(self.pipe);
        let sent = self.thread.join().map_err(|_| anyhow!("the thread that uploads panicked"))?;
        if !is_whole && self.is_abandoned.load(Ordering::Acquire) {
            Ok(Uploaded { resumed: 0 })
        } else {
            sent
        }
    }
}

/// The stream that is uploaded. Reading its end is an error unless the capture has declared the stream whole.
pub(crate) struct Stream {
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
pub(crate) fn put(url: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let opened = open(url, || Ok(bytes.len() as u64), None)?;
    let mut stream = Stream {
        reader: Reader::Bytes(io::Cursor::new(bytes.to_vec())),
        is_whole: Arc::new(AtomicBool::new(true)),
        is_abandoned: Arc::new(AtomicBool::new(false)),
    };
    (opened.send)(&mut stream).map(drop)
}

/// Opens what a URL names for up to so many bytes.
fn open(
    url: &Path,
    most_bytes: impl FnOnce() -> anyhow::Result<u64>,
    source: Option<&Source>,
) -> anyhow::Result<Opened> {
    let text = url.to_string_lossy().into_owned();
    if ssh::is_ssh(url) {
        let session = ssh::Session::begin(&text)?;
        return Ok(Opened { memory: 0, send: Box::new(move |stream| session.send(stream)) });
    }
    #[cfg(feature = "remote")]
    return s3::open(text, most_bytes()?, source);
    #[cfg(not(feature = "remote"))]
    {
        let _ = (most_bytes, source);
        anyhow::bail!("cannot write {text}: this pagehaul is built without object stores")
    }
}

/// The most bytes that a dump with `kept` bytes of the memory of `source` can have: they do not compress, and have descriptors.
fn most_bytes(source: &Source, kept: u64) -> u64 {
    let bitmaps = source.memory().ranges().end() >> 14;
    kept + kept / 64 + bitmaps + (64 << 20)
}

/// The connection to a host was lost. What was sent stays there, and another upload of the same bytes continues it.
#[derive(Debug)]
pub(crate) struct ConnectionLost {
    why: String,
    /// Whether this attempt brought something there.
    progress: bool,
}

impl std::fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for ConnectionLost {}

/// When a lost connection is given up.
pub(crate) struct Retries {
    /// The last time that something was sent.
    progress: Instant,
    reached: bool,
    wait: Duration,
}

impl Retries {
    pub(crate) fn new() -> Self {
        Self { progress: Instant::now(), reached: false, wait: FIRST_WAIT }
    }

    /// Waits for the next attempt. Returns whether there is to be one: the connection was lost, but not for long.
    pub(crate) fn wait(&mut self, error: &anyhow::Error) -> bool {
        let Some(lost) = error.downcast_ref::<ConnectionLost>() else { return false };
        if lost.progress {
            *self = Self { reached: true, ..Self::new() };
        }
        let patience = if self.reached { PATIENCE } else { FIRST_PATIENCE };
        let until = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(MOST_WAIT);
        while Instant::now() < until && !signals::stop().is_cancelled() {
            std::thread::sleep(Duration::from_millis(50));
        }
        self.progress.elapsed() < patience && !signals::stop().is_cancelled()
    }
}
