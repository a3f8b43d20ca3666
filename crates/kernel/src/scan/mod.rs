//! Classifying pages, one block (memory section) at a time.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod block;
mod groups;
mod inconsistency;
mod kinds;
mod matcher;
#[cfg(target_arch = "aarch64")]
mod neon;
mod resolve;
#[cfg(test)]
mod same;
mod scanned;

use std::ops::Range;

use pagehaul_machine::Pfn;
use pagehaul_physmem::View;

use self::block::{Block, Stop};
pub use self::inconsistency::Inconsistency;
use self::matcher::PageMatcher;
pub use self::scanned::{Scanned, StructPage};
use crate::class::PageClass;
use crate::error::{KernelError, TranslateError};
use crate::kernel::Kernel;
use crate::walker::Walker;

/// The contents of one block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockReport {
    /// Pages per class, indexed by `class as usize`; they add up to the pages classified.
    pub pages: [u64; PageClass::COUNT],
    /// Pages that look like those of a process, a file or a free block and contradict their flags, their neighbours or the kernel
    /// image; tails of such pages, too. They are [`PageClass::Undecided`].
    pub contradictions: u64,
    /// The first inconsistency, if any. Its pages are kept.
    pub inconsistency: Option<Inconsistency>,
}

/// Classifies the pages of one block after another, for one thread. Blocks may come in any order, and the result is
/// the same in every order.
pub struct PageScanner<'a> {
    kernel: &'a Kernel,
    view: Box<dyn View + 'a>,
    walker: Walker<'a>,
    matcher: Option<PageMatcher>,
    /// A struct page that lies across two windows.
    straddling: Vec<u8>,
    /// The struct page of a page whose compound page has to be found.
    pending: Vec<u8>,
    /// Blocks whose struct pages were announced last.
    announced: Range<u64>,
}

/// Blocks whose struct pages are announced together: 8 MiB in pages of 4 KiB.
const ANNOUNCED: u64 = 4;

impl<'a> PageScanner<'a> {
    /// Returns a scanner that reads through `view`.
    pub fn new(kernel: &'a Kernel, view: Box<dyn View + 'a>) -> Self {
        Self {
            kernel,
            view,
            walker: Walker::new(kernel.space().translator()),
            matcher: PageMatcher::new(kernel.rules()),
            straddling: vec![0; kernel.rules().layout.size],
            pending: Vec::new(),
            announced: 0..0,
        }
    }

    /// Classifies the pages of block number `block`, whose first PFN is `block * pages_per_block`. `out` receives
    /// one class per page. If it is shorter than a block, it receives the beginning; if it is longer, the rest is
    /// [`PageClass::Absent`].
    ///
    /// Struct pages that cannot be read make [`PageClass::Undecided`] pages and an [`Inconsistency`], not an error; an error
    /// means that no machine can have such a block.
    pub fn scan(&mut self, block: u64, out: &mut [PageClass]) -> Result<BlockReport, KernelError> {
        self.scan_with(block, out, |_| {})
    }

