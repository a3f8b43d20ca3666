//! What a trace adds up to.

mod class;
mod tally;
mod task;
mod timeline;
mod tracker;

use std::collections::BTreeMap;

pub use class::Class;
pub(crate) use tally::grow;
pub use tally::{Pages, Stretches, Tally};
pub use timeline::{Moment, Timeline};
pub use tracker::Tracker;

use crate::Durations;
use crate::decode::Reason;

/// All that is known at the end of a trace, or of a part of it. Times are nanoseconds of the trace's clock.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// First and last event, or the window that was asked for.
    pub begin_ns: u64,
    /// See `begin_ns`.
    pub end_ns: u64,
    /// Events looked at.
    pub events: u64,
    /// Totals by who reclaimed.
    pub tallies: BTreeMap<Class, Tally>,
    /// Requests that wake kswapd, by order.
    pub wakeup_requests: BTreeMap<i32, u64>,
    /// Those by tasks that reclaimed directly at any time, as the kernel's script counts.
    pub wakeup_requests_by_reclaimers: u64,
    /// kswapd by node.
    pub kswapd: BTreeMap<i32, Kswapd>,
    /// Directly reclaiming stretches by order.
    pub orders: BTreeMap<i32, Durations>,
    /// By node.
    pub nodes: BTreeMap<i32, NodeTally>,
    /// By zone, as far as pages are isolated for one.
    pub zones: BTreeMap<i32, ZoneTally>,
    /// By task.
    pub tasks: BTreeMap<i32, TaskTally>,
    /// By the control group whose limit it was, where the kernel says (7.2).
    pub memcgs: BTreeMap<u64, Stretches>,
    /// Waiting inside stretches of reclaim.
    pub causes: Causes,
    /// Shrinkers by id: calls, time, objects.
    pub shrinkers: BTreeMap<u32, ShrinkerTally>,
    /// Nanoseconds with at least one task in a stretch.
    pub someone_ns: u64,
    /// Compaction that tasks had to do themselves, beside reclaim.
    pub compaction: Compaction,
    /// The longest stretches, longest first.
    pub slowest: Vec<Slow>,
    /// Over time.
    pub timeline: Timeline,
    /// Limits of what can be said.
    pub limits: Limits,
}

/// kswapd of one node.
#[derive(Debug, Clone, Default)]
pub struct Kswapd {
    /// From asleep to awake.
    pub wakeups: u64,
    /// Given more to do while awake.
    pub rewakeups: u64,
    /// Wakeups by order.
    pub orders: BTreeMap<i32, u64>,
    /// Stretches awake.
    pub awake: Durations,
    /// Nanoseconds awake, with unfinished stretches up to the end.
    pub awake_ns: u64,
}

/// What happened on a node.
#[derive(Debug, Clone, Default)]
pub struct NodeTally {
    /// Requests for its kswapd.
    pub wakeup_requests: u64,
    /// Pages looked at and reclaimed by kswapd.
    pub kswapd: Pages,
    /// By tasks.
    pub tasks: Pages,
    /// Waiting on purpose.
    pub throttled: Durations,
}

/// What happened for allocations from a zone.
#[derive(Debug, Clone, Default)]
pub struct ZoneTally {
    /// Requests for kswapd.
    pub wakeup_requests: u64,
    /// Pages isolated for allocations that this zone is the highest for.
    pub pages: Pages,
}

/// What one task did and suffered.
#[derive(Debug, Clone, Default)]
pub struct TaskTally {
    /// Its last name.
    pub comm: String,
    /// Stretches of all kinds but kswapd's.
    pub stretches: Stretches,
    /// Those because the machine was short.
    pub direct: Durations,
    /// Pages it looked at.
    pub pages: Pages,
    /// Pages it had written.
    pub writes: u64,
    /// Requests that wake kswapd.
    pub wakeup_requests: u64,
    /// Nanoseconds it waited on purpose.
    pub throttled_ns: u64,
}

/// Where the time in stretches of tasks went.
#[derive(Debug, Clone, Default)]
pub struct Causes {
    /// By reason: inside stretches.
    pub throttled: BTreeMap<Reason, Durations>,
    /// By reason: by kswapd, which keeps no task waiting.
    pub kswapd_throttled: BTreeMap<Reason, Durations>,
    /// Nanoseconds in shrinkers.
    pub shrinkers_ns: u64,
    /// Nanoseconds in compaction.
    pub compaction_ns: u64,
    /// Nanoseconds in stretches altogether.
    pub stretches_ns: u64,
}

/// A shrinker.
#[derive(Debug, Clone, Default)]
pub struct ShrinkerTally {
    /// Calls by tasks, and their time.
    pub tasks: Durations,
    /// Calls by kswapd.
    pub kswapd: Durations,
    /// Objects freed.
    pub freed: u64,
}

/// Compaction.
#[derive(Debug, Clone, Default)]
pub struct Compaction {
    /// By tasks that needed a larger block.
    pub direct: Durations,
    /// By kcompactd.
    pub kcompactd: Durations,
    /// Pages moved.
    pub moved: u64,
    /// Pages that could not be moved.
    pub failed: u64,
}

/// One stretch, for the list of the longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slow {
    /// The task.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// Who reclaimed.
    pub class: Class,
    /// When it began.
    pub begin_ns: u64,
    /// How long it took, or has taken.
    pub duration_ns: u64,
    /// The order asked for.
    pub order: i32,
    /// Waiting on purpose in it.
    pub throttled_ns: u64,
    /// In shrinkers.
    pub shrinkers_ns: u64,
    /// In compaction.
    pub compaction_ns: u64,
    /// Pages looked at.
    pub scanned: u64,
    /// Pages reclaimed.
    pub reclaimed: u64,
    /// Pages written.
    pub written: u64,
    /// It had not ended.
    pub unfinished: bool,
}

/// What keeps figures from being exact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Stretches that had not ended with the trace: counted up to its end.
    pub unfinished: u64,
    /// Ends without a begin: the stretch began before the trace, or its begin was lost. Not counted.
    pub unmatched_ends: u64,
    /// Begins in a stretch of the same kind: the end was lost. The earlier one is not counted.
    pub unmatched_begins: u64,
    /// Stretches during which events were lost: counted, but kept out of percentiles.
    pub uncertain: u64,
    /// kswapds that were awake when the trace began: counted from there.
    pub awake_at_begin: u64,
    /// A sign of MGLRU was seen: more pages asked for at once than the older lists ever do.
    pub mglru_seen: bool,
}

/// Stretches kept for the list of the longest.
pub(crate) const SLOWEST: usize = 20;
