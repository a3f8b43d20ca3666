/// A trace event of page reclaim, without its time and task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ReclaimEvent {
    /// A task enters reclaim. `proactive`: the flags are those of a request, not of an allocation.
    Begin { kind: IntervalKind, order: i32, proactive: bool, memcg: Option<u64> },
    /// A task leaves reclaim.
    End { kind: IntervalKind, reclaimed: u64 },
    /// kswapd wakes, or is given a higher order while awake.
    KswapdWake { nid: i32, order: i32 },
    /// kswapd goes to sleep.
    KswapdSleep { nid: i32 },
    /// An allocation asks for kswapd.
    WakeupKswapd { nid: i32, zone: i32, order: i32 },
    /// Pages are isolated from an LRU list.
    LruIsolate { zone: i32, requested: u64, scanned: u64, skipped: u64, taken: u64, list: LruList },
    /// What became of pages isolated from an inactive list.
    ShrinkInactive(ReclaimStat),
    /// Pages of an active list are deactivated.
    ShrinkActive { taken: u64, deactivated: u64 },
    /// `reclaim_pages()`: pages reclaimed by address (MADV_PAGEOUT, DAMON), not because memory was short.
    ReclaimPages { scanned: u64, reclaimed: u64 },
    /// Reclaim writes a folio.
    WriteFolio { file: bool, sync: bool },
    /// Reclaim let the task sleep.
    Throttled { nid: i32, ns: u64, reason: ThrottleReason },
    /// A shrinker begins.
    ShrinkSlabStart { shrinker: u32 },
    /// A shrinker ends.
    ShrinkSlabEnd { shrinker: u32, freed: u64 },
    /// Compaction of a zone begins.
    CompactionBegin,
    /// Compaction of a zone ends.
    CompactionEnd,
    /// kcompactd wakes.
    KcompactdWake,
}

/// The kinds of reclaim that a task enters and leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum IntervalKind {
    /// `try_to_free_pages()`: the machine is short of memory.
    Direct,
    /// A memory cgroup is at its limit, or was asked to shrink.
    Memcg,
    /// A memory cgroup is above its soft limit.
    SoftLimit,
    /// One node is short (`zone_reclaim_mode`), or was asked to shrink.
    Node,
}

/// An LRU list (`enum lru_list`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LruList {
    /// Pages that reclaim considers.
    Inactive {
        /// File pages, not anonymous ones.
        file: bool,
    },
    /// Pages in use, which reclaim only deactivates.
    Active,
    /// Locked pages.
    Unevictable,
}

/// The figures of `mm_vmscan_lru_shrink_inactive` (`struct reclaim_stat`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct ReclaimStat {
    pub nid: i32,
    pub scanned: u64,
    pub reclaimed: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub immediate: u64,
    pub activated: u64,
    pub file: bool,
}

/// Why reclaim let a task sleep (`enum vmscan_throttle_state`, since Linux 5.16; before, `congestion_wait` and
/// `wait_iff_congested`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThrottleReason {
    /// Pages under writeback at the end of the list.
    Writeback,
    /// Too many pages are isolated already.
    Isolated,
    /// Nothing could be reclaimed.
    NoProgress,
    /// The devices are congested.
    Congested,
    /// A reason of a newer kernel.
    Unknown,
}

impl ThrottleReason {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writeback => "writeback",
            Self::Isolated => "too many pages isolated",
            Self::NoProgress => "no progress",
            Self::Congested => "devices congested",
            Self::Unknown => "unknown reason",
        }
    }
}
