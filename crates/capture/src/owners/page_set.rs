//! A set of pages that costs memory where it has some only.

use std::collections::BTreeMap;
use std::ops::Range;

use pagehaul_physmem::bits;

/// Words of a chunk: 32,768 pages in 4 KiB.
const WORDS: usize = 512;
const PAGES: u64 = WORDS as u64 * 64;

/// Pages by PFN. A chunk of 4 KiB is for 32,768 pages: at most 32 MiB per TiB of pages of 4 KiB, less where there are none.
#[derive(Debug, Default)]
pub(super) struct PageSet {
    chunks: BTreeMap<u64, Box<[u64; WORDS]>>,
}

impl PageSet {
    /// Adds pages.
    pub(super) fn insert(&mut self, pages: Range<u64>) {
        let mut from = pages.start;
        while from < pages.end {
            let chunk = from / PAGES;
            let end = pages.end.min((chunk + 1) * PAGES);
            let words = self.chunks.entry(chunk).or_insert_with(|| Box::new([0; WORDS]));
            let first = chunk * PAGES;
            bits::set_range(&mut words[..], (from - first) as usize, (end - first) as usize);
            from = end;
        }
    }

    /// Returns the bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.chunks.len() * WORDS * 8) as u64
    }

    /// Returns how many pages it has.
    pub(super) fn len(&self) -> u64 {
        self.chunks.values().map(|words| bits::count(&words[..])).sum()
    }

    /// Copies the pages from `first`, a multiple of 64, to `out`.
    pub(super) fn copy(&self, first: u64, out: &mut [u64]) {
        for (word, out) in (first / 64..).zip(out) {
            let chunk = self.chunks.get(&(word / WORDS as u64));
            *out = chunk.and_then(|words| words.get(word as usize % WORDS)).copied().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_where_they_were_put() {
        let mut set = PageSet::default();
        set.insert(32_760..32_780);
        set.insert(5..5);
        set.insert(1 << 40..(1 << 40) + 1);
        set.insert(32_770..32_771);
        assert_eq!((set.len(), set.bytes()), (21, 3 * 4096));
        let mut out = [7; 4];
        set.copy(32_640, &mut out);
        assert_eq!(out, [0, 0xff << 56, 0xfff, 0]);
        set.copy(1 << 40, &mut out);
        assert_eq!(out, [1, 0, 0, 0]);
    }
}
