//! Checkpoints: CRIU saves and restores what the kernel knows of processes, pagehaul takes and gives its images.

pub(crate) mod container;
mod criu;
mod dump;
mod hold;
mod info;
pub(crate) mod pids;
mod restore;
mod tree;
pub(crate) mod wire;
mod work_directory;

pub use dump::{CheckpointOptions, CheckpointReport, checkpoint};
pub use hold::action_script;
pub use info::{CheckpointInfo, describe_checkpoint, verify_checkpoint};
pub use restore::{RestartOptions, RestartReport, restart};

use std::path::{Path, PathBuf};

/// Name of the container in a folder.
const IN_FOLDER: &str = "checkpoint.pagehaul";

/// The container that a path stands for: itself, or the one in it.
pub(crate) fn place(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(IN_FOLDER) } else { path.to_owned() }
}
