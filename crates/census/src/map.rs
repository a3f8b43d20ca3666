//! Physical memory in cells of equal size, each with what it holds.

use pagehaul_kernel::PageClass;
use serde::Serialize;

/// Cells that a map has at most: 128 rows of 256, more than a screen shows.
const MOST_CELLS: u64 = 1 << 15;

/// Memory by address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Map {
    /// Pages per cell, a power of two.
    pub cell_pages: u64,
    /// The stretches of memory, with the holes between them left out.
    pub stretches: Vec<Stretch>,
}

/// Memory without a hole as large as a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// First PFN of the first cell.
    pub first_pfn: u64,
    /// For each cell, the pages of every class, in the order of [`PageClass::ALL`]; those of no memory are in none.
    pub cells: Vec<[u32; PageClass::COUNT]>,
}

impl Map {
    /// A map of a machine with `pages` pages, with no cells yet.
    pub(crate) fn new(pages: u64) -> Self {
        let cell_pages = pages.div_ceil(MOST_CELLS).max(16).next_power_of_two();
        Self { cell_pages, stretches: Vec::new() }
    }

    /// Adds pages of cell number `cell`, counted by class. Cells come in ascending order; one may come in parts.
    pub(crate) fn add(&mut self, cell: u64, counts: &[u32; PageClass::COUNT]) {
        let index = self.stretches.last().map(|stretch| cell - stretch.first_pfn / self.cell_pages);
        match (index, self.stretches.last_mut()) {
            (Some(index), Some(stretch)) if index <= stretch.cells.len() as u64 => {
                if index == stretch.cells.len() as u64 {
                    stretch.cells.push([0; PageClass::COUNT]);
                }
                stretch.cells[index as usize].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            _ => self.stretches.push(Stretch { first_pfn: cell * self.cell_pages, cells: vec![*counts] }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_left_out() {
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
        let starts: Vec<u64> = map.stretches.iter().map(|stretch| stretch.first_pfn).collect();
        assert_eq!(starts, [0, 96]);
        let cells = &map.stretches[0].cells;
        assert_eq!(cells.len(), 3);
        assert_eq!((cells[0][PageClass::Slab as usize], cells[1][PageClass::Free as usize]), (11, 16));
        assert_eq!(cells[2][PageClass::Free as usize], 8);
    }

    #[test]
    fn large_machines_have_large_cells() {
        assert_eq!(Map::new(1 << 34).cell_pages, 1 << 19);
    }
}
