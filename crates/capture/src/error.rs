use std::io;
use std::path::{Path, PathBuf};

use pagehaul_codec::CodecError;
use pagehaul_kdump::LayoutError;
use pagehaul_kdump::write::StartError;
use pagehaul_kernel::KernelError;
use pagehaul_output::checksums::ChecksumError;
use pagehaul_output::{OutputError, StoredBitmap, WriteError, is_full};
use pagehaul_physmem::{OpenError, ReadError};

/// Why a capture left no dump. [`Outcome`](crate::Outcome) describes a capture that ended early and left one.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The source cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel in the source is not understood.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The source could not be read before any page was written.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The codec cannot be set up.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The machine or its notes are too large for the format.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The output cannot be created.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Output {
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
    /// The dump is written, but its checksums are not.
    #[error("the dump is written, but {0}")]
    Checksums(ChecksumError),
    /// No output of several could take a page.
    #[error("{why}; no output holds a page")]
    NoPart {
        why: String,
        /// Whether the last of their disks to fail was full.
        full: bool,
    },
    /// The request is contradictory or could do harm.
    #[error("{0}")]
    Refused(String),
    /// The user stopped it before anything was written.
    #[error("stopped before any page was written")]
    Stopped,
}

impl CaptureError {
    /// Returns whether a disk is too small for what precedes the pages of the dump. A smaller dump may fit.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Output { source, .. } => is_full(source),
            Self::NoPart { full, .. } => *full,
            _ => false,
        }
    }

    /// Returns the error of a failure to read a bitmap back.
    pub(crate) fn read_back(bitmap: &StoredBitmap, source: io::Error) -> Self {
        Self::Output { path: bitmap.path().to_owned(), action: "read back the bitmap of", source }
    }
}

impl From<OutputError> for CaptureError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Refused(why) => Self::Refused(why),
            OutputError::Io { path, action, source } => Self::Output { path, action, source },
        }
    }
}

impl From<StartError> for CaptureError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Layout(error) => error.into(),
            StartError::Output(error) => error.into(),
        }
    }
}

/// Returns the error of a write to the output at `path`.
pub(crate) fn output_error(path: &Path, error: WriteError) -> CaptureError {
    let (action, source) = match error {
        WriteError::Write { source, .. } => ("write to", source),
        WriteError::ReadBack { source, .. } => ("read back", source),
    };
    CaptureError::Output { path: path.to_owned(), action, source }
}
