use crate::Durations;

/// Adds to a sum. Those of damaged traces, whose times may be any, stay at the most there is.
pub(crate) fn grow(sum: &mut u64, by: u64) {
    *sum = sum.saturating_add(by);
}

/// Pages looked at and reclaimed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pages {
    /// Looked at, as `nr_scanned` has it.
    pub scanned: u64,
    /// Taken off the list: what MGLRU kernels count as scanned in `/proc/vmstat`.
    pub taken: u64,
    /// Freed.
    pub reclaimed: u64,
}

impl Pages {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        grow(&mut self.scanned, other.scanned);
        grow(&mut self.taken, other.taken);
        grow(&mut self.reclaimed, other.reclaimed);
    }

    /// Pages scanned as `/proc/vmstat` counts them.
    pub fn counted(&self, mglru: bool) -> u64 {
        if mglru { self.taken } else { self.scanned }
    }
}

/// Stretches of reclaim.
#[derive(Debug, Clone, Default)]
pub struct Stretches {
    /// Begun.
    pub begun: u64,
    /// Nanoseconds in them, with unfinished ones up to the end.
    pub ns: u64,
    /// Those that ended, without lost events in between.
    pub durations: Durations,
    /// Pages their ends report as reclaimed.
    pub reported: u64,
}

/// What one class of reclaim came to.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Stretches; none for kswapd.
    pub stretches: Stretches,
    /// Anonymous pages (and those of shared memory), then file pages.
    pub pages: [Pages; 2],
    /// Pages left because allocations of their zone do not help.
    pub skipped: u64,
    /// Found dirty.
    pub dirty: u64,
    /// Under write-back.
    pub writeback: u64,
    /// Under write-back for the second time.
    pub immediate: u64,
    /// Found in use, and kept as such.
    pub activated: u64,
    /// Taken off the active lists, and how many became inactive.
    pub active_taken: u64,
    /// See `active_taken`.
    pub deactivated: u64,
    /// Written by reclaim: anonymous and file, asynchronously and not.
    pub writes: [[u64; 2]; 2],
    /// Pages reclaimed because they were named.
    pub named: Pages,
}

impl Tally {
    /// Anonymous and file pages together.
    pub fn all(&self) -> Pages {
        let mut all = self.pages[0];
        all.add(self.pages[1]);
        all
    }

    /// Pages written in any way.
    pub fn written(&self) -> u64 {
        self.writes.iter().flatten().sum()
    }
}
