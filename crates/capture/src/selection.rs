//! Which pages of a block are kept.

use std::ops::Range;

use pagehaul_kernel::{DumpLevel, Inconsistency, Kernel, PageClass, PageScanner};
use pagehaul_machine::{PageSize, Pfn};
use pagehaul_physmem::{PhysMemory, bits};

use crate::error::CaptureError;
use crate::owners::{Judge, OwnerFilter, Verdicts};
use crate::priority::{OrderedPages, Priority, overlaps};

/// Pages per block without a kernel: those of a memory section on x86_64, as many as fit one block of bitmap.
const DEFAULT_BLOCK: usize = 1 << 15;

/// Pages per class. Summed per block, never shared in a per-page loop.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) kept: [u64; PageClass::COUNT],
    pub(crate) excluded: [u64; PageClass::COUNT],
    /// Excluded pages on per-CPU lists, among those of [`PageClass::Free`].
    pub(crate) per_cpu_free: u64,
    /// Excluded because their owner is not one whose pages are kept; not among `excluded`.
    pub(crate) other_owners: u64,
    /// Excluded because of the file system of their file; not among the others.
    pub(crate) dropped: u64,
    /// Kept pages of files whose file system is not known, while some are left out.
    pub(crate) unknown_files: u64,
    /// Excluded by the dump that is the source.
    pub(crate) missing: u64,
    /// Those among them of owners whose pages are kept, if some are left out by their owner.
    pub(crate) missing_of_owners: u64,
    /// Kept pages by [`Priority`], if pages are ordered by it.
    pub(crate) by_priority: [u64; Priority::COUNT],
    /// Pages whose struct pages contradict each other or the kernel image: they are kept.
    pub(crate) contradictions: u64,
    pub(crate) inconsistency: Option<Inconsistency>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        for class in 0..PageClass::COUNT {
            self.kept[class] += other.kept[class];
            self.excluded[class] += other.excluded[class];
        }
        self.per_cpu_free += other.per_cpu_free;
        self.other_owners += other.other_owners;
        self.dropped += other.dropped;
        self.unknown_files += other.unknown_files;
        self.missing += other.missing;
        self.missing_of_owners += other.missing_of_owners;
        self.contradictions += other.contradictions;
        for (sum, pages) in self.by_priority.iter_mut().zip(other.by_priority) {
            *sum += pages;
        }
        let earlier = |a: &Inconsistency, b: &Inconsistency| a.pfn <= b.pfn;
        if let Some(inconsistency) = &other.inconsistency
            && !self.inconsistency.as_ref().is_some_and(|known| earlier(known, inconsistency))
        {
            self.inconsistency = Some(inconsistency.clone());
        }
    }

    pub(crate) fn pages_kept(&self) -> u64 {
        self.kept.iter().sum()
    }

    pub(crate) fn pages_excluded(&self) -> u64 {
        self.excluded.iter().sum::<u64>() + self.other_owners + self.dropped
    }

    /// Excludes pages of `kept` by their owners, which the dump level keeps.
    fn exclude_by_owner(&mut self, classes: &[PageClass], kept: &mut [u64], verdicts: &Verdicts) {
        let words = verdicts.others.iter().zip(&verdicts.dropped).zip(&verdicts.unknown);
        for ((word, ((others, dropped), unknown)), classes) in
            kept.iter_mut().zip(words).zip(classes.chunks(64))
        {
            let others = *word & others;
            let dropped = *word & dropped & !others;
            let excluded = others | dropped;
            for page in bits::ones(&[excluded]) {
                if let Some(class) = classes.get(page) {
                    self.kept[*class as usize] -= 1;
                }
            }
            self.other_owners += u64::from(others.count_ones());
            self.dropped += u64::from(dropped.count_ones());
            *word &= !excluded;
            self.unknown_files += u64::from((*word & unknown).count_ones());
        }
    }
}

/// The selected pages of one block: bit *n* is the block's page *n*.
pub(crate) struct BlockSelection {
    /// The pages that are kept.
    pub(crate) kept: Vec<u64>,
    /// The same by [`Priority`]; empty if pages are not ordered by it.
    pub(crate) by_priority: Vec<Vec<u64>>,
}

impl BlockSelection {
    /// Allocates a selection of `pages` pages, without [`Priority`].
    pub(crate) fn new(pages: usize) -> Self {
        Self { kept: vec![0; pages / 64], by_priority: Vec::new() }
    }
}

