//! Why a dump cannot be written.

use std::io;

use pagehaul_run::Outcome;

/// Returns whether a call to the system failed because the disk is full or a quota is reached.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

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
        matches!(self, Self::Write { source, .. } if is_full(source))
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
