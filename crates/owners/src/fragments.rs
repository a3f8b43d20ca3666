//! Counting what fragments memory: free blocks by order and type, and pages that cannot move in blocks that are for movable ones.

use std::ops::Range;

use pagehaul_kernel::Scanned;
use pagehaul_machine::{PageCount, Pfn};

use crate::page_blocks::{PageBlocks, UNKNOWN};
use crate::report::RowKind;
use crate::seeded::SeededMap;
use crate::slot::Slot;

/// Owners that are counted apart.
const MAX_OWNERS: usize = 1 << 16;
/// Orders of the buddy allocator: 0 to 10, to 13 with pages of 64 KiB.
const MAX_ORDERS: usize = 16;

/// Counts of some sections, or of all.
#[derive(Debug, Default)]
pub(crate) struct FragmentTally {
    /// Blocks of each type that are not all reserved.
    pub(crate) blocks: SeededMap<u8, u64>,
    /// Free blocks of the buddy allocator by type and order.
    pub(crate) free: SeededMap<(u8, usize), u64>,
    /// Movable blocks that have pages that cannot move.
    pub(crate) spoilt: u64,
    /// Owners of these pages.
    pub(crate) by: SeededMap<Slot, Spoilt>,
}

/// Movable blocks in which an owner has pages that cannot move.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spoilt {
    pub(crate) blocks: u64,
    /// Its pages in them.
    pub(crate) pages: u64,
    /// The first page of the block that was counted last.
    last: Option<Pfn>,
}

impl FragmentTally {
    /// Moves the counts of other sections here.
    pub(crate) fn take(&mut self, part: &mut Self) {
        self.spoilt += std::mem::take(&mut part.spoilt);
        for (kind, blocks) in part.blocks.drain() {
            *self.blocks.entry(kind).or_default() += blocks;
        }
        for (key, blocks) in part.free.drain() {
            *self.free.entry(key).or_default() += blocks;
        }
        for (slot, more) in part.by.drain() {
            if let Some(sum) = self.spoilt_by(slot) {
                sum.blocks += more.blocks;
                sum.pages += more.pages;
            }
        }
    }

    /// Returns the counts of an owner, if there is room for it.
    fn spoilt_by(&mut self, slot: Slot) -> Option<&mut Spoilt> {
        let has_room = self.by.len() < MAX_OWNERS || self.by.contains_key(&slot);
        has_room.then(|| self.by.entry(slot).or_default())
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
    /// Where the free block ends that was counted last.
    free_end: Pfn,
}

impl<'a> Fragments<'a> {
    pub(crate) fn new(blocks: &'a PageBlocks, first: Pfn) -> Self {
        Self {
            blocks,
            types: blocks.of_section(first),
            first,
            last: None,
            last_spoilt: None,
            free_end: Pfn::default(),
        }
    }

    fn kind(&self, block: u64) -> u8 {
        self.types.get(block as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Counts a run of pages with one owner.
    pub(crate) fn run(
        &mut self,
        tally: &mut FragmentTally,
        slot: Slot,
        pages: &Range<Pfn>,
        is_listed: impl Fn(u32) -> bool,
    ) {
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
                *tally.blocks.entry(kind).or_default() += 1;
            }
            if !fixed || !self.blocks.is_movable(kind) {
                continue;
            }
            let inside = end.min((block + 1) * block_pages) - start.max(block * block_pages);
            if self.last_spoilt.replace(block) != Some(block) {
                tally.spoilt += 1;
            }
            if let Some(sum) = tally.spoilt_by(slot) {
                let first = Some(self.first + PageCount::new(block * block_pages));
                sum.blocks += u64::from(std::mem::replace(&mut sum.last, first) != first);
                sum.pages += inside;
            }
        }
    }

    /// Counts the blocks of the buddy allocator in a run of free pages. The first page of each has the order.
    pub(crate) fn free(
        &mut self,
        tally: &mut FragmentTally,
        scanned: &Scanned<'_>,
        pages: Range<usize>,
        order_at: Option<usize>,
    ) {
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
            *tally.free.entry((kind, order)).or_default() += 1;
            self.free_end = pfn + PageCount::new(1 << order);
            index += 1 << order;
        }
    }
}
