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
        /// The file.
        path: PathBuf,
        /// Bytes it has.
        size: u64,
        /// Bytes it takes.
        least: u64,
    },
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The capture on a simulated machine failed.
    #[cfg(feature = "simulation")]
    #[error("the capture of a simulated machine failed: {0}")]
    Capture(#[from] pagehaul_capture::CaptureError),
    /// Memory could not be read.
    #[cfg(feature = "simulation")]
    #[error(transparent)]
    Read(#[from] pagehaul_physmem::ReadError),
    /// A codec cannot be set up.
    #[cfg(feature = "simulation")]
    #[error(transparent)]
    Codec(#[from] pagehaul_codec::CodecError),
    /// What was measured shows that something is wrong with it.
    #[error("{0}")]
    Wrong(String),
}
