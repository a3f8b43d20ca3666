//! Kept pages, cut into batches.

use std::ops::Range;

use pagehaul_machine::{PageSize, Pfn};
use pagehaul_output::StoredBitmap;
use pagehaul_physmem::bits;

use crate::error::CaptureError;
use crate::priority::Priority;
use crate::selection::{BlockSelection, Selection, Selector};

/// Bytes of memory in a batch. Compressing it takes a millisecond or two, far more than handing it over, and a few batches per
/// thread stay within the bound on memory.
const BATCH_BYTES: usize = 1 << 20;

/// Returns how many pages a batch has.
pub(crate) fn batch_pages(page_size: PageSize) -> usize {
    BATCH_BYTES >> page_size.shift()
}

/// Where the set of kept pages comes from after the scan.
pub(crate) enum KeptPages<'a> {
    /// From bitmaps in files, one after the other.
    Passes(Vec<Pass>),
    /// From classifying blocks again: a stream cannot be read back.
    Reclassified(Box<Selector<'a>>),
    /// The same, of these PFNs.
    Part(Box<Selector<'a>>, Range<u64>),
}

/// Pages that are written before those of the next pass.
#[derive(Clone)]
pub(crate) struct Pass {
    /// Their priority, if pages are ordered by it.
    pub(crate) priority: Option<Priority>,
    pub(crate) bitmap: StoredBitmap,
}

impl KeptPages<'_> {
    /// The priority of each pass.
    pub(crate) fn priorities(&self) -> Vec<Option<Priority>> {
        match self {
            Self::Reclassified(_) | Self::Part(..) => Vec::new(),
            Self::Passes(passes) => passes.iter().map(|pass| pass.priority).collect(),
        }
    }

    fn passes(&self) -> usize {
        match self {
            Self::Reclassified(_) | Self::Part(..) => 1,
            Self::Passes(passes) => passes.len(),
        }
    }

    /// The blocks that have them, of `blocks` in all.
    fn blocks(&self, blocks: u64, pages_per_block: u64) -> Range<u64> {
        match self {
            Self::Reclassified(_) | Self::Passes(_) => 0..blocks,
            Self::Part(_, pfns) => {
                pfns.start / pages_per_block..pfns.end.div_ceil(pages_per_block).min(blocks)
            }
        }
    }

    fn load(
        &mut self,
        pass: usize,
        block: u64,
        block_selection: &mut BlockSelection,
    ) -> Result<(), CaptureError> {
        match self {
            Self::Reclassified(selector) => selector.select(block, block_selection).map(drop),
            Self::Part(selector, pfns) => {
                selector.select(block, block_selection)?;
                let kept = &mut block_selection.kept;
                let pages = kept.len() * 64;
                let first = block * pages as u64;
                let within = |pfn: u64| pfn.saturating_sub(first).min(pages as u64) as usize;
                bits::clear_range(kept, 0, within(pfns.start));
                bits::clear_range(kept, within(pfns.end), pages);
                Ok(())
            }
            Self::Passes(passes) => match passes.get(pass) {
                Some(pass) => {
                    let first = block * block_selection.kept.len() as u64 * 64;
                    let loaded = pass.bitmap.load(first, &mut block_selection.kept);
                    loaded.map_err(|source| CaptureError::read_back(&pass.bitmap, source))
                }
                None => {
                    block_selection.kept.fill(0);
                    Ok(())
                }
            },
        }
    }
}

/// Hands out the kept pages pass by pass, ascending in each, [`batch_pages`] at a time. The contents of a batch depend on
/// the set of pages only, not on threads.
pub(crate) struct Batcher<'a> {
    pages: KeptPages<'a>,
    blocks: Range<u64>,
    pages_per_block: usize,
    batch_pages: usize,
    pass: usize,
    /// The next block.
    block: u64,
    /// Pages of the previous block that are not handed out yet.
    rest: BlockSelection,
    word: usize,
}

impl<'a> Batcher<'a> {
    pub(crate) fn new(pages: KeptPages<'a>, selection: &Selection<'_>) -> Self {
        let pages_per_block = selection.pages_per_block();
        let blocks = pages.blocks(selection.blocks(), pages_per_block as u64);
        let batch_pages = batch_pages(selection.page_size);
        let rest = BlockSelection::new(pages_per_block);
        let word = rest.kept.len();
        let block = blocks.start;
        Self { pages, blocks, pages_per_block, batch_pages, pass: 0, block, rest, word }
    }

    /// Puts the PFNs of the next batch into `pfns`. Returns whether there was one.
    pub(crate) fn next(&mut self, pfns: &mut Vec<Pfn>) -> Result<bool, CaptureError> {
        pfns.clear();
        while pfns.len() < self.batch_pages {
            if self.word == self.rest.kept.len() {
                if self.block == self.blocks.end && self.pass + 1 < self.pages.passes() {
                    self.pass += 1;
                    self.block = self.blocks.start;
                }
                if self.block == self.blocks.end {
                    break;
                }
                self.pages.load(self.pass, self.block, &mut self.rest)?;
                self.block += 1;
                self.word = 0;
            }
            let Some(rest) = self.rest.kept.get_mut(self.word).filter(|rest| **rest != 0) else {
                self.word += 1;
                continue;
            };
            let bit = rest.trailing_zeros() as u64;
            *rest &= *rest - 1;
            let number = (self.block - 1) * self.pages_per_block as u64 + self.word as u64 * 64 + bit;
            pfns.push(Pfn::new(number));
        }
        Ok(!pfns.is_empty())
    }
}
