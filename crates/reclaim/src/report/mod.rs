//! What a trace means: rows, tables, checks.

mod analysis;
mod check;
mod compare;
mod rows;
mod tables;

use pagehaul_trace::Run;
use serde::Serialize;

pub use analysis::{ReportError, analyse};
pub use check::{Check, Verdict};
pub use compare::{Change, Comparison, ComparisonColumn, ComparisonRow, ComparisonSection};
pub use rows::{Better, Row, Section, Unit, Value};
pub use tables::{Column, Datum, StallClass, Table};

use crate::counters::Pressure;

/// A report of one recording, or of several of the same thing.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Its name in comparisons.
    pub label: String,
    /// Where it comes from.
    pub source: SourceInfo,
    /// The command's own result; none if no command was recorded.
    pub result: Option<CommandResult>,
    /// The reclaim table, time shares, and what is beyond the table of 2010.
    pub sections: Vec<Section>,
    /// Stretches by class, with percentiles and histogram.
    pub stalls: Vec<StallClass>,
    /// Further tables: by order, node, zone, control group, task; causes; shrinkers; the longest stretches.
    pub tables: Vec<Table>,
    /// Over time.
    pub timeline: TimelineReport,
    /// The trace against `/proc/vmstat` and PSI.
    pub checks: Vec<Check>,
    /// Time tasks were held up for memory by PSI's word.
    pub pressure: Option<Pressure>,
    /// What is missing.
    pub lost: LostReport,
    /// What a reader should know, one sentence each.
    pub remarks: Vec<String>,
}

/// Where a report comes from.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SourceInfo {
    /// Files.
    pub files: Vec<String>,
    /// Their format.
    pub format: String,
    /// The kernel.
    pub release: Option<String>,
    /// The machine's name.
    pub hostname: Option<String>,
    /// `x86_64`.
    pub machine: Option<String>,
    /// The clock of time stamps.
    pub clock: Option<String>,
    /// CPUs.
    pub cpus: Option<u32>,
    /// The recorded command line.
    pub command: Vec<String>,
    /// Kernel settings.
    pub settings: std::collections::BTreeMap<String, String>,
    /// MGLRU is in use, if that is known.
    pub mglru: Option<bool>,
    /// Seconds traced.
    pub duration_s: f64,
    /// Events.
    pub events: u64,
}

/// What the command itself said, by run.
#[derive(Debug, Clone, Serialize)]
pub struct CommandResult {
    /// Seconds from begin to end.
    pub wall_s: Vec<f64>,
    /// Seconds of CPU in user mode.
    pub user_s: Vec<f64>,
    /// Seconds of CPU in the kernel.
    pub system_s: Vec<f64>,
    /// Largest resident set of a process, MiB.
    pub max_rss_mib: Vec<f64>,
    /// How it ended: "0", "1", "signal 9".
    pub exits: Vec<String>,
}

impl CommandResult {
    fn of(runs: &[Run]) -> Option<Self> {
        let all = |of: fn(&Run) -> f64| runs.iter().map(of).collect();
        let exit = |run: &Run| match (run.exit, run.signal) {
            (Some(status), _) => status.to_string(),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "unknown".into(),
        };
        (!runs.is_empty()).then(|| Self {
            wall_s: all(Run::wall_s),
            user_s: all(|run| run.user_s),
            system_s: all(|run| run.system_s),
            max_rss_mib: all(|run| run.max_rss_kib as f64 / 1024.0),
            exits: runs.iter().map(exit).collect(),
        })
    }

    fn extend(&mut self, other: Self) {
        self.wall_s.extend(other.wall_s);
        self.user_s.extend(other.user_s);
        self.system_s.extend(other.system_s);
        self.max_rss_mib.extend(other.max_rss_mib);
        self.exits.extend(other.exits);
    }

    /// Its figures by name, with their values.
    pub fn figures(&self) -> [(&'static str, &[f64]); 4] {
        [
            ("Wall time (s)", &self.wall_s),
            ("User time (s)", &self.user_s),
            ("System time (s)", &self.system_s),
            ("Largest process (MiB)", &self.max_rss_mib),
        ]
    }
}

/// What happened when.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TimelineReport {
    /// Seconds in a slice.
    pub slice_s: f64,
    /// Tasks in direct reclaim, on average over the slice.
    pub direct: Vec<f64>,
    /// Tasks in reclaim of control groups and nodes.
    pub memcg: Vec<f64>,
    /// Awake kswapds.
    pub kswapd: Vec<f64>,
    /// Tasks waiting on purpose in reclaim.
    pub throttled: Vec<f64>,
    /// MiB a second reclaimed by kswapd.
    pub kswapd_mib_s: Vec<f64>,
    /// MiB a second reclaimed by tasks.
    pub task_mib_s: Vec<f64>,
    /// When runs of the command began and ended, seconds from the begin.
    pub runs: Vec<(f64, f64)>,
}

/// What the trace does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LostReport {
    /// Events the buffers say are missing.
    pub events: u64,
    /// Gaps of unknown length.
    pub gaps: u64,
    /// Parts of the file that cannot be read.
    pub damaged: u64,
    /// Events the kernel counted as lost while recording.
    pub counted_by_kernel: u64,
    /// Events of unknown kinds.
    pub unknown_events: u64,
    /// Stretches that had not ended.
    pub unfinished: u64,
    /// Ends without a begin, and begins without an end.
    pub unmatched: u64,
    /// Stretches kept out of percentiles, since events were lost while they lasted.
    pub uncertain: u64,
}

impl LostReport {
    /// Events are missing.
    pub fn any(&self) -> bool {
        self.events + self.gaps + self.damaged + self.counted_by_kernel > 0
    }
}
