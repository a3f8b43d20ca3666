use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Symbols;

/// What a recording says of the machine and of itself.
#[derive(Debug, Clone, Default)]
pub struct TraceInfo {
    /// The file's format.
    pub origin: Origin,
    /// `uname -r` of the traced kernel.
    pub release: Option<String>,
    /// `uname -n`.
    pub hostname: Option<String>,
    /// `uname -m`.
    pub machine: Option<String>,
    /// The clock of time stamps.
    pub clock: Option<String>,
    /// CPUs that could be traced.
    pub cpus: Option<u32>,
    /// The command line that was recorded; empty if there was none.
    pub command: Vec<String>,
    /// Every time the command ran.
    pub runs: Vec<Run>,
    /// The kernel's counters before tracing began.
    pub begin: Option<KernelCounters>,
    /// And after it ended.
    pub end: Option<KernelCounters>,
    /// Functions named by events.
    pub symbols: Symbols,
    /// The control group of tasks that were seen in reclaim.
    pub task_cgroups: BTreeMap<i32, String>,
    /// Paths of control groups by the id that events name (the inode of their folder).
    pub cgroup_ids: BTreeMap<u64, String>,
    /// Events the kernel counted as lost, by CPU, where the recorder asked.
    pub lost_by_cpu: BTreeMap<u32, u64>,
    /// The names of kernel settings that matter for reclaim, and their values.
    pub settings: BTreeMap<String, String>,
    /// What a reader should know: a cut file, parts left out. One sentence each.
    pub remarks: Vec<String>,
}

/// Where a trace comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The running kernel.
    #[default]
    Live,
    /// A pagehaul recording (`.pht`).
    Recording,
    /// trace-cmd's `trace.dat` of this version.
    TraceDat(u8),
    /// Text: ftrace's `trace` and `trace_pipe`, `trace-cmd report`, `perf script`.
    Text,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Live => f.write_str("live"),
            Self::Recording => f.write_str("pagehaul recording"),
            Self::TraceDat(version) => write!(f, "trace.dat v{version}"),
            Self::Text => f.write_str("text"),
        }
    }
}

/// The text of the kernel's counter files at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Text by file name: `/proc/vmstat`, `/proc/pressure/memory` … Files the kernel does not have are missing.
    pub files: BTreeMap<String, String>,
}

/// A run of the recorded command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// When it began, CLOCK_MONOTONIC nanoseconds.
    pub begin_ns: u64,
    /// When it had ended.
    pub end_ns: u64,
    /// Seconds of CPU in user mode, children included.
    pub user_s: f64,
    /// Seconds of CPU in the kernel, children included.
    pub system_s: f64,
    /// Its exit status; none if a signal ended it.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Largest resident set of one of its processes, KiB.
    pub max_rss_kib: u64,
    /// Counters before it.
    pub before: KernelCounters,
    /// Counters after it.
    pub after: KernelCounters,
}

impl Run {
    /// Seconds from begin to end.
    pub fn wall_s(&self) -> f64 {
        self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9
    }

    /// It ended by itself with status 0.
    pub fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }
}
