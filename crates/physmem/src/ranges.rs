use std::ops::Range;

use pagehaul_machine::{PageSize, Pfn, PhysAddr};

/// A range of physical memory and the location of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First physical address.
    pub start: u64,
    /// First physical address after it.
    pub end: u64,
    /// Bytes from `start` on that the source holds; the rest exists in the machine but is excluded.
    pub stored: u64,
    /// Location of the byte at `start`: an offset, for sources that are files.
    pub offset: u64,
}

/// The physical memory of a machine: disjoint pieces in ascending order, found by binary search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeMap {
    pieces: Vec<Piece>,
}

impl RangeMap {
    /// Builds a map of pieces in any order, which may be empty or overlap. Of two that overlap, the one with stored bytes counts,
    /// else the first in `pieces`, as for readers that search program headers in order.
    pub fn new(pieces: impl IntoIterator<Item = Piece>) -> Self {
        let mut given: Vec<Piece> = Vec::new();
        for piece in pieces {
            if piece.end <= piece.start {
                continue;
            }
            let stored = piece.stored.min(piece.end - piece.start);
            // Split so that each piece is stored whole or not at all.
            if stored > 0 {
                given.push(Piece { end: piece.start + stored, stored, ..piece });
            }
            if piece.start + stored < piece.end {
                given.push(Piece { start: piece.start + stored, stored: 0, offset: 0, ..piece });
            }
        }
        let disjoint = |pieces: &[Piece]| pieces.windows(2).all(|pair| pair[0].end <= pair[1].start);
        if !given.is_sorted_by_key(|piece| piece.start) || !disjoint(&given) {
            let mut sorted = given.clone();
            sorted.sort_by_key(|piece| piece.start);
            given = if disjoint(&sorted) { sorted } else { resolve_overlaps(&given) };
        }
        let mut merged: Vec<Piece> = Vec::with_capacity(given.len());
        for piece in given {
            match merged.last_mut() {
                Some(last) if continues(last, &piece) => {
                    last.end = piece.end;
                    last.stored += piece.stored;
                }
                _ => merged.push(piece),
            }
        }
        merged.shrink_to_fit();
        Self { pieces: merged }
    }

    /// Returns the pieces, ascending. Each is stored whole or not at all.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the runs of contiguous memory, ascending: neighbouring pieces are one.
    pub fn extents(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.pieces
            .chunk_by(|last, next| last.end == next.start)
            .map(|run| run[0].start..run[run.len() - 1].end)
    }

    /// Returns the piece that contains `paddr`.
    pub fn find(&self, paddr: u64) -> Option<&Piece> {
        let after = self.pieces.partition_point(|piece| piece.start <= paddr);
        let piece = self.pieces.get(after.checked_sub(1)?)?;
        (paddr < piece.end).then_some(piece)
    }

    /// Returns the start of the first piece after `paddr`; the end of the address space if there is none.
    pub fn next_start(&self, paddr: u64) -> u64 {
        let after = self.pieces.partition_point(|piece| piece.start <= paddr);
        self.pieces.get(after).map_or(u64::MAX, |piece| piece.start)
    }

    /// Returns the first physical address after the last piece; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.end)
    }

    /// Returns the number of the first page of `size` after the last piece; 0 if there is none.
    pub fn end_pfn(&self, size: PageSize) -> Pfn {
        PhysAddr::new(self.end()).next_pfn(size)
    }

    /// Returns the bytes in all pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.end - piece.start).sum()
    }

    /// Iterates over the pieces that overlap `range`.
    pub fn within(&self, range: Range<u64>) -> impl Iterator<Item = &Piece> {
        let first = self.pieces.partition_point(|piece| piece.end <= range.start);
        self.pieces[first..].iter().take_while(move |piece| piece.start < range.end)
    }

    /// Returns whether `range` is not in one piece.
    pub fn divides(&self, range: Range<u64>) -> bool {
        self.find(range.start).is_none_or(|piece| piece.end < range.end)
    }

    /// Returns the pages, ascending, of which some bytes are stored and others were excluded.
    pub fn partly_stored(&self, size: PageSize) -> impl Iterator<Item = Pfn> + '_ {
        let (mut next, page_shift) = (0, size.shift());
        self.pieces.iter().filter(|piece| piece.stored > 0).flat_map(move |piece| {
            let first = piece.start >> page_shift;
            let last = (piece.end - 1) >> page_shift;
            let partly = |pfn: &u64| {
                let page = pfn << page_shift..(pfn + 1) << page_shift;
                *pfn >= next && self.within(page).any(|piece| piece.stored == 0)
            };
            let found = [Some(first), (last > first).then_some(last)].map(|pfn| pfn.filter(partly));
            next = last + 1;
            found.into_iter().flatten().map(Pfn::new)
        })
    }

    /// Sets in `bits` (bit *i* = PFN `first + i` of pages of `size`) every page that a piece overlaps, even in part;
    /// with `stored_only`, only pieces whose bytes are held. Other bits are cleared.
    pub fn mark_pages(&self, first: Pfn, size: PageSize, stored_only: bool, bits: &mut [u64]) {
        let (first_pfn, page_shift) = (first.number(), size.shift());
        bits.fill(0);
        let count = bits.len() as u64 * 64;
        let from = first_pfn << page_shift;
        let to = (first_pfn + count).saturating_mul(1 << page_shift);
        for piece in self.within(from..to) {
            if stored_only && piece.stored == 0 {
                continue;
            }
            let start = (piece.start >> page_shift).max(first_pfn) - first_pfn;
            let end = (((piece.end - 1) >> page_shift) + 1 - first_pfn).min(count);
            crate::bits::set_range(bits, start as usize, end as usize);
        }
    }
}

