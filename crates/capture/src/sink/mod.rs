//! Where bytes end up: files, written at any offset, and streams, which carry the offsets along.

#[cfg(test)]
mod disk;
mod file;
mod flat;

#[cfg(test)]
pub(crate) use disk::Disk;
pub(crate) use file::{FileSink, admit, create, spool};
pub(crate) use flat::FlatSink;

use std::io;
use std::path::Path;

use crate::CaptureError;

/// A write that did not succeed whole.
#[derive(Debug)]
pub(crate) struct WriteError {
    /// Bytes that did get there.
    pub(crate) written: usize,
    pub(crate) error: io::Error,
}

impl WriteError {
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self { written: 0, error }
    }
}

impl From<CaptureError> for WriteError {
    fn from(error: CaptureError) -> Self {
        io::Error::other(error).into()
    }
}

/// A place for a dump.
pub(crate) trait Sink {
    /// Puts `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError>;

    /// Makes sure there is room from `offset` on for `length` bytes, where the system can; they read as zeros.
    fn reserve(&mut self, offset: u64, length: u64) -> Result<(), WriteError>;

    /// Waits until everything written so far is on the disk.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Whether what is never written reads as zeros.
    fn is_sparse(&self) -> bool;

    /// Whether bytes that were written can be written again.
    fn can_rewrite(&self) -> bool;

    /// What to call it in messages.
    fn path(&self) -> &Path;
}