/// Which pages are kept, for all threads.
pub(crate) struct Selection<'a> {
    pub(crate) memory: &'a dyn PhysMemory,
    /// The size of the machine's pages, which PFNs count.
    pub(crate) page_size: PageSize,
    /// `None` if struct pages are unknown, and every page is kept.
    pub(crate) kernel: Option<&'a Kernel>,
    pub(crate) level: DumpLevel,
    /// Which pages are excluded by their owner; has a kernel.
    pub(crate) owners: Option<&'a OwnerFilter>,
    /// Shorter runs of excluded pages are kept. 1, except for formats in which every hole has a cost.
    pub(crate) shortest_hole: usize,
    /// Pages whose priority is known beforehand; `None` if pages are not ordered by priority.
    pub(crate) ordered: Option<&'a OrderedPages>,
    /// Free pages on per-CPU lists: runs of PFNs, ascending and apart.
    pub(crate) free: &'a [Range<u64>],
}

impl<'a> Selection<'a> {
    /// Allocates a selection of one block.
    pub(crate) fn buffer(&self) -> BlockSelection {
        let block = BlockSelection::new(self.pages_per_block());
        let sets = if self.ordered.is_some() { Priority::COUNT } else { 0 };
        BlockSelection { by_priority: vec![block.kept.clone(); sets], ..block }
    }

    pub(crate) fn pages_per_block(&self) -> usize {
        self.kernel.map_or(DEFAULT_BLOCK, Kernel::pages_per_block)
    }

    pub(crate) fn max_pfn(&self) -> u64 {
        self.memory.ranges().end_pfn(self.page_size).number()
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.max_pfn().div_ceil(self.pages_per_block() as u64)
    }

    /// Sets in `bits` every page from `first` that exists.
    pub(crate) fn mark_existing(&self, first: u64, bits: &mut [u64]) {
        self.memory.ranges().mark_pages(Pfn::new(first), self.page_size, false, bits);
    }

    pub(crate) fn selector(&self) -> Selector<'a> {
        let pages = self.pages_per_block();
        Selector {
            memory: self.memory,
            page_size: self.page_size,
            judge: self
                .owners
                .zip(self.kernel)
                .map(|(owners, kernel)| Judge::new(owners, kernel, self.memory)),
            scanner: self.kernel.map(|kernel| PageScanner::new(kernel, self.memory.view())),
            excludes: self.level.exclusion_table(),
            shortest_hole: self.shortest_hole,
            ordered: self.ordered,
            free: self.free,
            classes: vec![PageClass::Absent; pages],
            exists: vec![0; pages / 64],
            parts: Vec::new(),
        }
    }
}

/// The state of one scanning thread.
pub(crate) struct Selector<'a> {
    memory: &'a dyn PhysMemory,
    page_size: PageSize,
    scanner: Option<PageScanner<'a>>,
    judge: Option<Judge<'a>>,
    excludes: [bool; PageClass::COUNT],
    shortest_hole: usize,
    ordered: Option<&'a OrderedPages>,
    free: &'a [Range<u64>],
    classes: Vec<PageClass>,
    exists: Vec<u64>,
    /// For [`PhysMemory::mark_stored_pages`].
    parts: Vec<u64>,
}

