use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::symbols::Symbols;

/// Metadata of a trace: the machine, the recorded command, counters.
#[derive(Debug, Clone, Default)]
pub struct TraceInfo {
    /// The trace's format.
    pub origin: Origin,
    /// The traced machine.
    pub machine: MachineInfo,
    /// Runs of the command.
    pub runs: Vec<Run>,
    /// Kernel counters before tracing began.
    pub begin: Option<KernelCounters>,
    /// Kernel counters after tracing ended.
    pub end: Option<KernelCounters>,
    /// Functions whose addresses occur in events.
    pub symbols: Symbols,
    /// Control group of each task seen in reclaim.
    pub task_cgroups: BTreeMap<i32, String>,
    /// Paths of control groups by the id in events: the inode of the cgroup directory.
    pub cgroup_ids: BTreeMap<u64, String>,
    /// Events that the kernel counted as lost, by CPU, if the recorder asked.
    pub lost_by_cpu: BTreeMap<u32, u64>,
    /// What the user should know, one sentence each: a truncated file, parts left out.
    pub warnings: Vec<String>,
}

/// The traced machine and what ran on it. Formats other than pagehaul recordings lack some of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineInfo {
    /// `uname -r`.
    pub release: Option<String>,
    /// `uname -n`.
    pub hostname: Option<String>,
    /// `uname -m`.
    pub machine: Option<String>,
    /// The trace clock.
    pub clock: Option<String>,
    /// Whether the machine is big-endian.
    pub big_endian: bool,
    /// Number of CPUs.
    pub cpus: Option<u32>,
    /// Bytes of a page. Text does not say.
    pub page_size: Option<u32>,
    /// The recorded command line; empty if there was none.
    pub command: Vec<String>,
    /// Kernel settings that affect reclaim, by file name.
    pub settings: BTreeMap<String, String>,
}

impl MachineInfo {
    /// Returns the bytes of `pages` pages; of 4 KiB where the trace does not say how large they are.
    pub fn bytes(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_size.map_or(4096, u64::from))
    }
}

/// Origin of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The running kernel.
    #[default]
    Live,
    /// A pagehaul recording (`.pht`).
    Recording,
    /// trace-cmd's `trace.dat`, with its version.
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

/// Contents of the kernel's counter files at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounters {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic_ns: u64,
    /// Nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Contents by file name: `/proc/vmstat`, `/proc/pressure/memory` … Files that the kernel lacks are
    /// missing.
    pub files: BTreeMap<String, String>,
}

/// One run of the recorded command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Start, CLOCK_MONOTONIC nanoseconds.
    pub begin_ns: u64,
    /// End, CLOCK_MONOTONIC nanoseconds.
    pub end_ns: u64,
    /// User CPU seconds, children included.
    pub user_s: f64,
    /// System CPU seconds, children included.
    pub system_s: f64,
    /// Exit status; `None` if a signal ended it.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Largest resident set of any of its processes, KiB.
    pub max_rss_kib: u64,
    /// Kernel counters before the run.
    pub before: KernelCounters,
    /// Kernel counters after the run.
    pub after: KernelCounters,
}

impl Run {
    /// Returns the elapsed seconds.
    pub fn wall_s(&self) -> f64 {
        self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9
    }

    /// Returns whether the command exited with status 0.
    pub fn succeeded(&self) -> bool {
        self.exit == Some(0)
    }
}
