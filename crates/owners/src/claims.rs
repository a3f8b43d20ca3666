//! Pages that are found by following the kernel's structures, since their struct pages do not name an owner.

use std::collections::HashMap;
use std::ops::Range;

use pagehaul_machine::{PageCount, Pfn};

/// Runs of claimed pages: 96 MiB. Their owners' pages count as without a known owner beyond it.
const MAX_RUNS: usize = 4 << 20;

/// Number of a claimant in [`Claims::claimants`].
pub(crate) type ClaimantId = u32;

/// Who claims pages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Claimant {
    /// Free, on a list of a CPU.
    PerCpuList,
    /// An area of vmalloc, by the function that allocated it.
    Vmalloc { caller: u64 },
    /// An area of vmalloc that a BPF map has.
    BpfMap { map: String },
    /// Stacks of tasks, and stacks that are kept for new tasks.
    KernelStack,
    /// The page directory of a process, or a table of the kernel's own page tables.
    PageTable,
    /// Buffers of pipes.
    Pipe,
    /// A ring buffer of tracing, by instance, or of perf events, by process.
    RingBuffer { owner: String },
    /// Rings of io_uring.
    IoUring { process: String },
    /// Page tables that KVM makes for a guest, by the `struct mm_struct` of its process.
    KvmTables { mm: u64 },
    /// Packets in the queues of sockets.
    Sockets { process: String },
    /// What drivers have of an area of CMA.
    Cma { area: String },
}

/// Claimed pages, each with one claimant.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(crate) claimants: Vec<Claimant>,
    numbers: HashMap<Claimant, ClaimantId>,
    runs: Vec<(Range<Pfn>, ClaimantId)>,
    /// Pages that did not fit.
    pub(crate) cut: PageCount,
    /// Pages that two walks found. The first has them.
    pub(crate) twice: PageCount,
}

impl Claims {
    /// Returns the number of a claimant.
    pub(crate) fn claimant(&mut self, claimant: Claimant) -> ClaimantId {
        *self.numbers.entry(claimant).or_insert_with_key(|claimant| {
            self.claimants.push(claimant.clone());
            (self.claimants.len() - 1) as ClaimantId
        })
    }

    /// Adds pages.
    pub(crate) fn add(&mut self, pages: Range<Pfn>, claimant: ClaimantId) {
        let full = self.runs.len() >= MAX_RUNS;
        match self.runs.last_mut() {
            Some((last, owner)) if *owner == claimant && last.end == pages.start => last.end = pages.end,
            _ if full => self.cut += pages.end.since(pages.start),
            _ => self.runs.push((pages, claimant)),
        }
    }

    /// Returns the number of runs.
    pub(crate) fn count(&self) -> usize {
        self.runs.len()
    }

    /// Sorts the runs and makes them disjoint: of pages that several walks found, the walk that started earlier has them.
    pub(crate) fn finish(&mut self) {
        self.runs.sort_by_key(|(pages, claimant)| (pages.start, *claimant));
        let (mut end, mut last) = (Pfn::default(), None);
        let mut twice = PageCount::ZERO;
        self.runs.retain_mut(|(pages, claimant)| {
            let start = pages.start.max(end).min(pages.end);
            // A page table can be reached from two entries.
            if last != Some(*claimant) {
                twice += start.since(pages.start);
            }
            pages.start = start;
            if pages.end > end {
                (end, last) = (pages.end, Some(*claimant));
            }
            pages.start < pages.end
        });
        self.twice += twice;
        let mut merged: Vec<(Range<Pfn>, ClaimantId)> = Vec::new();
        for (pages, claimant) in self.runs.drain(..) {
            match merged.last_mut() {
                Some((last, owner)) if *owner == claimant && last.end == pages.start => last.end = pages.end,
                _ => merged.push((pages, claimant)),
            }
        }
        self.runs = merged;
    }

    /// Returns a cursor that looks up PFNs in ascending order, from `pfn` on.
    pub(crate) fn cursor(&self, pfn: Pfn) -> Cursor<'_> {
        let at = self.runs.partition_point(|(pages, _)| pages.end <= pfn);
        Cursor { left: self.runs.get(at..).unwrap_or_default() }
    }
}

/// Looks claims up in the order of PFNs.
pub(crate) struct Cursor<'a> {
    left: &'a [(Range<Pfn>, ClaimantId)],
}

impl Cursor<'_> {
    /// Returns who claims a page, which must not come before that of the last call.
    #[inline]
    pub(crate) fn at(&mut self, pfn: Pfn) -> Option<ClaimantId> {
        while let Some(((pages, claimant), rest)) = self.left.split_first() {
            if pfn < pages.start {
                return None;
            }
            if pfn < pages.end {
                return Some(*claimant);
            }
            self.left = rest;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pages: Range<u64>) -> Range<Pfn> {
        Pfn::new(pages.start)..Pfn::new(pages.end)
    }

    #[test]
    fn each_page_has_one_claimant() {
        let mut claims = Claims::default();
        let list = claims.claimant(Claimant::PerCpuList);
        let area = claims.claimant(Claimant::Vmalloc { caller: 1 });
        // The last is there twice, but of one claimant.
        for pages in [10..12, 12..14, 30..31, 30..31] {
            claims.add(run(pages), area);
        }
        claims.add(run(13..16), list);
        claims.finish();
        let mut cursor = claims.cursor(Pfn::new(0));
        let found: Vec<Option<u32>> = (9..17).map(|pfn| cursor.at(Pfn::new(pfn))).collect();
        let [no, l, a] = [None, Some(list), Some(area)];
        assert_eq!(found, [no, a, a, a, a, l, l, no]);
        assert_eq!(
            (cursor.at(Pfn::new(30)), cursor.at(Pfn::new(31)), claims.twice),
            (a, no, PageCount::new(1))
        );
        assert_eq!(claims.cursor(Pfn::new(30)).at(Pfn::new(30)), a);
    }
}
