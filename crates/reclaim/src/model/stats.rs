use std::collections::BTreeMap;

use crate::decode::ThrottleReason;
use crate::histogram::DurationHistogram;

/// Adds to a sum, which saturates: damaged traces hold any times.
pub(crate) fn accumulate(sum: &mut u64, by: u64) {
    *sum = sum.saturating_add(by);
}

/// Pages scanned and reclaimed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// `nr_scanned`.
    pub scanned: u64,
    /// `nr_taken`: isolated from the list. MGLRU kernels count these as scanned in `/proc/vmstat`.
    pub taken: u64,
    /// `nr_reclaimed`.
    pub reclaimed: u64,
}

impl Pages {
    /// Adds other pages.
    pub fn add(&mut self, other: Self) {
        accumulate(&mut self.scanned, other.scanned);
        accumulate(&mut self.taken, other.taken);
        accumulate(&mut self.reclaimed, other.reclaimed);
    }

    /// Returns the pages scanned as `/proc/vmstat` counts them.
    pub(crate) fn vmstat_scanned(&self, mglru: bool) -> u64 {
        if mglru { self.taken } else { self.scanned }
    }
}

/// Intervals that tasks spent in reclaim.
#[derive(Debug, Clone, Default)]
pub struct Intervals {
    /// How many began.
    pub begun: u64,
    /// Nanoseconds in them; unfinished ones count up to the end of the trace.
    pub ns: u64,
    /// Those that ended, and during which no events were lost.
    pub durations: DurationHistogram,
    /// Pages that the end events report as reclaimed.
    pub reported: u64,
}

/// What one reclaimer did.
#[derive(Debug, Clone, Default)]
pub struct ReclaimerStats {
    /// Intervals; none for kswapd.
    pub intervals: Intervals,
    /// Anonymous pages (and those of shared memory), then file pages.
    pub pages: [Pages; 2],
    /// Pages skipped because they are of a zone that the allocation cannot use.
    pub skipped: u64,
    /// Dirty pages found.
    pub dirty: u64,
    /// Pages found under writeback.
    pub writeback: u64,
    /// Pages found under writeback and already marked for immediate reclaim.
    pub immediate: u64,
    /// Pages found in use, and activated.
    pub activated: u64,
    /// Pages taken off the active lists.
    pub active_taken: u64,
    /// Pages of those that were deactivated.
    pub deactivated: u64,
    /// Folios written: anonymous and file, each asynchronously and synchronously.
    pub writes: [[u64; 2]; 2],
    /// Pages reclaimed by address (`reclaim_pages()`).
    pub by_address: Pages,
}

impl ReclaimerStats {
    /// Returns anonymous and file pages together.
    pub fn all(&self) -> Pages {
        let mut all = self.pages[0];
        all.add(self.pages[1]);
        all
    }

    /// Returns all folios written.
    pub fn written(&self) -> u64 {
        self.writes.iter().flatten().sum()
    }
}

/// What the kswapd of a node did.
#[derive(Debug, Clone, Default)]
pub struct KswapdStats {
    /// Wakeups from sleep.
    pub wakeups: u64,
    /// Wakeups while awake.
    pub rewakeups: u64,
    /// Wakeups by order.
    pub orders: BTreeMap<i32, u64>,
    /// Nanoseconds awake; up to the end of the trace if it still is.
    pub awake_ns: u64,
}

/// What happened on a node.
#[derive(Debug, Clone, Default)]
pub struct NodeStats {
    /// Requests for its kswapd.
    pub wakeup_requests: u64,
    /// Pages of its lists scanned and reclaimed by kswapd.
    pub kswapd: Pages,
    /// Pages of its lists scanned and reclaimed by tasks.
    pub tasks: Pages,
    /// Throttling.
    pub throttled: DurationHistogram,
}

/// What happened for allocations that can use a zone at most.
#[derive(Debug, Clone, Default)]
pub struct ZoneStats {
    /// Requests for kswapd.
    pub wakeup_requests: u64,
    /// Pages isolated.
    pub pages: Pages,
}

/// What one task did, and how long it stalled.
#[derive(Debug, Clone, Default)]
pub struct TaskStats {
    /// Its last name.
    pub comm: String,
    /// Intervals of every kind.
    pub intervals: Intervals,
    /// Pages it scanned and reclaimed.
    pub pages: Pages,
    /// Folios it wrote.
    pub writes: u64,
    /// Its requests for kswapd.
    pub wakeup_requests: u64,
    /// Nanoseconds it was throttled.
    pub throttled_ns: u64,
}

/// What the time of tasks in reclaim was spent on.
#[derive(Debug, Clone, Default)]
pub struct StallCauses {
    /// Throttling inside intervals.
    pub throttled: BTreeMap<ThrottleReason, DurationHistogram>,
    /// Throttling of kswapd, during which no task waits.
    pub kswapd_throttled: BTreeMap<ThrottleReason, DurationHistogram>,
    /// Nanoseconds in shrinkers.
    pub shrinkers_ns: u64,
    /// Nanoseconds in compaction.
    pub compaction_ns: u64,
    /// Nanoseconds in intervals altogether.
    pub intervals_ns: u64,
}

/// What a shrinker did.
#[derive(Debug, Clone, Default)]
pub struct ShrinkerStats {
    /// Calls inside intervals of tasks.
    pub tasks: DurationHistogram,
    /// Other calls: by kswapd.
    pub kswapd: DurationHistogram,
    /// Objects freed.
    pub freed: u64,
}
