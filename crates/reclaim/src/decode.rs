//! Events of all kernels in one shape. Fields are found by name; what a kernel does not have stays at its neutral value.

mod kind;
mod shrinkers;

use pagehaul_trace::{Event, EventFormat, Slot};

use kind::Kind;
pub use kind::StretchKind;
pub use shrinkers::{ShrinkerId, ShrinkerNames};

/// What happened, without time and task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Happening {
    /// A task begins to reclaim.
    Begin { kind: StretchKind, order: i32, nid: i32, requested: bool, memcg: Option<u64> },
    /// And ends.
    End { kind: StretchKind, reclaimed: u64 },
    /// kswapd starts, or is given more to do.
    KswapdWake { nid: i32, zone: i32, order: i32 },
    /// kswapd goes to sleep.
    KswapdSleep { nid: i32 },
    /// An allocation asks for kswapd.
    WakeupRequest { nid: i32, zone: i32, order: i32 },
    /// Pages are taken off a list.
    Isolate { zone: i32, requested: u64, scanned: u64, skipped: u64, taken: u64, list: List },
    /// What became of pages taken off an inactive list.
    Shrink(Shrunk),
    /// Pages are moved between the lists.
    Deactivate { nid: i32, taken: u64, deactivated: u64 },
    /// Pages reclaimed because somebody named them (madvise, DAMON), not because memory was short.
    Named { nid: i32, scanned: u64, reclaimed: u64 },
    /// A page is written out by reclaim.
    Write { file: bool, sync: bool },
    /// The task waited on purpose.
    Throttled { nid: i32, ns: u64, reason: Reason },
    /// A shrinker begins.
    SlabStart { shrinker: ShrinkerId, nid: i32 },
    /// And ends.
    SlabEnd { shrinker: ShrinkerId, freed: u64 },
    /// Compaction of a zone begins.
    CompactBegin,
    /// And ends.
    CompactEnd,
    /// Pages moved by compaction.
    CompactMigrated { moved: u64, failed: u64 },
    /// kcompactd is at work.
    KcompactdWake,
}

/// Lists of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// Pages that reclaim considers.
    Inactive {
        /// Of files, not anonymous.
        file: bool,
    },
    /// Pages in use, which are only moved.
    Active {
        /// Of files, not anonymous.
        file: bool,
    },
    /// Locked pages.
    Unevictable,
}

/// `mm_vmscan_lru_shrink_inactive`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Shrunk {
    pub nid: i32,
    pub scanned: u64,
    pub reclaimed: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub congested: u64,
    pub immediate: u64,
    pub activated: u64,
    pub referenced: u64,
    pub unmap_failed: u64,
    pub priority: i32,
    pub file: bool,
}

/// Why reclaim let a task wait (`enum vmscan_throttle_state`, since Linux 5.16; before, `congestion_wait` and
/// `wait_iff_congested`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Pages under write-back at the list's end.
    Writeback,
    /// Too many pages isolated already.
    Isolated,
    /// Nothing could be reclaimed.
    NoProgress,
    /// The devices are congested.
    Congested,
    /// A reason this program does not know.
    Unknown,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Writeback, Self::Isolated, Self::NoProgress, Self::Congested, Self::Unknown];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Writeback => "waiting for write-back",
            Self::Isolated => "too many pages isolated",
            Self::NoProgress => "no progress",
            Self::Congested => "devices congested",
            Self::Unknown => "unknown reason",
        }
    }
}

/// Most pages, objects or microseconds that an event may tell of: more than 52 bits of physical address have pages. What
/// damaged traces say beyond that would only overflow sums.
const MOST: u64 = 1 << 44;

/// Turns events into happenings; learns each kind of event once.
#[derive(Default)]
pub struct Decoder {
    handlers: Vec<Option<Handler>>,
    shrinkers: ShrinkerNames,
    known: Vec<bool>,
    /// Names of the kinds of events seen or announced.
    available: std::collections::BTreeSet<String>,
}

/// How to read one kind of event.
struct Handler {
    kind: Kind,
    slots: Vec<Option<Slot>>,
    /// The bits of GFP_KERNEL, to tell requests from allocations.
    gfp_kernel: Option<u64>,
}

impl Decoder {
    /// What an event says; none if it has nothing to do with reclaim.
    #[inline]
    pub fn decode(&mut self, event: &Event<'_>) -> Option<Happening> {
        let index = event.format().index;
        if !self.known.get(index).copied().unwrap_or(false) {
            self.learn(event.format());
        }
        let handler = self.handlers.get(index)?.as_ref()?;
        handler.read(event, &mut self.shrinkers)
    }

    /// The kinds of events the trace has; formats of a recording count even where no event came.
    pub fn announce<'a>(&mut self, formats: impl Iterator<Item = &'a EventFormat>) {
        formats.for_each(|format| self.learn(format));
    }

    /// Whether the trace has, or could have, events of this name.
    pub fn has(&self, name: &str) -> bool {
        self.available.contains(name)
    }

    /// The trace has no kind of event that reclaim is made of.
    pub fn knows_nothing(&self) -> bool {
        !self.available.iter().any(|name| name.starts_with("mm_vmscan_"))
    }

    /// Names of shrinkers by id.
    pub fn shrinkers(&self) -> &ShrinkerNames {
        &self.shrinkers
    }

    #[cold]
    fn learn(&mut self, format: &EventFormat) {
        if self.handlers.len() <= format.index {
            self.handlers.resize_with(format.index + 1, || None);
            self.known.resize(format.index + 1, false);
        }
        self.known[format.index] = true;
        let Some(kind) = Kind::named(&format.name) else { return };
        self.available.insert(format.name.clone());
        let slots = kind.fields().iter().map(|names| format.any_slot(names)).collect();
        let gfp_kernel = format.value_names("gfp_flags").and_then(|names| names.value("GFP_KERNEL"));
        self.handlers[format.index] = Some(Handler { kind, slots, gfp_kernel });
    }
}

impl Handler {
    fn number(&self, event: &Event<'_>, at: usize) -> Option<u64> {
        event.u64(self.slots.get(at).copied().flatten()?)
    }

    /// A number of pages, objects or microseconds.
    fn unsigned(&self, event: &Event<'_>, at: usize) -> u64 {
        self.number(event, at).unwrap_or(0).min(MOST)
    }

    fn signed(&self, event: &Event<'_>, at: usize, missing: i32) -> i32 {
        self.number(event, at).map_or(missing, |value| value as i32)
    }

    /// Whether the field has a bit, or, in text, the name of one.
    fn has_flag(&self, event: &Event<'_>, at: usize, bit: u64, name: &str) -> bool {
        let Some(slot) = self.slots.get(at).copied().flatten() else { return false };
        match event.u64(slot) {
            Some(value) => value & bit != 0,
            None => event.spelling(slot).is_some_and(|text| {
                text.split(|&byte| byte == b'|').any(|flag| flag.trim_ascii() == name.as_bytes())
            }),
        }
    }
}
