//! How each trace event is read. Fields are found by name, once for each kind of event; a field that a kernel does not
//! have reads as its neutral value.

use pagehaul_trace::{Event, EventFormat, Slot};

use super::event::{IntervalKind, LruList, ReclaimEvent, ReclaimStat, ThrottleReason};
use super::shrinkers::ShrinkerNames;

/// Reads one kind of event.
pub(super) type Reader = Box<dyn Fn(&Event<'_>, &mut ShrinkerNames) -> Option<ReclaimEvent>>;

/// The most pages, objects or microseconds that an event may report: more than 52 bits of physical address have pages.
/// Damaged traces report more, which would overflow sums.
const MAX_COUNT: u64 = 1 << 44;

/// Bits of `reclaim_flags` (include/trace/events/vmscan.h), with their names in text.
const FILE: (u64, &str) = (0x2, "RECLAIM_WB_FILE");
const SYNC: (u64, &str) = (0x4, "RECLAIM_WB_SYNC");
/// `isolate_mode` of active pages (until Linux 6.1).
const ISOLATE_ACTIVE: u64 = 2;
/// Bits of `reason` of `mm_vmscan_throttled`.
const REASONS: [((u64, &str), ThrottleReason); 4] = [
    ((1, "VMSCAN_THROTTLE_WRITEBACK"), ThrottleReason::Writeback),
    ((2, "VMSCAN_THROTTLE_ISOLATED"), ThrottleReason::Isolated),
    ((4, "VMSCAN_THROTTLE_NOPROGRESS"), ThrottleReason::NoProgress),
    ((8, "VMSCAN_THROTTLE_CONGESTED"), ThrottleReason::Congested),
];

/// Returns the reader of an event; none if the event has nothing to do with reclaim.
pub(super) fn reader(format: &EventFormat) -> Option<Reader> {
    let field = |names: &[&str]| Field(format.any_slot(names));
    let (nid, order, zone) =
        (field(&["nid"]), field(&["order"]), field(&["zid", "highest_zoneidx", "classzone_idx"]));
    let (scanned, reclaimed, taken) =
        (field(&["nr_scanned"]), field(&["nr_reclaimed"]), field(&["nr_taken"]));
    let (flags, delayed, shrinker) =
        (field(&["reclaim_flags"]), field(&["usec_delayed"]), field(&["shrink"]));
    Some(match format.name.as_str() {
        "mm_vmscan_direct_reclaim_begin" => begin(format, IntervalKind::Direct),
        "mm_vmscan_memcg_reclaim_begin" => begin(format, IntervalKind::Memcg),
        "mm_vmscan_memcg_softlimit_reclaim_begin" => begin(format, IntervalKind::SoftLimit),
        "mm_vmscan_node_reclaim_begin" => begin(format, IntervalKind::Node),
        "mm_vmscan_direct_reclaim_end" => end(reclaimed, IntervalKind::Direct),
        "mm_vmscan_memcg_reclaim_end" => end(reclaimed, IntervalKind::Memcg),
        "mm_vmscan_memcg_softlimit_reclaim_end" => end(reclaimed, IntervalKind::SoftLimit),
        "mm_vmscan_node_reclaim_end" => end(reclaimed, IntervalKind::Node),
        "mm_vmscan_kswapd_wake" => always(move |event| ReclaimEvent::KswapdWake {
            nid: nid.signed(event, 0),
            order: order.signed(event, 0),
        }),
        "mm_vmscan_kswapd_sleep" => {
            always(move |event| ReclaimEvent::KswapdSleep { nid: nid.signed(event, 0) })
        }
        "mm_vmscan_wakeup_kswapd" => always(move |event| ReclaimEvent::WakeupKswapd {
            nid: nid.signed(event, -1),
            zone: zone.signed(event, -1),
            order: order.signed(event, 0),
        }),
        "mm_vmscan_lru_isolate" => {
            let (requested, skipped) = (field(&["nr_requested"]), field(&["nr_skipped"]));
            let (lru, file, mode) = (field(&["lru"]), field(&["file"]), field(&["isolate_mode"]));
            Box::new(move |event, _| {
                Some(ReclaimEvent::LruIsolate {
                    zone: zone.signed(event, -1),
                    requested: requested.count(event),
                    scanned: scanned.count(event),
                    skipped: skipped.count(event),
                    taken: taken.count(event),
                    list: list(event, lru, file, mode)?,
                })
            })
        }
        "mm_vmscan_lru_shrink_inactive" => {
            let (dirty, writeback) = (field(&["nr_dirty"]), field(&["nr_writeback"]));
            // `nr_activate` was one field until Linux 4.19.
            let (immediate, anon, file) =
                (field(&["nr_immediate"]), field(&["nr_activate0", "nr_activate"]), field(&["nr_activate1"]));
            always(move |event| {
                ReclaimEvent::ShrinkInactive(ReclaimStat {
                    nid: nid.signed(event, -1),
                    scanned: scanned.count(event),
                    reclaimed: reclaimed.count(event),
                    dirty: dirty.count(event),
                    writeback: writeback.count(event),
                    immediate: immediate.count(event),
                    activated: anon.count(event).saturating_add(file.count(event)),
                    file: flags.has(event, FILE),
                })
            })
        }
        "mm_vmscan_lru_shrink_active" => {
            let deactivated = field(&["nr_deactivated"]);
            always(move |event| ReclaimEvent::ShrinkActive {
                taken: taken.count(event),
                deactivated: deactivated.count(event),
            })
        }
        "mm_vmscan_reclaim_pages" => always(move |event| ReclaimEvent::ReclaimPages {
            scanned: scanned.count(event),
            reclaimed: reclaimed.count(event),
        }),
        // Renamed with the change to folios, in Linux 5.19.
        "mm_vmscan_write_folio" | "mm_vmscan_writepage" => always(move |event| ReclaimEvent::WriteFolio {
            file: flags.has(event, FILE),
            sync: flags.has(event, SYNC),
        }),
        "mm_vmscan_throttled" => {
            let reason = field(&["reason"]);
            always(move |event| ReclaimEvent::Throttled {
                nid: nid.signed(event, -1),
                ns: delayed.count(event).saturating_mul(1000),
                reason: REASONS
                    .iter()
                    .find(|(flag, _)| reason.has(event, *flag))
                    .map_or(ThrottleReason::Unknown, |(_, reason)| *reason),
            })
        }
        // Linux before 5.16.
        "writeback_congestion_wait" | "writeback_wait_iff_congested" => {
            always(move |event| ReclaimEvent::Throttled {
                nid: -1,
                ns: delayed.count(event).saturating_mul(1000),
                reason: ThrottleReason::Congested,
            })
        }
        "mm_shrink_slab_start" => Box::new(move |event, shrinkers| {
            Some(ReclaimEvent::ShrinkSlabStart { shrinker: shrinkers.id(event, shrinker.0) })
        }),
        "mm_shrink_slab_end" => {
            let retval = field(&["retval"]);
            Box::new(move |event, shrinkers| {
                Some(ReclaimEvent::ShrinkSlabEnd {
                    shrinker: shrinkers.id(event, shrinker.0),
                    // Negative where the shrinker stopped.
                    freed: u64::try_from(retval.signed(event, 0)).unwrap_or(0),
                })
            })
        }
        "mm_compaction_begin" => always(|_| ReclaimEvent::CompactionBegin),
        "mm_compaction_end" => always(|_| ReclaimEvent::CompactionEnd),
        "mm_compaction_kcompactd_wake" => always(|_| ReclaimEvent::KcompactdWake),
        _ => return None,
    })
}

fn always(read: impl Fn(&Event<'_>) -> ReclaimEvent + 'static) -> Reader {
    Box::new(move |event, _| Some(read(event)))
}

fn begin(format: &EventFormat, kind: IntervalKind) -> Reader {
    let field = |name| Field(format.any_slot(&[name]));
    let (order, gfp_flags, memcg) = (field("order"), field("gfp_flags"), field("memcg_id"));
    let gfp_kernel = format.value_names("gfp_flags").and_then(|names| names.value("GFP_KERNEL"));
    always(move |event| ReclaimEvent::Begin {
        kind,
        order: order.signed(event, 0),
        proactive: is_proactive(event, gfp_flags, gfp_kernel),
        memcg: memcg.number(event).filter(|&id| id != 0),
    })
}

fn end(reclaimed: Field, kind: IntervalKind) -> Reader {
    always(move |event| ReclaimEvent::End { kind, reclaimed: reclaimed.count(event) })
}

/// Plain GFP_KERNEL is what requests carry: memory.reclaim, memory.high, a lowered limit, the reclaim file of a node.
/// Allocations that are charged carry more, or less, than that.
fn is_proactive(event: &Event<'_>, gfp_flags: Field, gfp_kernel: Option<u64>) -> bool {
    let Some(slot) = gfp_flags.0 else { return false };
    match event.u64(slot) {
        Some(value) => gfp_kernel == Some(value),
        None => event.spelling(slot) == Some(b"GFP_KERNEL"),
    }
}

/// The list: its number (`enum lru_list`, the same since 2.6.28), its name in text, or `file` and `isolate_mode` before
/// `lru` came in Linux 4.11.
fn list(event: &Event<'_>, lru: Field, file: Field, mode: Field) -> Option<LruList> {
    let Some(slot) = lru.0 else {
        let active = mode.count(event) == ISOLATE_ACTIVE;
        return Some(if active {
            LruList::Active
        } else {
            LruList::Inactive { file: file.count(event) != 0 }
        });
    };
    let name: &[u8] = match event.u64(slot) {
        Some(0) => b"inactive_anon",
        Some(1 | 3) => b"active",
        Some(2) => b"inactive_file",
        Some(_) => b"unevictable",
        None => event.spelling(slot)?,
    };
    Some(match name {
        b"inactive_anon" => LruList::Inactive { file: false },
        b"inactive_file" => LruList::Inactive { file: true },
        b"active" | b"active_anon" | b"active_file" => LruList::Active,
        _ => LruList::Unevictable,
    })
}

/// A field of an event, if the kernel has it.
#[derive(Clone, Copy)]
struct Field(Option<Slot>);

impl Field {
    fn number(self, event: &Event<'_>) -> Option<u64> {
        event.u64(self.0?)
    }

    /// A number of pages, objects or microseconds; 0 if the field is missing.
    fn count(self, event: &Event<'_>) -> u64 {
        self.number(event).unwrap_or(0).min(MAX_COUNT)
    }

    fn signed(self, event: &Event<'_>, missing: i32) -> i32 {
        self.number(event).map_or(missing, |value| value as i32)
    }

    /// Whether the field has a flag: its bit or, in text, its name.
    fn has(self, event: &Event<'_>, (bit, name): (u64, &str)) -> bool {
        let Some(slot) = self.0 else { return false };
        match event.u64(slot) {
            Some(value) => value & bit != 0,
            None => event.spelling(slot).is_some_and(|text| {
                text.split(|&byte| byte == b'|').any(|flag| flag.trim_ascii() == name.as_bytes())
            }),
        }
    }
}
