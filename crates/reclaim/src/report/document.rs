use std::collections::BTreeMap;

use pagehaul_trace::{MachineInfo, Run};
use serde::Serialize;

use super::check::Check;
use super::section::{Row, Section};
use super::table::Table;
use crate::counters::Pressure;
use crate::histogram::Bucket;
use crate::model::Reclaimer;

/// A report of one recording, or of several of the same thing.
#[derive(Debug, Clone, Serialize)]
pub struct ReclaimReport {
    /// Its name in comparisons.
    pub label: String,
    /// The recording.
    pub source: SourceInfo,
    /// The command's result; none if no command was recorded.
    pub result: Option<CommandResult>,
    /// The table of Mel Gorman's series, time shares, and further figures.
    pub sections: Vec<Section>,
    /// Stalls by reclaimer.
    pub stalls: Vec<Stalls>,
    /// Figures by reclaimer, cause, shrinker, task, memory cgroup, order, node and zone.
    pub tables: Vec<Table>,
    /// Activity over time.
    pub timeline: TimelineReport,
    /// The trace against `/proc/vmstat` and PSI.
    pub checks: Vec<Check>,
    /// Time that tasks stalled on memory, as PSI counts it.
    pub pressure: Option<Pressure>,
    /// What the trace does not hold.
    pub lost: LostReport,
    /// What the reader should know, one sentence each.
    pub warnings: Vec<String>,
}

impl ReclaimReport {
    /// Returns all rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sections.iter().flat_map(|section| &section.rows)
    }

    /// Merges recordings of the same thing: rows get the values of all runs, the rest is that of the first.
    pub fn group(label: &str, reports: Vec<Self>) -> Option<Self> {
        let mut reports = reports.into_iter();
        let mut first = reports.next()?;
        first.label = label.to_owned();
        for other in reports {
            let rows: BTreeMap<&str, &Row> = other.rows().map(|row| (row.name.as_str(), row)).collect();
            for row in first.sections.iter_mut().flat_map(|section| &mut section.rows) {
                row.values.extend(rows.get(row.name.as_str()).into_iter().flat_map(|same| &same.values));
            }
            first.source.files.extend(other.source.files);
            match (&mut first.result, other.result) {
                (Some(mine), Some(theirs)) => mine.extend(theirs),
                (mine @ None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
        Some(first)
    }
}

/// The recording that a report is made of.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SourceInfo {
    /// Files.
    pub files: Vec<String>,
    /// Their format.
    pub format: String,
    /// The traced machine.
    #[serde(flatten)]
    pub machine: MachineInfo,
    /// Whether MGLRU is in use, if that is known.
    pub mglru: Option<bool>,
    /// Seconds traced.
    pub duration_s: f64,
    /// Events.
    pub events: u64,
}

/// The result of the command, by run.
#[derive(Debug, Clone, Serialize)]
pub struct CommandResult {
    /// Seconds from start to end.
    pub wall_s: Vec<f64>,
    /// Seconds of CPU in user mode.
    pub user_s: Vec<f64>,
    /// Seconds of CPU in the kernel.
    pub system_s: Vec<f64>,
    /// Largest resident set of a process, MiB.
    pub max_rss_mib: Vec<f64>,
    /// Exit statuses: "0", "1", "signal 9".
    pub exits: Vec<String>,
}

impl CommandResult {
    pub(super) fn of(runs: &[Run]) -> Option<Self> {
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

    /// Returns its figures by name.
    pub fn figures(&self) -> [(&'static str, &[f64]); 4] {
        [
            ("Wall time (s)", &self.wall_s),
            ("User time (s)", &self.user_s),
            ("System time (s)", &self.system_s),
            ("Largest process (MiB)", &self.max_rss_mib),
        ]
    }
}

/// The stalls of one kind of reclaim.
#[derive(Debug, Clone, Serialize)]
pub struct Stalls {
    /// The kind of reclaim.
    pub reclaimer: Reclaimer,
    /// Its name.
    pub name: &'static str,
    /// How many began.
    pub count: u64,
    /// Milliseconds in them all.
    pub total_ms: f64,
    /// Percentiles and their milliseconds: 50, 90, 95, 99, 99.9, and 100 for the longest.
    pub percentiles_ms: Vec<(f64, f64)>,
    /// The log2 histogram.
    pub histogram: Vec<Bucket>,
}

/// Activity over time, in slices of equal length.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TimelineReport {
    /// Seconds in a slice.
    pub slice_s: f64,
    /// Tasks in direct reclaim, on average over the slice.
    pub direct: Vec<f64>,
    /// Tasks in reclaim from memory cgroups and nodes.
    pub memcg: Vec<f64>,
    /// kswapds awake.
    pub kswapd: Vec<f64>,
    /// Tasks throttled in reclaim.
    pub throttled: Vec<f64>,
    /// MiB per second reclaimed by kswapd.
    pub kswapd_mib_s: Vec<f64>,
    /// MiB per second reclaimed by tasks.
    pub task_mib_s: Vec<f64>,
    /// When runs of the command began and ended, in seconds of the trace.
    pub runs: Vec<(f64, f64)>,
}

/// What the trace does not hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LostReport {
    /// Events that the ring buffers report as lost.
    pub events: u64,
    /// Losses of unknown size.
    pub gaps: u64,
    /// Parts of the file that are damaged.
    pub damaged: u64,
    /// Events that the kernel counted as lost while recording.
    pub counted_by_kernel: u64,
    /// Events of unknown kinds.
    pub unknown_events: u64,
    /// Intervals that had not ended.
    pub unfinished: u64,
    /// Ends without a begin, and begins without an end.
    pub unmatched: u64,
    /// Intervals that percentiles leave out, because events were lost while they lasted.
    pub uncertain: u64,
}

impl LostReport {
    /// Returns whether events are missing.
    pub fn any(&self) -> bool {
        self.events + self.gaps + self.damaged + self.counted_by_kernel > 0
    }
}
