//! Output files, and what every dump writer shares: large aligned writes, write-behind, and checksums.
//!
//! [`NewFile`] creates every file that this program writes, and replaces files that exist.
//!
//! An [`Output`] takes bytes at any offset: a file ([`OutputFile`]) or a stream. [`ChunkWriter`] gathers consecutive
//! bytes into large aligned writes; [`WriteBehind`] does the same and writes on a thread of its own. A format
//! implements [`DumpWriter`] on top of them.

mod aligned;
mod bitmap;
pub mod checksums;
mod chunk_writer;
mod dump;
mod file;
mod new_file;
#[cfg(test)]
mod test_disk;
mod write_behind;
mod write_meter;

use std::io;

use pagehaul_run::Outcome;

pub use aligned::AlignedBuffer;
pub use bitmap::StoredBitmap;
pub use chunk_writer::ChunkWriter;
pub use dump::{DumpWriter, FinishBound, PageBatch, Recorded, StoredPage};
pub use file::{DumpFileOptions, OutputFile};
pub use new_file::{CreateOptions, Naming, NewFile, OutputError, Special, names_open_file};
pub use write_behind::WriteBehind;
pub use write_meter::{WriteCosts, WriteMeter};

/// A failure to write a dump.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The output did not take all bytes.
    #[error("{source}")]
    Write {
        /// Bytes of the failed write that are in the output.
        written: usize,
        source: io::Error,
    },
    /// What was written before cannot be read back.
    #[error("cannot read back {what}: {source}")]
    ReadBack {
        /// The part of the dump.
        what: &'static str,
        source: io::Error,
    },
}

impl WriteError {
    /// Returns whether the disk is full or a quota is reached.
    pub fn is_full(&self) -> bool {
        let full = |kind| matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        matches!(self, Self::Write { source, .. } if full(source.kind()))
    }

    /// Returns the outcome of a run that this failure ends. Messages call the output `name`.
    pub fn outcome(&self, name: &str) -> Outcome {
        let Self::Write { source, .. } = self else {
            return Outcome::ReadFailed(format!("{name}: {self}"));
        };
        let why = format!("cannot write to {name}: {source}");
        if self.is_full() { Outcome::DiskFull(why) } else { Outcome::WriteFailed(why) }
    }

    /// Bytes of the failed write that are in the output.
    pub fn written(&self) -> usize {
        match self {
            Self::Write { written, .. } => *written,
            Self::ReadBack { .. } => 0,
        }
    }

    /// Returns a conversion of I/O errors that occur while `what` is read back.
    pub fn read_back(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::ReadBack { what, source }
    }
}

impl From<io::Error> for WriteError {
    fn from(source: io::Error) -> Self {
        Self::Write { written: 0, source }
    }
}

/// A destination for a dump: bytes are written at any offset.
pub trait Output {
    /// Writes `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError>;

    /// Allocates `length` bytes from `offset`, where the system can. They read as zeros.
    fn reserve(&mut self, offset: u64, length: u64) -> Result<(), WriteError>;

    /// Makes the output end at `size`, even if its last bytes are a hole. Does nothing where there are no holes.
    fn set_size(&mut self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    /// Returns where the output ends; of a stream, the bytes of its records.
    fn end(&self) -> u64;

    /// Blocks until everything written so far is on the disk.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Returns whether bytes that are never written read as zeros.
    fn is_sparse(&self) -> bool;

    /// Returns whether bytes can be written twice.
    fn can_rewrite(&self) -> bool;

    /// Returns what writing costs at present, where it is measured.
    fn costs(&self) -> WriteCosts {
        WriteCosts::default()
    }
}
