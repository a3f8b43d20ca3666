use std::io;
use std::path::PathBuf;

use pagehaul_codec::CodecError;
use pagehaul_kdump::LayoutError;
use pagehaul_kernel::KernelError;
use pagehaul_physmem::{OpenError, ReadError};
use pagehaul_vmcore::sums::SumsError;

/// Why there is no dump at all. What ends a dump early but leaves a part of it is no error of this kind:
/// [`Ended`](crate::Ended) tells it.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The source is not one.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The kernel in the source is not understood.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The source stopped being readable before any page was written.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The codec cannot be set up.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The machine or its notes are too large for the format.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The output cannot be made.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The dump is written, its checksums are not.
    #[error("the dump is written, but {0}")]
    Sums(SumsError),
    /// The request makes no sense or could do harm.
    #[error("{0}")]
    Refused(String),
    /// The user stopped it before anything was written.
    #[error("stopped before any page was written")]
    Stopped,
}