/// Returns whether `next` continues `last`, in memory and in the file.
fn continues(last: &Piece, next: &Piece) -> bool {
    last.end == next.start
        && match (last.stored, next.stored) {
            (0, 0) => true,
            (0, _) | (_, 0) => false,
            (stored, _) => last.offset.checked_add(stored) == Some(next.offset),
        }
}

/// Cuts pieces that overlap. Rare: some firmware and `kexec` versions list a range twice.
fn resolve_overlaps(given: &[Piece]) -> Vec<Piece> {
    let mut edges: Vec<u64> = given.iter().flat_map(|piece| [piece.start, piece.end]).collect();
    edges.sort_unstable();
    edges.dedup();
    // Active pieces at each edge, best first: stored before not, then the order given.
    let mut starts: Vec<usize> = (0..given.len()).collect();
    starts.sort_by_key(|&index| given[index].start);
    let mut starting = starts.into_iter().peekable();
    let mut active: std::collections::BTreeSet<(bool, usize)> = Default::default();
    let mut out = Vec::new();
    for pair in edges.windows(2) {
        while let Some(index) = starting.next_if(|&index| given[index].start <= pair[0]) {
            active.insert((given[index].stored == 0, index));
        }
        while let Some(&(key, index)) = active.first() {
            if given[index].end > pair[0] {
                break;
            }
            active.remove(&(key, index));
        }
        if let Some(&(_, index)) = active.first() {
            let piece = given[index];
            let skipped = pair[0] - piece.start;
            let length = pair[1] - pair[0];
            out.push(if piece.stored == 0 {
                Piece { start: pair[0], end: pair[1], stored: 0, offset: 0 }
            } else {
                Piece { start: pair[0], end: pair[1], stored: length, offset: piece.offset + skipped }
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(start: u64, end: u64, offset: u64) -> Piece {
        Piece { start, end, stored: end - start, offset }
    }

    #[test]
    fn look_up_finds_the_piece_or_the_hole() {
        let map = RangeMap::new([stored(0x1000, 0x9f800, 0x1000), stored(0x100000, 0x200000, 0xa0000)]);
        assert_eq!(map.find(0xfff), None);
        assert_eq!(map.find(0x1000).map(|piece| piece.offset), Some(0x1000));
        assert_eq!(map.find(0x9f800), None);
        assert_eq!(map.find(0x1fffff).map(|piece| piece.start), Some(0x100000));
        assert_eq!(map.find(0x200000), None);
        assert_eq!(map.end(), 0x200000);
    }

    #[test]
    fn overlaps_go_to_the_first_that_holds_bytes() {
        let map = RangeMap::new([
            Piece { start: 0x1000, end: 0x5000, stored: 0, offset: 0 },
            stored(0x2000, 0x4000, 0x100),
            stored(0x3000, 0x6000, 0x9000),
        ]);
        assert_eq!(
            map.pieces(),
            [
                Piece { start: 0x1000, end: 0x2000, stored: 0, offset: 0 },
                stored(0x2000, 0x4000, 0x100),
                stored(0x4000, 0x6000, 0xa000),
            ]
        );
    }

    #[test]
    fn neighbours_in_memory_and_file_are_one() {
        let map = RangeMap::new([stored(0x2000, 0x3000, 0x1000), stored(0x1000, 0x2000, 0)]);
        assert_eq!(map.pieces(), [stored(0x1000, 0x3000, 0)]);
    }

    #[test]
    fn pages_stored_in_part_are_found() {
        let excluded = |start, end| Piece { start, end, stored: 0, offset: 0 };
        let map = RangeMap::new([
            // Memory ends within its page, nothing was excluded.
            stored(0x1000, 0x9f800, 0),
            Piece { stored: 0x1800, ..stored(0x10_0000, 0x10_4000, 0) },
            // Two parts of one page are stored, a third is not.
            excluded(0x20_0000, 0x20_0400),
            stored(0x20_0400, 0x20_0800, 0),
            stored(0x20_0900, 0x20_3000, 0),
            excluded(0x20_3000, 0x20_4000),
        ]);
        assert_eq!(map.partly_stored(PageSize::KIB_4).collect::<Vec<_>>(), [0x101, 0x200].map(Pfn::new));
        assert_eq!(map.end_pfn(PageSize::KIB_4), Pfn::new(0x204));
        assert!(!map.divides(0x10_0000..0x10_1000) && map.divides(0x10_1000..0x10_2000));
        assert!(map.divides(0x9f000..0xa0000) && map.divides(0xa0000..0xa1000));
    }

    #[test]
    fn fractional_pages_are_marked() {
        let map = RangeMap::new([stored(0x1000, 0x9f800, 0), stored(0x100800, 0x102000, 0x100000)]);
        let mut bits = [0; 5];
        map.mark_pages(Pfn::new(0), PageSize::KIB_4, true, &mut bits);
        assert_eq!(crate::bits::runs(&bits).collect::<Vec<_>>(), [1..0xa0, 0x100..0x102]);
        map.mark_pages(Pfn::new(0x80), PageSize::KIB_4, true, &mut bits);
        assert_eq!(crate::bits::runs(&bits).collect::<Vec<_>>(), [0..0x20, 0x80..0x82]);
    }
}
