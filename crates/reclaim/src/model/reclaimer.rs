use serde::Serialize;

use crate::decode::IntervalKind;

/// Who reclaims memory, and for whom (as `reclaimer_offset()` in mm/vmscan.c, and finer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reclaimer {
    /// A task that allocates while the machine is short of memory.
    Direct,
    /// The kswapd of a node.
    Kswapd,
    /// A task that charges a memory cgroup at its limit.
    Memcg,
    /// Reclaim on request: memory.reclaim, memory.high, a lowered limit.
    Proactive,
    /// Reclaim from a memory cgroup above its soft limit.
    SoftLimit,
    /// Reclaim from one node.
    Node,
    /// Reclaim outside of any interval: madvise, DAMON, hibernation, or an interval whose begin is missing.
    Other,
}

impl Reclaimer {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 7] =
        [Self::Direct, Self::Kswapd, Self::Memcg, Self::Proactive, Self::SoftLimit, Self::Node, Self::Other];

    /// Returns the reclaimer of an interval.
    pub fn of(kind: IntervalKind, proactive: bool) -> Self {
        match kind {
            IntervalKind::Direct => Self::Direct,
            IntervalKind::SoftLimit => Self::SoftLimit,
            IntervalKind::Memcg if proactive => Self::Proactive,
            IntervalKind::Memcg => Self::Memcg,
            IntervalKind::Node => Self::Node,
        }
    }

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Kswapd => "kswapd",
            Self::Memcg => "memcg limit",
            Self::Proactive => "memcg proactive",
            Self::SoftLimit => "memcg soft limit",
            Self::Node => "node",
            Self::Other => "other",
        }
    }
}
