//! Which events there are, what their fields were called from Linux 4.4 to 7.3, and how they are read.

use pagehaul_trace::Event;

use super::{Handler, Happening, List, Reason, ShrinkerNames, Shrunk};

/// Kinds of stretches a task spends in reclaim on behalf of an allocation or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StretchKind {
    /// The machine is short of memory.
    Direct,
    /// A control group is at its limit, or was asked to shrink.
    Memcg,
    /// A control group above its soft limit.
    SoftLimit,
    /// One node is short (`zone_reclaim_mode`, or a request to the node).
    Node,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Begin(StretchKind),
    End(StretchKind),
    KswapdWake,
    KswapdSleep,
    WakeupRequest,
    Isolate,
    ShrinkInactive,
    ShrinkActive,
    Named,
    Write,
    Throttled,
    CongestionWait,
    SlabStart,
    SlabEnd,
    CompactBegin,
    CompactEnd,
    CompactMigrated,
    KcompactdWake,
}

/// Names a field has had.
type Names = &'static [&'static str];

impl Kind {
    pub(super) fn named(name: &str) -> Option<Self> {
        use StretchKind::{Direct, Memcg, Node, SoftLimit};
        Some(match name {
            "mm_vmscan_direct_reclaim_begin" => Self::Begin(Direct),
            "mm_vmscan_direct_reclaim_end" => Self::End(Direct),
            "mm_vmscan_memcg_reclaim_begin" => Self::Begin(Memcg),
            "mm_vmscan_memcg_reclaim_end" => Self::End(Memcg),
            "mm_vmscan_memcg_softlimit_reclaim_begin" => Self::Begin(SoftLimit),
            "mm_vmscan_memcg_softlimit_reclaim_end" => Self::End(SoftLimit),
            "mm_vmscan_node_reclaim_begin" => Self::Begin(Node),
            "mm_vmscan_node_reclaim_end" => Self::End(Node),
            "mm_vmscan_kswapd_wake" => Self::KswapdWake,
            "mm_vmscan_kswapd_sleep" => Self::KswapdSleep,
            "mm_vmscan_wakeup_kswapd" => Self::WakeupRequest,
            "mm_vmscan_lru_isolate" => Self::Isolate,
            "mm_vmscan_lru_shrink_inactive" => Self::ShrinkInactive,
            "mm_vmscan_lru_shrink_active" => Self::ShrinkActive,
            "mm_vmscan_reclaim_pages" => Self::Named,
            // Renamed with the change to folios, in Linux 5.19.
            "mm_vmscan_write_folio" | "mm_vmscan_writepage" => Self::Write,
            "mm_vmscan_throttled" => Self::Throttled,
            // Linux before 5.16.
            "writeback_congestion_wait" | "writeback_wait_iff_congested" => Self::CongestionWait,
            "mm_shrink_slab_start" => Self::SlabStart,
            "mm_shrink_slab_end" => Self::SlabEnd,
            "mm_compaction_begin" => Self::CompactBegin,
            "mm_compaction_end" => Self::CompactEnd,
            "mm_compaction_migratepages" => Self::CompactMigrated,
            "mm_compaction_kcompactd_wake" => Self::KcompactdWake,
            _ => return None,
        })
    }

    /// Names of the fields that `read` asks for by position.
    pub(super) fn fields(self) -> &'static [Names] {
        match self {
            Self::Begin(_) => &[&["order"], &["nid"], &["gfp_flags"], &["memcg_id"]],
            Self::End(_) => &[&["nr_reclaimed"]],
            Self::KswapdWake | Self::WakeupRequest => {
                &[&["nid"], &["zid", "highest_zoneidx", "classzone_idx"], &["order"]]
            }
            Self::KswapdSleep => &[&["nid"]],
            Self::Isolate => &[
                &["highest_zoneidx", "classzone_idx"],
                &["nr_requested"],
                &["nr_scanned"],
                &["nr_skipped"],
                &["nr_taken"],
                &["lru"],
                &["file"],
                &["isolate_mode"],
            ],
            Self::ShrinkInactive => &[
                &["nid"],
                &["nr_scanned"],
                &["nr_reclaimed"],
                &["nr_dirty"],
                &["nr_writeback"],
                &["nr_congested"],
                &["nr_immediate"],
                // One field until Linux 4.19.
                &["nr_activate0", "nr_activate"],
                &["nr_activate1"],
                &["nr_ref_keep"],
                &["nr_unmap_fail"],
                &["priority"],
                &["reclaim_flags"],
            ],
            Self::ShrinkActive => &[&["nid"], &["nr_taken"], &["nr_deactivated"]],
            Self::Named => &[&["nid"], &["nr_scanned"], &["nr_reclaimed"]],
            Self::Write => &[&["reclaim_flags"]],
            Self::Throttled => &[&["nid"], &["usec_delayed"], &["reason"]],
            Self::CongestionWait => &[&["usec_delayed"]],
            Self::SlabStart => &[&["shrink"], &["nid"]],
            Self::SlabEnd => &[&["shrink"], &["retval"]],
            Self::CompactMigrated => &[&["nr_migrated"], &["nr_failed"]],
            Self::CompactBegin | Self::CompactEnd | Self::KcompactdWake => &[],
        }
    }
}

/// Bits of `reclaim_flags` (include/trace/events/vmscan.h).
const FILE: (u64, &str) = (0x2, "RECLAIM_WB_FILE");
const SYNC: (u64, &str) = (0x4, "RECLAIM_WB_SYNC");
/// `isolate_mode` of active pages (until Linux 6.1).
const ISOLATE_ACTIVE: u64 = 2;

