//! Which chunks of a file were found to be authentic.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::chunks::CHUNK;

/// Chunks of an encrypted file that were read, and whose tags are right: a bit for each 64 KiB. What is known to be authentic has not to
/// be read again to verify the file. Clones share the bits.
#[derive(Debug, Clone)]
pub struct Authentic(Arc<[AtomicU64]>);

impl Authentic {
    pub(crate) fn of(chunks: u64) -> Self {
        Self((0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn add(&self, chunk: u64) {
        if let Some(bits) = self.0.get((chunk / 64) as usize) {
            bits.fetch_or(1 << (chunk % 64), Ordering::Relaxed);
        }
    }

    /// Returns whether all of these bytes of the contents were found to be authentic.
    pub fn has(&self, bytes: Range<u64>) -> bool {
        let mut chunks = bytes.start / CHUNK as u64..bytes.end.div_ceil(CHUNK as u64);
        chunks.all(|chunk| {
            let bits = self.0.get((chunk / 64) as usize);
            bits.is_some_and(|bits| bits.load(Ordering::Relaxed) & 1 << (chunk % 64) != 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_authentic_if_all_of_its_chunks_are() {
        const SIZE: u64 = CHUNK as u64;
        let known = Authentic::of(130);
        [0, 1, 63, 64, 129, 130].into_iter().for_each(|chunk| known.clone().add(chunk));
        assert!(known.has(0..2 * SIZE) && known.has(SIZE / 2..SIZE + 1) && known.has(63 * SIZE..65 * SIZE));
        assert!(known.has(129 * SIZE..130 * SIZE));
        assert!(!known.has(0..2 * SIZE + 1) && !known.has(62 * SIZE..64 * SIZE));
        assert!(!known.has(129 * SIZE..200 * SIZE) && !known.has(200 * SIZE..201 * SIZE));
    }
}
