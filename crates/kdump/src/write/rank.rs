//! From a PFN to the index of its descriptor.

use std::io;

use pagehaul_output::{StoredBitmap, WriteError};
use pagehaul_physmem::bits;

/// Words of bitmap per block.
const WORDS: usize = 2048;
/// Pages per block.
const BLOCK: u64 = WORDS as u64 * 64;

/// Counts the dumped pages before a page. Queried in ascending order, it reads the bitmap once. It keeps 8 bytes per
/// 131,072 pages: 1 MiB for 64 TiB.
pub(super) struct RankIndex {
    bitmap: StoredBitmap,
    /// Dumped pages before each block.
    before: Vec<u64>,
    /// The block in `words` and `prefix`.
    block: Option<usize>,
    words: Vec<u64>,
    /// Dumped pages of the block before each word.
    prefix: Vec<u32>,
}

impl RankIndex {
    /// Counts the pages below `max_pfn` that are set in `bitmap`.
    pub(super) fn new(bitmap: StoredBitmap, max_pfn: u64) -> io::Result<Self> {
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

    /// Returns the number of dumped pages before `pfn`, which is dumped itself.
    pub(super) fn rank(&mut self, pfn: u64) -> Result<u64, WriteError> {
        let block = (pfn / BLOCK) as usize;
        if self.block != Some(block) {
            let loaded = self.bitmap.load(pfn / BLOCK * BLOCK, &mut self.words);
            loaded.map_err(WriteError::read_back("bitmap 2"))?;
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
