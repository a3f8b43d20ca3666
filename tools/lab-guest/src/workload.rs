//! What the host asks of a guest that works instead of crashing: scripts run on a Debian tree, one after the other.

use serde::{Deserialize, Serialize};

/// Where the host puts the workload in the initramfs. A guest that finds it doesn't crash.
pub const PATH: &str = "/workload.json";

/// Serial numbers of the disks, and where the scripts see them.
pub mod disk {
    /// ext4 with the Debian tree, pagehaul in /usr/local/bin, and what else the host put there: `/`.
    pub const ROOT: &str = "root";
    /// Empty ext4: `/scratch`.
    pub const SCRATCH: &str = "scratch";
    /// ext4 whose files the host takes out in the end: `/out`.
    pub const OUT: &str = "out";
    /// Raw, for swap: `$SWAP`.
    pub const SWAP: &str = "swap";
}

/// Name of the [`Report`] among the files on the disk [`disk::OUT`].
pub const REPORT: &str = "workload.json";

/// Scripts to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// One after the other; what follows a failed step is run too.
    pub steps: Vec<Step>,
}

/// One script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Name of its files in the results.
    pub name: String,
    /// For bash.
    pub script: String,
    /// Seconds after which it is killed, with all it started.
    pub time_limit: u64,
}

/// What became of a workload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `uname -r`.
    pub release: String,
    /// As the steps were asked for.
    pub steps: Vec<StepReport>,
}

/// How a step went. Its files are `<name>.stdout`, `<name>.stderr`, `<name>.vmstat-before` and `<name>.vmstat-after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Name given by the host.
    pub name: String,
    /// Exit code, unless a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was killed for taking too long.
    pub timed_out: bool,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// CPU seconds in user mode, of its children too.
    pub user_seconds: f64,
    /// CPU seconds in the kernel, of its children too.
    pub system_seconds: f64,
}
