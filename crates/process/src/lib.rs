//! Cores and checkpoints of live processes: stop, copy at memory speed, let go, compress and write after.
//!
//! [`core`] writes cores; [`checkpoint`] and [`restart`] do the same for CRIU's images; [`handler`] takes the cores of processes
//! that crash. The process is left as it was on
//! every path, this program's death included: its threads are seized with ptrace, and the kernel lets tracees of a dead
//! tracer go on. While a checkpoint is made, the tracer is CRIU, which restores the processes if this program dies.

#[cfg(not(target_os = "linux"))]
compile_error!("/proc and ptrace are those of Linux");

mod agent;
mod arch;
mod arena;
mod borrow;
mod checkpoint;
mod copy;
mod core_file;
mod error;
mod filter;
mod fork;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod handler;
mod hold;
mod info;
mod inject;
mod job;
mod layout;
mod limits;
mod mapping;
mod oom;
mod options;
mod output;
mod own_ids;
mod pack;
mod pagemap;
mod pipeline;
mod populated;
mod prepare;
mod procfs;
mod ptrace;
mod queue;
mod report;
mod reserved;
mod run;
mod seekable;
mod signal_mask;
mod stop;
mod stub;
mod threads;
mod tiler;
mod transfer;
mod units;
mod urgent;
mod vdso;
mod verify;

pub use agent::{
    SNAPSHOT_HELPER, USERFAULTFD_HELPER, serve as hold_snapshot, serve_userfaultfd as hold_userfaultfd,
};
pub use checkpoint::{
    BaseReport, CheckpointInfo, CheckpointOptions, CheckpointReport, Generation, Lost, MARKS_HELPER,
    PreCopyReport, RestartOptions, RestartReport, WholeOptions, WholeReport, action_script, bases_of,
    checkpoint, checkpoint_path, describe_checkpoint, hold_marks, is_checkpoint, make_whole, restart,
    verify_checkpoint,
};
pub use error::ProcessError;
pub use filter::{Kind, Kinds};
pub use info::{CoreInfo, describe};
pub use options::{Mode, Options};
pub use output::Target;
pub use pagehaul_run::Outcome;
pub use report::{CoreReport, Seconds};
pub use run::core;
pub use units::Pid;
pub use verify::{Verified, verify};