impl Handler {
    pub(super) fn read(&self, event: &Event<'_>, shrinkers: &mut ShrinkerNames) -> Option<Happening> {
        let unsigned = |at| self.unsigned(event, at);
        let signed = |at, missing| self.signed(event, at, missing);
        Some(match self.kind {
            Kind::Begin(kind) => Happening::Begin {
                kind,
                order: signed(0, 0),
                nid: signed(1, -1),
                requested: self.is_request(event),
                memcg: self.number(event, 3).filter(|&id| id != 0),
            },
            Kind::End(kind) => Happening::End { kind, reclaimed: unsigned(0) },
            Kind::KswapdWake => {
                Happening::KswapdWake { nid: signed(0, 0), zone: signed(1, -1), order: signed(2, 0) }
            }
            Kind::KswapdSleep => Happening::KswapdSleep { nid: signed(0, 0) },
            Kind::WakeupRequest => {
                Happening::WakeupRequest { nid: signed(0, -1), zone: signed(1, -1), order: signed(2, 0) }
            }
            Kind::Isolate => Happening::Isolate {
                zone: signed(0, -1),
                requested: unsigned(1),
                scanned: unsigned(2),
                skipped: unsigned(3),
                taken: unsigned(4),
                list: self.list(event)?,
            },
            Kind::ShrinkInactive => Happening::Shrink(Shrunk {
                nid: signed(0, -1),
                scanned: unsigned(1),
                reclaimed: unsigned(2),
                dirty: unsigned(3),
                writeback: unsigned(4),
                congested: unsigned(5),
                immediate: unsigned(6),
                activated: unsigned(7).saturating_add(unsigned(8)),
                referenced: unsigned(9),
                unmap_failed: unsigned(10),
                priority: signed(11, -1),
                file: self.has_flag(event, 12, FILE.0, FILE.1),
            }),
            Kind::ShrinkActive => {
                Happening::Deactivate { nid: signed(0, -1), taken: unsigned(1), deactivated: unsigned(2) }
            }
            Kind::Named => {
                Happening::Named { nid: signed(0, -1), scanned: unsigned(1), reclaimed: unsigned(2) }
            }
            Kind::Write => Happening::Write {
                file: self.has_flag(event, 0, FILE.0, FILE.1),
                sync: self.has_flag(event, 0, SYNC.0, SYNC.1),
            },
            Kind::Throttled => Happening::Throttled {
                nid: signed(0, -1),
                ns: unsigned(1).saturating_mul(1000),
                reason: self.reason(event),
            },
            Kind::CongestionWait => Happening::Throttled {
                nid: -1,
                ns: unsigned(0).saturating_mul(1000),
                reason: Reason::Congested,
            },
            Kind::SlabStart => Happening::SlabStart {
                shrinker: shrinkers.id(event, self.slots.first().copied().flatten()),
                nid: signed(1, -1),
            },
            Kind::SlabEnd => Happening::SlabEnd {
                shrinker: shrinkers.id(event, self.slots.first().copied().flatten()),
                // Negative where the shrinker stopped.
                freed: u64::try_from(signed(1, 0)).unwrap_or(0),
            },
            Kind::CompactBegin => Happening::CompactBegin,
            Kind::CompactEnd => Happening::CompactEnd,
            Kind::CompactMigrated => Happening::CompactMigrated { moved: unsigned(0), failed: unsigned(1) },
            Kind::KcompactdWake => Happening::KcompactdWake,
        })
    }

    /// Plain GFP_KERNEL is what requests carry: memory.reclaim, memory.high, a limit that was lowered, a node's reclaim file.
    /// Allocations that are charged carry more, or less, than that.
    fn is_request(&self, event: &Event<'_>) -> bool {
        let Some(slot) = self.slots.get(2).copied().flatten() else { return false };
        match event.u64(slot) {
            Some(value) => self.gfp_kernel == Some(value),
            None => event.spelling(slot) == Some(b"GFP_KERNEL"),
        }
    }

    /// The list: its number (`enum lru_list`, the same since 2.6.28), its name in text, or `file` and `isolate_mode` before
    /// `lru` came in Linux 4.11.
    fn list(&self, event: &Event<'_>) -> Option<List> {
        let Some(slot) = self.slots.get(5).copied().flatten() else {
            let file = self.unsigned(event, 6) != 0;
            let active = self.unsigned(event, 7) == ISOLATE_ACTIVE;
            return Some(if active { List::Active { file } } else { List::Inactive { file } });
        };
        let name: &[u8] = match event.u64(slot) {
            Some(0) => b"inactive_anon",
            Some(1) => b"active_anon",
            Some(2) => b"inactive_file",
            Some(3) => b"active_file",
            Some(_) => b"unevictable",
            None => event.spelling(slot)?,
        };
        Some(match name {
            b"inactive_anon" => List::Inactive { file: false },
            b"inactive_file" => List::Inactive { file: true },
            b"active_anon" => List::Active { file: false },
            b"active_file" => List::Active { file: true },
            _ => List::Unevictable,
        })
    }

    fn reason(&self, event: &Event<'_>) -> Reason {
        let flag = |bit, name| self.has_flag(event, 2, bit, name);
        if flag(1, "VMSCAN_THROTTLE_WRITEBACK") {
            Reason::Writeback
        } else if flag(2, "VMSCAN_THROTTLE_ISOLATED") {
            Reason::Isolated
        } else if flag(4, "VMSCAN_THROTTLE_NOPROGRESS") {
            Reason::NoProgress
        } else if flag(8, "VMSCAN_THROTTLE_CONGESTED") {
            Reason::Congested
        } else {
            Reason::Unknown
        }
    }
}