    /// As [`scan`](Self::scan), and passes the classes of the pages to `visit` with their struct pages, in order and once each,
    /// from the window that they were classified by. Pages without readable struct pages are not passed. Where a file ends under
    /// a mapping, struct pages read as zeros, and the report names the inconsistency.
    pub fn scan_with(
        &mut self,
        block: u64,
        out: &mut [PageClass],
        visit: impl FnMut(Scanned<'_>),
    ) -> Result<BlockReport, KernelError> {
        let pages = self.kernel.pages_per_block() as u64;
        let first_pfn = block.checked_mul(pages).filter(|pfn| *pfn >> 52 == 0);
        let first_pfn = first_pfn.ok_or(KernelError::NoSuchBlock { block })?;
        let (classes, beyond) = out.split_at_mut(out.len().min(pages as usize));
        beyond.fill(PageClass::Absent);
        let (mut inconsistency, mut contradictions) = (None, 0);
        if !self.announced.contains(&block) {
            self.announce(block..block.saturating_add(ANNOUNCED));
        }
        match self.map_of(block) {
            Ok(Some(map)) => {
                (inconsistency, contradictions) = self.scan_section(first_pfn, map, classes, visit)
            }
            Ok(None) => classes.fill(PageClass::Absent),
            Err(error) => {
                classes.fill(PageClass::Undecided);
                inconsistency = Some(Inconsistency {
                    pfn: Pfn::new(first_pfn),
                    what: format!("its memory section: {error}"),
                });
            }
        }
        Ok(BlockReport { pages: count(out), contradictions, inconsistency })
    }

    /// Passes the struct pages of block number `block` to `visit`, one window at a time, without classifying them: the least
    /// work of any scan. Skips memory that is not mapped or unreadable.
    pub fn read(&mut self, block: u64, visit: &mut dyn FnMut(&[u8])) {
        let Ok(Some(mut at)) = self.map_of(block) else { return };
        let bytes = self.kernel.pages_per_block() * self.kernel.rules().layout.size;
        let end = at.saturating_add(bytes as u64);
        let translator = self.kernel.space().translator();
        while at < end {
            let (skipped, read) = match self.walker.extent(self.view.as_mut(), at, end - at) {
                Ok(extent) => {
                    let len = extent.len.min(end - at) as usize;
                    (0xfff, self.view.window(extent.paddr, len).ok().filter(|window| !window.is_empty()))
                }
                Err(TranslateError::NotMapped { level, .. }) => {
                    ((1 << translator.tables().shift(level)) - 1, None)
                }
                Err(_) => (0xfff, None),
            };
            let next = match read {
                Some(window) => {
                    visit(window);
                    at.checked_add(window.len() as u64)
                }
                None => (at | skipped).checked_add(1),
            };
            let Some(next) = next else { return };
            at = next;
        }
    }

    /// Announces the struct pages of blocks, if the memory is on a server.
    pub fn announce(&mut self, blocks: Range<u64>) {
        if !self.view.is_remote() {
            return;
        }
        let bytes = (self.kernel.pages_per_block() * self.kernel.rules().layout.size) as u64;
        let mut ranges = Vec::new();
        for block in blocks.clone() {
            let Ok(Some(mut at)) = self.map_of(block) else { continue };
            let end = at.saturating_add(bytes);
            while at < end {
                // What is not mapped is found again when it is read.
                let Ok(extent) = self.walker.extent(self.view.as_mut(), at, end - at) else { break };
                let len = extent.len.min(end - at);
                ranges.push(extent.paddr..extent.paddr.saturating_add(len));
                at = at.saturating_add(len.max(1));
            }
        }
        self.view.will_need(&ranges);
        self.announced = blocks;
    }

    /// Virtual address of the first struct page of a section.
    fn map_of(&mut self, section: u64) -> Result<Option<u64>, TranslateError> {
        let (kernel, view) = (self.kernel, self.view.as_mut());
        kernel.sections().map(kernel.space().translator(), view, section, kernel.rules().layout.size as u64)
    }

    fn scan_section(
        &mut self,
        first_pfn: u64,
        map: u64,
        out: &mut [PageClass],
        mut visit: impl FnMut(Scanned<'_>),
    ) -> (Option<Inconsistency>, u64) {
        let kernel = self.kernel;
        let size = kernel.rules().layout.size;
        let mut block =
            Block::new(kernel.rules(), self.matcher.as_ref(), map, first_pfn, out).keep_image(kernel.text());
        while !block.done() {
            let at = block.struct_page();
            let extent = match self.walker.extent(self.view.as_mut(), at, block.bytes_left()) {
                Ok(extent) => extent,
                Err(TranslateError::NotMapped { level, .. }) => {
                    // Partly hot-added memory has some struct pages only (ba72b4c8cf60, 5.3: subsections).
                    let region = 1u64 << kernel.space().translator().tables().shift(level);
                    block.fill_until(at | (region - 1), PageClass::Absent);
                    continue;
                }
                Err(error) => {
                    block.give_up(at | 0xfff, format!("its struct page: {error}"));
                    continue;
                }
            };
            let len = extent.len.min(block.bytes_left()) as usize;
            let window = match self.view.window(extent.paddr, len) {
                Ok(window) if window.len() >= size => window,
                Ok(_) => match kernel.space().translator().read(self.view.as_mut(), at, &mut self.straddling)
                {
                    Ok(()) => &self.straddling,
                    Err(error) => {
                        block.give_up(at, format!("its struct page: {error}"));
                        continue;
                    }
                },
                Err(error) => {
                    block.give_up(at | 0xfff, format!("its struct page: {error}"));
                    continue;
                }
            };
            let first = block.next;
            let stop = block.advance(window);
            block.correct_image(first);
            visit(Scanned::new(kernel, block.scanned(first), window));
            if matches!(stop, Stop::Compound { .. }) {
                let page = window.get((block.next - first) * size..).and_then(|rest| rest.get(..size));
                self.pending.clear();
                self.pending.extend_from_slice(page.unwrap_or_default());
            }
            if self.view.take_fault() {
                block.distrust(at);
                continue;
            }
            if let Stop::Compound { head_at, flags } = stop {
                let found = resolve::compound(kernel, self.view.as_mut(), &block, head_at);
                let page = block.next;
                block.resolved(head_at, flags, found);
                block.correct_image(page);
                visit(Scanned::new(kernel, block.scanned(page), &self.pending));
            }
        }
        block.inconsistencies()
    }
}

/// Returns the number of pages of each class.
fn count(classes: &[PageClass]) -> [u64; PageClass::COUNT] {
    // One pass per class over data in the L1 cache: comparing 32 at once is faster than counting one by one.
    const PASS: usize = 4096;
    let mut pages = [0; PageClass::COUNT];
    for pass in classes.chunks(PASS) {
        for (class, total) in PageClass::ALL.into_iter().zip(&mut pages) {
            // Bytes add up faster than words, and 255 of them cannot overflow one.
            let runs =
                pass.chunks(255).map(|run| run.iter().map(|&found| u8::from(found == class)).sum::<u8>());
            *total += runs.map(u64::from).sum::<u64>();
        }
    }
    pages
}
