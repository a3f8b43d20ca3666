//! Kept pages, cut into batches.

use pagehaul_machine::{PageSize, Pfn};
use pagehaul_output::StoredBitmap;

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
            Self::Reclassified(_) => Vec::new(),
            Self::Passes(passes) => passes.iter().map(|pass| pass.priority).collect(),
        }
    }

    fn passes(&self) -> usize {
        match self {
            Self::Reclassified(_) => 1,
            Self::Passes(passes) => passes.len(),
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
    blocks: u64,
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
        let (blocks, pages_per_block) = (selection.blocks(), selection.pages_per_block());
        let batch_pages = batch_pages(selection.page_size);
        let rest = BlockSelection::new(pages_per_block);
        let word = rest.kept.len();
        Self { pages, blocks, pages_per_block, batch_pages, pass: 0, block: 0, rest, word }
    }

    /// Puts the PFNs of the next batch into `pfns`. Returns whether there was one.
    pub(crate) fn next(&mut self, pfns: &mut Vec<Pfn>) -> Result<bool, CaptureError> {
        pfns.clear();
        while pfns.len() < self.batch_pages {
            if self.word == self.rest.kept.len() {
                if self.block == self.blocks && self.pass + 1 < self.pages.passes() {
                    self.pass += 1;
                    self.block = 0;
                }
                if self.block == self.blocks {
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
