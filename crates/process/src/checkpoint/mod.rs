//! Checkpoints: CRIU saves and restores what the kernel knows of processes, pagehaul takes and gives its images.

pub(crate) mod container;
mod criu;
mod dump;
mod info;
pub(crate) mod pids;
mod restore;
mod tree;
pub(crate) mod wire;

pub use dump::{CheckpointOptions, CheckpointReport, checkpoint};
pub use info::{CheckpointInfo, describe_checkpoint, verify_checkpoint};
pub use restore::{RestartOptions, RestartReport, restart};

use std::path::{Path, PathBuf};

/// Name of the container in a folder.
const IN_FOLDER: &str = "checkpoint.pagehaul";

/// The container that a path stands for: itself, or the one in it.
pub(crate) fn place(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(IN_FOLDER) } else { path.to_owned() }
}

/// A folder for CRIU's sockets, logs and statistics, which goes away with it.
pub(crate) fn work_folder() -> Result<tempfile::TempDir, crate::ProcessError> {
    let made = tempfile::Builder::new().prefix("pagehaul-criu-").tempdir();
    made.map_err(|source| crate::ProcessError::Resource { action: "make a temporary folder", source })
}
