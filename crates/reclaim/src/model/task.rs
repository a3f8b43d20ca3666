//! What is known of a task while the trace goes on.

use super::{Class, TaskTally};
use crate::decode::{ShrinkerId, StretchKind};

/// A task seen in the trace.
#[derive(Debug, Default)]
pub(super) struct Task {
    pub(super) pid: i32,
    /// What it adds up to.
    pub(super) tally: TaskTally,
    /// Stretches it is in, the innermost last. A node's reclaim may come within an allocation that goes on to reclaim
    /// directly; no more than a few ever nest.
    pub(super) open: Vec<Open>,
    /// It is the kswapd of a node.
    pub(super) kswapd: Option<Awake>,
    /// It is kcompactd.
    pub(super) kcompactd: bool,
    pub(super) slab: Option<(ShrinkerId, u64)>,
    pub(super) compact: Option<u64>,
    pub(super) direct: bool,
    /// The CPU it was last seen on.
    pub(super) cpu: u32,
}

/// A stretch that has not ended.
#[derive(Debug, Clone)]
pub(super) struct Open {
    pub(super) kind: StretchKind,
    pub(super) class: Class,
    pub(super) begin: u64,
    pub(super) order: i32,
    pub(super) memcg: Option<u64>,
    pub(super) throttled_ns: u64,
    /// The end of its last wait.
    pub(super) throttled_until: u64,
    pub(super) shrinkers_ns: u64,
    pub(super) compaction_ns: u64,
    pub(super) scanned: u64,
    pub(super) reclaimed: u64,
    pub(super) written: u64,
    /// Events were lost since it began.
    pub(super) uncertain: bool,
}

/// kswapd's state.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Awake {
    pub(super) nid: i32,
    pub(super) since: Option<u64>,
}

impl Task {
    /// A task seen for the first time. The kernel's threads are known by their names, even if they were awake before the trace.
    pub(super) fn new(pid: i32, comm: &str) -> Self {
        let nid = comm.strip_prefix("kswapd").and_then(|nid| nid.parse().ok());
        Self {
            pid,
            tally: TaskTally { comm: comm.to_owned(), ..TaskTally::default() },
            kswapd: nid.map(|nid| Awake { nid, since: None }),
            kcompactd: comm.starts_with("kcompactd"),
            ..Self::default()
        }
    }

    /// What the task's pages count for.
    pub(super) fn class(&self) -> Class {
        match (self.open.last(), self.kswapd) {
            (Some(open), _) => open.class,
            (None, Some(_)) => Class::Kswapd,
            (None, None) => Class::Other,
        }
    }
}
