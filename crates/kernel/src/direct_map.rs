//! The direct map: all of physical memory at one distance from its virtual addresses.

use std::ops::Range;

use pagehaul_machine::Extent;

/// Where the direct map of a kernel is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectMap {
    start: u64,
    addresses: Range<u64>,
}

impl DirectMap {
    /// Maps physical memory below `end_of_memory`, with physical address 0 at `start` (modulo 2^64), within `bounds`. Memory may
    /// start far above 0, and what is mapped below it is something else.
    pub(crate) fn new(start: u64, end_of_memory: u64, bounds: &Range<u64>) -> Self {
        let end = start.saturating_add(end_of_memory).min(bounds.end);
        Self { start, addresses: start.max(bounds.start)..end }
    }

    /// Returns the memory at a virtual address, up to the end of the direct map; `None` for other addresses.
    pub fn extent(&self, vaddr: u64) -> Option<Extent> {
        let contains = self.addresses.contains(&vaddr);
        contains.then(|| Extent { paddr: vaddr.wrapping_sub(self.start), len: self.addresses.end - vaddr })
    }

    /// Returns whether its start is unknown.
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_the_memory_is_mapped_otherwise() {
        let bounds = 0xff60_0000_0000_0000..u64::MAX;
        let map = DirectMap::new(bounds.start - 0x8000_0000, 0xa000_0000, &bounds);
        assert_eq!(map.extent(bounds.start - 1), None);
        assert_eq!(map.extent(bounds.start + 0x1000), Some(Extent { paddr: 0x8000_1000, len: 0x1fff_f000 }));
        assert_eq!(map.extent(bounds.start + 0x2000_0000), None);
        assert!(DirectMap::default().is_empty() && !map.is_empty());
    }
}
