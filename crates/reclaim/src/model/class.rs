use serde::Serialize;

use crate::decode::StretchKind;

/// Who reclaims, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A task that allocates while the machine is short.
    Direct,
    /// The kernel's thread of a node.
    Kswapd,
    /// A task that charges a control group at its limit.
    Memcg,
    /// On request: memory.reclaim, memory.high, a limit that was lowered.
    Proactive,
    /// A control group above its soft limit.
    SoftLimit,
    /// One node of a machine.
    Node,
    /// Outside any stretch: madvise, DAMON, hibernation, or a stretch whose begin is missing.
    Other,
}

impl Class {
    /// All of them, as tables have them.
    pub const ALL: [Self; 7] =
        [Self::Direct, Self::Kswapd, Self::Memcg, Self::Proactive, Self::SoftLimit, Self::Node, Self::Other];

    /// Of a stretch; `requested` if its flags are those of a request.
    pub fn of(kind: StretchKind, requested: bool) -> Self {
        match kind {
            StretchKind::Direct => Self::Direct,
            StretchKind::SoftLimit => Self::SoftLimit,
            StretchKind::Memcg if requested => Self::Proactive,
            StretchKind::Memcg => Self::Memcg,
            StretchKind::Node => Self::Node,
        }
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Kswapd => "kswapd",
            Self::Memcg => "memcg limit",
            Self::Proactive => "memcg on request",
            Self::SoftLimit => "memcg soft limit",
            Self::Node => "node",
            Self::Other => "other",
        }
    }
}
