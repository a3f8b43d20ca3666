//! Counting what fragments memory: free blocks by order and type, and pages that cannot move in blocks that are for movable ones.

use std::collections::HashMap;
use std::ops::Range;

use pagehaul_kernel::Scanned;
use pagehaul_machine::{PageCount, Pfn};

use crate::page_blocks::{PageBlocks, UNKNOWN};
use crate::report::RowKind;
use crate::slot::Slot;

/// Owners that are counted apart.
const MAX_OWNERS: usize = 1 << 16;
/// Orders of the buddy allocator: 0 to 10, to 13 with pages of 64 KiB.
const MAX_ORDERS: usize = 16;

/// Counts of one section, or of all.
#[derive(Debug, Default)]
pub(crate) struct FragmentTally {
    /// Blocks of each type that are not all reserved.
    pub(crate) blocks: HashMap<u8, u64>,
    /// Free blocks of the buddy allocator by type and order.
    pub(crate) free: HashMap<(u8, usize), u64>,
    /// Movable blocks that have pages that cannot move.
    pub(crate) spoilt: u64,
    /// Of each owner: these blocks, and its pages in them.
    pub(crate) by: HashMap<Slot, (u64, u64)>,
}

impl FragmentTally {
    pub(crate) fn merge(&mut self, part: Self) {
        self.spoilt += part.spoilt;
        for (kind, blocks) in part.blocks {
            *self.blocks.entry(kind).or_default() += blocks;
        }
        for (key, blocks) in part.free {
            *self.free.entry(key).or_default() += blocks;
        }
        for (slot, (blocks, pages)) in part.by {
            if self.by.len() < MAX_OWNERS || self.by.contains_key(&slot) {
                let sum = self.by.entry(slot).or_default();
                *sum = (sum.0 + blocks, sum.1 + pages);
            }
        }
    }
}

/// Counts the pages of a section in the order of their numbers.
pub(crate) struct Fragments<'a> {
    blocks: &'a PageBlocks,
    types: &'a [u8],
    first: Pfn,
    /// The last block that had a page in use or free, and the last that was spoilt.
    last: Option<u64>,
    last_spoilt: Option<u64>,
    last_by: HashMap<Slot, u64>,
    /// Where the free block ends that was counted last.
    free_end: Pfn,
    pub(crate) tally: FragmentTally,
}

impl<'a> Fragments<'a> {
    pub(crate) fn new(blocks: &'a PageBlocks, first: Pfn) -> Self {
        Self {
            blocks,
            types: blocks.of_section(first),
            first,
            last: None,
            last_spoilt: None,
            last_by: HashMap::new(),
            free_end: Pfn::default(),
            tally: FragmentTally::default(),
        }
    }

    fn kind(&self, block: u64) -> u8 {
        self.types.get(block as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Counts a run of pages with one owner.
    pub(crate) fn run(&mut self, slot: Slot, pages: &Range<Pfn>, is_listed: impl Fn(u32) -> bool) {
        if self.types.is_empty() || slot == Slot::Reserved {
            return;
        }
        let slot = match slot {
            Slot::Nothing { .. } => Slot::Nothing { continues: false },
            other => other,
        };
        let fixed = match slot {
            Slot::Claim(claimant) => !is_listed(claimant),
            Slot::Slab(_) | Slot::Chunk | Slot::Compound | Slot::Typed(_) | Slot::Nothing { .. } => true,
            Slot::Row(row) => {
                matches!(row, RowKind::PageTables | RowKind::LargeKmalloc | RowKind::PagePool)
            }
            _ => false,
        };
        let (start, end) = (pages.start.since(self.first).get(), pages.end.since(self.first).get());
        let block_pages = 1_u64 << self.blocks.order;
        for block in start >> self.blocks.order..end.div_ceil(block_pages) {
            let kind = self.kind(block);
            if self.last.replace(block) != Some(block) {
                *self.tally.blocks.entry(kind).or_default() += 1;
            }
            if !fixed || !self.blocks.is_movable(kind) {
                continue;
            }
            let inside = end.min((block + 1) * block_pages) - start.max(block * block_pages);
            if self.last_spoilt.replace(block) != Some(block) {
                self.tally.spoilt += 1;
            }
            if self.last_by.len() < MAX_OWNERS || self.last_by.contains_key(&slot) {
                let again = self.last_by.insert(slot, block) == Some(block);
                let sum = self.tally.by.entry(slot).or_default();
                *sum = (sum.0 + u64::from(!again), sum.1 + inside);
            }
        }
    }

    /// Counts the blocks of the buddy allocator in a run of free pages. The first page of each has the order.
    pub(crate) fn free(&mut self, scanned: &Scanned<'_>, pages: Range<usize>, order_at: Option<usize>) {
        let Some(order_at) = order_at.filter(|_| !self.types.is_empty()) else { return };
        let mut index = pages.start;
        while index < pages.end {
            let pfn = scanned.first_pfn() + PageCount::new(index as u64);
            if pfn < self.free_end {
                index += self.free_end.since(pfn).get() as usize;
                continue;
            }
            let order = (scanned.page(index).word(order_at) as usize).min(MAX_ORDERS - 1);
            let kind = self.kind(pfn.since(self.first).get() >> self.blocks.order);
            *self.tally.free.entry((kind, order)).or_default() += 1;
            self.free_end = pfn + PageCount::new(1 << order);
            index += 1 << order;
        }
    }
}
