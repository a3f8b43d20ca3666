//! Physical memory in cells of equal size, with the contents of each.

use pagehaul_kernel::PageClass;
use serde::Serialize;

/// The most cells of a map: 128 rows of 256, more than a screen shows.
const MAX_CELLS: u64 = 1 << 15;

/// Memory by address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Map {
    /// Pages per cell, a power of two.
    pub cell_pages: u64,
    /// Ranges of memory; the map skips the holes between them.
    pub ranges: Vec<MapRange>,
}

/// Memory without a hole as large as a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MapRange {
    /// First PFN of the first cell.
    pub first_pfn: u64,
    /// For each cell, the pages of every class, in the order of [`PageClass::ALL`]; pages that do not exist are in none.
    pub cells: Vec<[u32; PageClass::COUNT]>,
}

impl Map {
    /// A map of a machine with `pages` pages, with no cells yet.
    pub(crate) fn new(pages: u64) -> Self {
        let cell_pages = pages.div_ceil(MAX_CELLS).max(16).next_power_of_two();
        Self { cell_pages, ranges: Vec::new() }
    }

    /// Adds pages of cell number `cell`, counted by class. Cells come in ascending order; one may come in parts.
    pub(crate) fn add(&mut self, cell: u64, counts: &[u32; PageClass::COUNT]) {
        let index = self.ranges.last().map(|range| cell - range.first_pfn / self.cell_pages);
        match (index, self.ranges.last_mut()) {
            (Some(index), Some(range)) if index <= range.cells.len() as u64 => {
                if index == range.cells.len() as u64 {
                    range.cells.push([0; PageClass::COUNT]);
                }
                range.cells[index as usize].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            _ => self.ranges.push(MapRange { first_pfn: cell * self.cell_pages, cells: vec![*counts] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_skipped() {
        let mut map = Map::new(1000);
        assert_eq!(map.cell_pages, 16);
        let of = |class: PageClass, pages| {
            let mut counts = [0; PageClass::COUNT];
            counts[class as usize] = pages;
            counts
        };
        map.add(0, &of(PageClass::Slab, 11));
        map.add(1, &of(PageClass::Free, 6));
        map.add(1, &of(PageClass::Free, 10));
        map.add(2, &of(PageClass::Free, 8));
        map.add(6, &of(PageClass::Free, 1));
        let starts: Vec<u64> = map.ranges.iter().map(|range| range.first_pfn).collect();
        assert_eq!(starts, [0, 96]);
        let cells = &map.ranges[0].cells;
        assert_eq!(cells.len(), 3);
        assert_eq!((cells[0][PageClass::Slab as usize], cells[1][PageClass::Free as usize]), (11, 16));
        assert_eq!(cells[2][PageClass::Free as usize], 8);
    }

    #[test]
    fn large_machines_have_large_cells() {
        assert_eq!(Map::new(1 << 34).cell_pages, 1 << 19);
    }
}
