use std::cmp::Reverse;

use super::reclaimer::Reclaimer;

/// A stall: an interval that a task spent in reclaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    /// The task.
    pub pid: i32,
    /// Its name.
    pub comm: String,
    /// For whom it reclaimed.
    pub reclaimer: Reclaimer,
    /// When it began.
    pub begin_ns: u64,
    /// How long it took, or has taken.
    pub duration_ns: u64,
    /// The order of the allocation.
    pub order: i32,
    /// Time throttled.
    pub throttled_ns: u64,
    /// Time in shrinkers.
    pub shrinkers_ns: u64,
    /// Time in compaction.
    pub compaction_ns: u64,
    /// Pages scanned.
    pub scanned: u64,
    /// Pages reclaimed.
    pub reclaimed: u64,
    /// Folios written.
    pub written: u64,
    /// It had not ended with the trace.
    pub unfinished: bool,
    /// Events were lost while it went on.
    pub uncertain: bool,
}

/// All intervals of a trace.
#[derive(Debug, Clone, Default)]
pub struct AllIntervals {
    /// Stalls, in the order of their ends.
    pub stalls: Vec<Stall>,
    /// Node, begin and end of times that a kswapd was awake.
    pub kswapd: Vec<(i32, u64, u64)>,
}

/// Collects the slowest stalls.
#[derive(Debug, Clone, Default)]
pub struct SlowestStalls {
    stalls: Vec<Stall>,
    /// Shorter stalls cannot be among the slowest any more.
    floor_ns: u64,
}

/// The stalls to keep.
const MOST: usize = 20;

impl SlowestStalls {
    /// Returns whether a stall of this duration could be among the slowest.
    pub(crate) fn admits(&self, duration_ns: u64) -> bool {
        duration_ns >= self.floor_ns
    }

    /// Adds a stall.
    pub fn add(&mut self, stall: Stall) {
        self.stalls.push(stall);
        // Sorting is rare: it costs more than the memory.
        if self.stalls.len() >= 64 * MOST {
            self.truncate();
        }
    }

    /// Returns the slowest stalls, slowest first.
    pub fn finish(mut self) -> Vec<Stall> {
        self.truncate();
        self.stalls
    }

    fn truncate(&mut self) {
        self.stalls.sort_by_key(|stall| (Reverse(stall.duration_ns), stall.begin_ns, stall.pid));
        self.stalls.truncate(MOST);
        if let Some(last) = self.stalls.get(MOST - 1) {
            self.floor_ns = last.duration_ns;
        }
    }
}
