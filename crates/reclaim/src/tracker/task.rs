//! What is known of a task while the trace goes on.

use crate::decode::IntervalKind;
use crate::model::{Reclaimer, Stall, TaskStats};

/// A task seen in the trace.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) pid: i32,
    pub(super) stats: TaskStats,
    /// Intervals it is in, the innermost last. Reclaim from a node may come within an allocation that goes on to reclaim
    /// directly; no more than a few ever nest.
    pub(super) open: Vec<OpenInterval>,
    /// Set for the kswapd of a node.
    pub(super) kswapd: Option<KswapdState>,
    pub(super) is_kcompactd: bool,
    /// The shrinker it is in, and since when.
    pub(super) shrinker: Option<(u32, u64)>,
    /// Since when it compacts.
    pub(super) compacting: Option<u64>,
    /// The CPU it was last seen on.
    pub(super) cpu: u32,
}

/// An interval that has not ended.
#[derive(Debug)]
pub(super) struct OpenInterval {
    pub(super) kind: IntervalKind,
    pub(super) memcg: Option<u64>,
    /// The end of its last throttling.
    pub(super) throttled_until: u64,
    /// Events were lost since it began.
    pub(super) uncertain: bool,
    /// What is known of it so far.
    pub(super) stall: Stall,
}

/// The state of a kswapd.
#[derive(Debug, Clone, Copy)]
pub(super) struct KswapdState {
    pub(super) nid: i32,
    pub(super) awake_since: Option<u64>,
}

impl Task {
    /// Creates a task. The kernel's threads are known by their names, even if they were awake before the trace.
    pub(super) fn new(pid: i32, comm: &str) -> Self {
        let nid = comm.strip_prefix("kswapd").and_then(|nid| nid.parse().ok());
        Self {
            pid,
            stats: TaskStats { comm: comm.to_owned(), ..TaskStats::default() },
            kswapd: nid.map(|nid| KswapdState { nid, awake_since: None }),
            is_kcompactd: comm.starts_with("kcompactd"),
            ..Self::default()
        }
    }

    /// Returns the reclaimer that its pages count for.
    pub(super) fn reclaimer(&self) -> Reclaimer {
        match (self.open.last(), self.kswapd) {
            (Some(open), _) => open.stall.reclaimer,
            (None, Some(_)) => Reclaimer::Kswapd,
            (None, None) => Reclaimer::Other,
        }
    }

    /// Returns the innermost interval it is in.
    pub(super) fn stall(&mut self) -> Option<&mut Stall> {
        self.open.last_mut().map(|open| &mut open.stall)
    }
}
