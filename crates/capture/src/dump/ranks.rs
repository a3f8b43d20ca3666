//! From a PFN to the place of its descriptor.

use pagehaul_physmem::bits;

use crate::CaptureError;
use crate::batch::Bitmap;

/// Words of bitmap looked at together.
const WORDS: usize = 2048;
/// Pages that these stand for.
const BLOCK: u64 = WORDS as u64 * 64;

/// How many kept pages come before a page. Asked for pages in ascending order, it reads the bitmap once; it remembers 8
/// bytes for 131,072 pages, 1 MiB for 64 TiB.
pub(super) struct Ranks {
    bitmap: Bitmap,
    /// Kept pages before each block.
    before: Vec<u64>,
    /// The block that `words` and `prefix` are of.
    block: Option<usize>,
    words: Vec<u64>,
    /// Kept pages of the block before each word.
    prefix: Vec<u32>,
}

impl Ranks {
    /// Counts the pages below `max_pfn` that are set in `bitmap`.
    pub(super) fn new(bitmap: Bitmap, max_pfn: u64) -> Result<Self, CaptureError> {
        let mut words = vec![0; WORDS];
        let mut before = Vec::with_capacity(max_pfn.div_ceil(BLOCK) as usize);
        let mut sum = 0;
        for first in (0..max_pfn).step_by(BLOCK as usize) {
            bitmap.load(first, &mut words)?;
            before.push(sum);
            sum += bits::count(&words);
        }
        Ok(Self { bitmap, before, block: None, words, prefix: vec![0; WORDS] })
    }

    /// The number of kept pages before `pfn`, which is one of them.
    pub(super) fn rank(&mut self, pfn: u64) -> Result<u64, CaptureError> {
        let block = (pfn / BLOCK) as usize;
        if self.block != Some(block) {
            self.bitmap.load(pfn / BLOCK * BLOCK, &mut self.words)?;
            let mut sum = 0;
            for (prefix, word) in self.prefix.iter_mut().zip(&self.words) {
                *prefix = sum;
                sum += word.count_ones();
            }
            self.block = Some(block);
        }
        let bit = (pfn % BLOCK) as usize;
        let below = self.words[bit / 64] & ((1 << (bit % 64)) - 1);
        let before = self.before.get(block).copied().unwrap_or(0);
        Ok(before + u64::from(self.prefix[bit / 64]) + u64::from(below.count_ones()))
    }
}
