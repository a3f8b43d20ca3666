//! One pass over all struct pages, on every CPU.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pagehaul_kernel::{Kernel, KernelError, PageClass, PageScanner, StructPage};
use pagehaul_machine::{Pfn, PhysAddr};
use pagehaul_physmem::{PhysMemory, View, bits};

use crate::slot::Slot;
use crate::tally::{Counter, Rules, Tally, Visit};

/// Owners and runs of pages that a thread counts before it adds them to the total, which bounds its memory. Most owners have pages in many
/// blocks, so what a block has is not added alone.
const MAX_PART: usize = 1 << 16;

/// Counts all pages with `threads` threads.
pub(crate) fn scan(memory: &dyn PhysMemory, rules: &Rules<'_>, threads: usize) -> Result<Tally, KernelError> {
    let kernel = rules.kernel;
    let blocks = kernel.blocks(PhysAddr::new(memory.ranges().end()).next_pfn(kernel.page_size()));
    let total = Mutex::new(Tally::default());
    let failures = pagehaul_pool::map_numbers(
        "owners",
        threads,
        blocks,
        || (Worker::new(memory, kernel), Part { total: &total, tally: Tally::default() }),
        |(worker, part), block| {
            let failure = worker.count(rules, block, &mut part.tally, None).err();
            if part.tally.len() > MAX_PART {
                part.add();
            }
            failure
        },
    );
    match failures.into_iter().next() {
        Some(error) => Err(error),
        None => Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Passes runs of pages that are counted alike to `each`, from `threads` threads, with what is collected of a block. `done` gets that
/// of each block.
pub(crate) fn visit<P: Default>(
    memory: &dyn PhysMemory,
    rules: &Rules<'_>,
    threads: usize,
    each: impl Fn(&mut P, &mut dyn View, Slot, &Range<Pfn>) + Sync,
    done: impl Fn(P) + Sync,
) -> Result<(), KernelError> {
    let kernel = rules.kernel;
    let blocks = kernel.blocks(PhysAddr::new(memory.ranges().end()).next_pfn(kernel.page_size()));
    let failures = pagehaul_pool::map_numbers(
        "visit",
        threads,
        blocks,
        || (Worker::new(memory, kernel), memory.view()),
        |(worker, view), block| {
            let mut part = P::default();
            let mut pass = |slot, pages: &Range<Pfn>| each(&mut part, view.as_mut(), slot, pages);
            let failure = worker.count(rules, block, &mut Tally::default(), Some(&mut pass)).err();
            done(part);
            failure
        },
    );
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// What a thread has counted that is not in the total yet.
struct Part<'a> {
    total: &'a Mutex<Tally>,
    tally: Tally,
}

impl Part<'_> {
    fn add(&mut self) {
        self.total.lock().unwrap_or_else(PoisonError::into_inner).take(&mut self.tally);
    }
}

impl Drop for Part<'_> {
    /// Adds what was counted last, as the thread ends.
    fn drop(&mut self) {
        self.add();
    }
}

struct Worker<'a> {
    memory: &'a dyn PhysMemory,
    scanner: PageScanner<'a>,
    classes: Vec<PageClass>,
    exists: Vec<u64>,
}

impl<'a> Worker<'a> {
    fn new(memory: &'a dyn PhysMemory, kernel: &'a Kernel) -> Self {
        Self {
            memory,
            scanner: PageScanner::new(kernel, memory.view()),
            classes: vec![PageClass::Absent; kernel.pages_per_block()],
            exists: vec![0; kernel.pages_per_block().div_ceil(64)],
        }
    }

    fn count(
        &mut self,
        rules: &Rules<'_>,
        block: u64,
        tally: &mut Tally,
        mut visit: Option<Visit<'_>>,
    ) -> Result<(), KernelError> {
        let kernel = rules.kernel;
        let mut read = |class, head_at| head(rules, self.memory, class, head_at);
        let is_visited = visit.is_some();
        let mut pass = |slot, pages: &Range<Pfn>| {
            if let Some(visit) = &mut visit {
                visit(slot, pages);
            }
        };
        let pass: Option<Visit<'_>> = is_visited.then_some(&mut pass);
        let mut counter = Counter::new(rules, kernel.block_pfns(block).start, &mut read, pass, tally);
        let (mut visited, mut undecided) = (0, 0);
        let report = self.scanner.scan_with(block, &mut self.classes, |scanned| {
            let count = |wanted| scanned.classes().iter().filter(|class| **class == wanted).count() as u64;
            visited += scanned.classes().len() as u64 - count(PageClass::Absent);
            undecided += count(PageClass::Undecided);
            counter.count(&scanned);
        })?;
        let present = report.pages.iter().sum::<u64>() - report.pages[PageClass::Absent as usize];
        let mut unread = 0;
        if present > visited {
            // Without struct pages, the holes of the machine look like its memory.
            let first = kernel.block_pfns(block).start;
            self.memory.ranges().mark_pages(first, kernel.page_size(), false, &mut self.exists);
            let is_undecided = |index: &usize| self.classes[*index] == PageClass::Undecided;
            unread = (bits::ones(&self.exists).filter(is_undecided).count() as u64).saturating_sub(undecided);
        }
        counter.finish(unread);
        if let Some(found) = report.inconsistency {
            tally.note((found.pfn, found.what));
        }
        Ok(())
    }
}

/// Returns what a compound page of a class is counted as, whose head's struct page is at `head_at`. Only pages of 1 GiB span
/// blocks.
fn head(rules: &Rules<'_>, memory: &dyn PhysMemory, class: PageClass, head_at: u64) -> Option<Slot> {
    let kernel = rules.kernel;
    let mut bytes = vec![0; kernel.struct_page_size()];
    kernel.space().translator().read(memory.view().as_mut(), head_at, &mut bytes).ok()?;
    Some(rules.own(class, &StructPage::of(kernel, head_at, &bytes)))
}
