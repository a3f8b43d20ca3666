use std::io;
use std::path::PathBuf;

use pagehaul_physmem::OpenError;

/// Why something could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The source cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The source is too short to measure anything on.
    #[error("{path} has {size} bytes; measuring takes at least {least}", path = path.display())]
    TooShort {
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// Bytes that are needed.
        least: u64,
    },
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        source: io::Error,
    },
    /// A capture failed.
    #[error("the capture failed: {0}")]
    Capture(#[from] pagehaul_capture::CaptureError),
    /// Memory could not be read.
    #[error(transparent)]
    Read(#[from] pagehaul_physmem::ReadError),
    /// A codec cannot be set up.
    #[error(transparent)]
    Codec(#[from] pagehaul_codec::CodecError),
    /// The kernel in the source cannot be interpreted.
    #[error(transparent)]
    Kernel(#[from] pagehaul_kernel::KernelError),
    /// The output cannot be created.
    #[error(transparent)]
    Output(#[from] pagehaul_output::OutputError),
    /// The measurement shows an error of what was measured.
    #[error("{0}")]
    Wrong(String),
}
