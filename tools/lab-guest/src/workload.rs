//! What a guest that does not crash runs: scripts in a Debian tree, one after the other.

use serde::{Deserialize, Serialize};

/// Path of the [`Workload`] in the initramfs. A guest that finds it does not crash.
pub const PATH: &str = "/workload.json";

/// Serial numbers of the disks, with their mount points for scripts.
pub mod disk {
    /// ext4 with the Debian tree, pagehaul in /usr/local/bin, and the host's files: `/`.
    pub const ROOT: &str = "root";
    /// Empty ext4: `/scratch`. May be absent.
    pub const SCRATCH: &str = "scratch";
    /// ext4 whose files the host extracts at the end: `/out`.
    pub const OUT: &str = "out";
    /// Raw, for swap: `$SWAP`.
    pub const SWAP: &str = "swap";
    /// Raw, for an encrypted disk: `$LUKS`.
    pub const LUKS: &str = "luks";
    /// Raw, for a file system: `$XFS`.
    pub const XFS: &str = "xfs";
    /// Raw disks, and the variables that name their devices to scripts.
    pub const RAW: [(&str, &str); 3] = [(SWAP, "SWAP"), (LUKS, "LUKS"), (XFS, "XFS")];
}

/// Name of the [`WorkloadReport`] among the files on the disk [`disk::OUT`].
pub const REPORT: &str = "workload.json";

/// Scripts to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Run one after the other, whether or not earlier steps fail.
    pub steps: Vec<Step>,
}

/// One script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Base name of its files in the results.
    pub name: String,
    /// Text of a bash script.
    pub script: String,
    /// Time limit in seconds. The script and the processes it started are killed afterwards.
    pub time_limit: u64,
}

/// How a workload ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// `uname -r`.
    pub release: String,
    /// The steps, in the order of the workload.
    pub steps: Vec<StepReport>,
}

/// How one step ended. Its files are `<name>.stdout`, `<name>.stderr`, `<name>.vmstat-before` and `<name>.vmstat-after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Name given by the host.
    pub name: String,
    /// Exit code, unless a signal killed it.
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether it exceeded its time limit.
    pub timed_out: bool,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// CPU seconds in user mode, children included.
    pub user_seconds: f64,
    /// CPU seconds in the kernel, children included.
    pub system_seconds: f64,
}
