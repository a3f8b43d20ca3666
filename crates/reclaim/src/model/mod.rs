//! What a trace adds up to.

mod reclaimer;
mod slowest;
mod stats;
mod timeline;

use std::collections::BTreeMap;

pub use reclaimer::Reclaimer;
pub use slowest::{AllIntervals, SlowestStalls, Stall};
pub(crate) use stats::accumulate;
pub use stats::{
    Intervals, KswapdStats, NodeStats, Pages, ReclaimerStats, ShrinkerStats, StallCauses, TaskStats,
    ZoneStats,
};
pub use timeline::{TimeSlice, Timeline};

use crate::histogram::DurationHistogram;

/// All that is known at the end of a trace, or of a part of it. Times are nanoseconds of the trace's clock.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// The first event, or the begin that was asked for.
    pub begin_ns: u64,
    /// The last event, or the end that was asked for.
    pub end_ns: u64,
    /// Events read.
    pub events: u64,
    /// Totals by reclaimer.
    pub by_reclaimer: BTreeMap<Reclaimer, ReclaimerStats>,
    /// Requests for kswapd, by order.
    pub wakeup_requests: BTreeMap<i32, u64>,
    /// kswapd by node.
    pub kswapd: BTreeMap<i32, KswapdStats>,
    /// Direct reclaim by order.
    pub orders: BTreeMap<i32, DurationHistogram>,
    /// By node.
    pub nodes: BTreeMap<i32, NodeStats>,
    /// By the highest zone that an allocation can use.
    pub zones: BTreeMap<i32, ZoneStats>,
    /// By task.
    pub tasks: BTreeMap<i32, TaskStats>,
    /// By the memory cgroup at its limit, where the kernel reports it (7.2).
    pub memcgs: BTreeMap<u64, Intervals>,
    /// What stalls were spent on.
    pub causes: StallCauses,
    /// By shrinker id.
    pub shrinkers: BTreeMap<u32, ShrinkerStats>,
    /// Nanoseconds with at least one task in reclaim, as PSI's `some`.
    pub some_ns: u64,
    /// Compaction by tasks that need a higher order.
    pub direct_compaction: DurationHistogram,
    /// The slowest stalls, slowest first.
    pub slowest: Vec<Stall>,
    /// All stalls, if they are kept.
    pub(crate) intervals: Option<AllIntervals>,
    /// Activity over time.
    pub timeline: Timeline,
    /// What keeps figures from being exact.
    pub completeness: Completeness,
}

/// What keeps figures from being exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Completeness {
    /// Intervals that had not ended with the trace. They count up to its end.
    pub unfinished: u64,
    /// Ends without a begin: the interval began before the trace, or its begin was lost. They do not count.
    pub unmatched_ends: u64,
    /// Begins inside an interval of the same kind: the end was lost. The earlier interval does not count.
    pub unmatched_begins: u64,
    /// Intervals during which events were lost. They count, except in percentiles.
    pub uncertain: u64,
    /// kswapds that were awake when the trace began. They count from there.
    pub awake_at_begin: u64,
    /// An event asked for more pages at once than the inactive and active lists ever do: MGLRU is in use.
    pub mglru_seen: bool,
}