impl Selector<'_> {
    /// Selects the pages of block `index` that are kept.
    pub(crate) fn select(&mut self, index: u64, block: &mut BlockSelection) -> Result<Tally, CaptureError> {
        let BlockSelection { kept, by_priority } = block;
        let mut tally = Tally::default();
        let first = index * self.classes.len() as u64;
        self.memory.ranges().mark_pages(Pfn::new(first), self.page_size, false, &mut self.exists);
        if self.exists.iter().all(|&word| word == 0) {
            kept.fill(0);
            by_priority.iter_mut().for_each(|bits| bits.fill(0));
            return Ok(tally);
        }
        // `kept` starts with all stored pages; excluded ones are cleared.
        self.memory.mark_stored_pages(self.page_size, Pfn::new(first), kept, &mut self.parts)?;
        tally.missing = bits::count(&self.exists) - bits::count(kept);
        match &mut self.scanner {
            Some(scanner) => {
                let report = match &mut self.judge {
                    None => scanner.scan(index, &mut self.classes)?,
                    Some(judge) => {
                        judge.begin(Pfn::new(first));
                        scanner.scan_with(index, &mut self.classes, |scanned| judge.pages(&scanned))?
                    }
                };
                (tally.contradictions, tally.inconsistency) = (report.contradictions, report.inconsistency);
            }
            // The kernel is unknown, or every page is kept.
            None => self.classes.fill(PageClass::Undecided),
        }
        let on_lists = self.mark_free(first, kept);
        if let Some(judge) = &mut self.judge {
            judge.finish(&mut self.classes);
            let absent = self.exists.iter().zip(kept.iter()).map(|(exists, stored)| exists & !stored);
            tally.missing_of_owners = judge.count_kept(&self.classes, &self.excludes, absent);
        }
        for (classes, word) in self.classes.chunks_exact(64).zip(kept.iter_mut()) {
            *word = select_word(classes, *word, &self.excludes, &mut tally);
        }
        if let Some(judge) = &self.judge {
            tally.exclude_by_owner(&self.classes, kept, judge.verdicts());
        }
        if self.shortest_hole > 1 {
            self.fill_short_holes(first, kept, &mut tally)?;
        }
        tally.per_cpu_free =
            on_lists.iter().filter(|page| kept[**page / 64] >> (**page % 64) & 1 == 0).count() as u64;
        if let Some(ordered) = self.ordered {
            Priority::split(first, &self.classes, kept, ordered, by_priority);
            for (pages, bits) in tally.by_priority.iter_mut().zip(by_priority) {
                *pages = bits::count(bits);
            }
        }
        Ok(tally)
    }

    /// Makes the pages on per-CPU lists free ones, if they are in `stored` and the scan gave them no other use. Returns them,
    /// relative to `first`.
    fn mark_free(&mut self, first: u64, stored: &[u64]) -> Vec<usize> {
        let pages = first..first + self.classes.len() as u64;
        let found = overlaps(self.free, &pages).flatten().filter(|page| {
            self.classes[*page] == PageClass::Kernel && stored[page / 64] >> (page % 64) & 1 == 1
        });
        let found: Vec<usize> = found.collect();
        for page in &found {
            self.classes[*page] = PageClass::Free;
        }
        found
    }

    /// Keeps runs of excluded pages that are too short for a hole, except pages that must not be read or are excluded by their
    /// owner.
    fn fill_short_holes(
        &mut self,
        first: u64,
        kept: &mut [u64],
        tally: &mut Tally,
    ) -> Result<(), CaptureError> {
        let mut droppable = vec![0; kept.len()];
        self.memory.mark_stored_pages(self.page_size, Pfn::new(first), &mut droppable, &mut self.parts)?;
        for (index, word) in droppable.iter_mut().enumerate() {
            *word &= !kept[index];
        }
        if let Some(judge) = &self.judge {
            let verdicts = judge.verdicts();
            for ((word, others), dropped) in droppable.iter_mut().zip(&verdicts.others).zip(&verdicts.dropped)
            {
                *word &= !(others | dropped);
            }
        }
        for (page, class) in self.classes.iter().enumerate() {
            if DumpLevel::NONE.excludes(*class) {
                bits::clear_range(&mut droppable, page, page + 1);
            }
        }
        let last = self.classes.len();
        for run in bits::runs(&droppable) {
            // A run at the edge of the block may continue in the next.
            if run.len() >= self.shortest_hole || run.start == 0 || run.end == last {
                continue;
            }
            bits::set_range(kept, run.start, run.end);
            for class in &self.classes[run] {
                tally.kept[*class as usize] += 1;
                tally.excluded[*class as usize] -= 1;
            }
        }
        Ok(())
    }
}

/// Returns which of 64 pages are kept, of those in `stored`.
fn select_word(
    classes: &[PageClass],
    stored: u64,
    excludes: &[bool; PageClass::COUNT],
    tally: &mut Tally,
) -> u64 {
    if stored == 0 {
        return 0;
    }
    let first = classes[0];
    if stored == u64::MAX && classes.iter().fold(true, |same, &class| same & (class == first)) {
        let excluded_here = excludes[first as usize];
        let counts = if excluded_here { &mut tally.excluded } else { &mut tally.kept };
        counts[first as usize] += 64;
        return if excluded_here { 0 } else { u64::MAX };
    }
    let mut kept = 0;
    for (bit, &class) in classes.iter().enumerate() {
        let there = stored >> bit & 1;
        let excluded_here = u64::from(excludes[class as usize]);
        tally.kept[class as usize] += there & !excluded_here;
        tally.excluded[class as usize] += there & excluded_here;
        kept |= (there & !excluded_here) << bit;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_pages_and_counts_agree() {
        let excludes = DumpLevel::ALL.exclusion_table();
        let mut classes = [PageClass::Kernel; 64];
        classes[3] = PageClass::Free;
        classes[63] = PageClass::HwPoison;
        let mut tally = Tally::default();
        let kept = select_word(&classes, !(1 << 5), &excludes, &mut tally);
        assert_eq!(kept, !(1 << 3 | 1 << 5 | 1 << 63));
        assert_eq!(tally.pages_kept(), 61);
        assert_eq!(tally.excluded[PageClass::Free as usize], 1);
        assert_eq!(tally.excluded[PageClass::HwPoison as usize], 1);
    }

    #[test]
    fn uniform_pages_take_the_short_way_to_the_same_result() {
        let excludes = DumpLevel::ALL.exclusion_table();
        let mut tally = Tally::default();
        assert_eq!(select_word(&[PageClass::Slab; 64], u64::MAX, &excludes, &mut tally), u64::MAX);
        assert_eq!(select_word(&[PageClass::Anon; 64], u64::MAX, &excludes, &mut tally), 0);
        assert_eq!(tally.kept[PageClass::Slab as usize], 64);
        assert_eq!(tally.excluded[PageClass::Anon as usize], 64);
    }
}
