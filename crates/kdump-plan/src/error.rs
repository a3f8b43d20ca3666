use std::io;
use std::path::PathBuf;

use pagehaul_bench::BenchError;

/// Why a plan could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The machine's memory cannot be measured.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The size of the machine's memory is not known.
    #[error(
        "the size of the memory is not known, neither by MemTotal of /proc/meminfo nor by a --memory of more than 0"
    )]
    NoMemory,
    /// A file of rates cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// A file of rates is something else.
    #[error("{path} is not what `pagehaul bench capture --json` prints: {source}", path = path.display())]
    NotRates {
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Rates that cannot be planned with.
    #[error("{path} has {what}", path = path.display())]
    Rates {
        path: PathBuf,
        /// What is wrong with them, and what to do.
        what: String,
    },
}
