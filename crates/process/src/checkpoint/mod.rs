//! Checkpoints: CRIU saves and restores the kernel's state of processes, pagehaul stores its images.

mod base;
mod chain;
mod compress;
pub(crate) mod container;
mod criu;
mod dump;
mod ending;
mod hold;
mod huge_pages;
mod image_directory;
mod images;
mod info;
mod kept;
mod losses;
mod marks;
mod options;
mod own_options;
mod page_list;
mod perf;
pub(crate) mod pids;
mod precopy;
mod programs;
pub(crate) mod protobuf;
mod requirements;
mod restore;
pub(crate) mod timers;
mod tree;
mod version;
mod whole;
pub(crate) mod wire;
mod work_directory;
mod writer;

pub use dump::checkpoint;
pub use hold::action_script;
pub use info::{
    CheckpointInfo, Generation, bases_of, checkpoint_path, describe_checkpoint, is_checkpoint,
    verify_checkpoint,
};
pub use marks::{MARKS_HELPER, hold_marks};
pub use options::{BaseReport, CheckpointOptions, CheckpointReport, Lost, PreCopyReport};
pub use restore::{RestartOptions, RestartReport, restart};
pub use whole::{WholeOptions, WholeReport, make_whole};
