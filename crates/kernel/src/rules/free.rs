//! Free pages: blocks of 2^order pages in the buddy allocator, marked in their first struct page.

use super::layout::{PageLayout, word};
use super::page_type::PageTypes;
use crate::class::PageClass;
use crate::undecidable::Undecidable;
use pagehaul_machine::VmcoreInfo;

/// How large a block may be.
#[derive(Debug, Clone)]
pub(crate) struct Free {
    /// `LENGTH(zone.free_area)`: orders are below it. 0 if the size of free blocks is unknown.
    orders: u64,
    private: Option<usize>,
}

/// No buddy allocator of x86_64 had larger blocks (MAX_ORDER is 10, 4 MiB); a block larger than a section is damage.
const MAX_ORDERS: u64 = 16;

impl Free {
    pub(super) fn new(
        info: &VmcoreInfo,
        layout: &PageLayout,
        types: &PageTypes,
        gaps: &mut Vec<Undecidable>,
    ) -> Self {
        let orders = info.length("zone.free_area").filter(|orders| *orders <= MAX_ORDERS).unwrap_or(0);
        if types.buddy.is_some() && (orders == 0 || layout.private.is_none()) {
            gaps.push(Undecidable {
                class: PageClass::Free,
                missing: "LENGTH(zone.free_area) or OFFSET(page.private)",
                consequence: "free pages are kept, because the size of free blocks is not known",
            });
        }
        Self { orders, private: layout.private }
    }

    /// Returns whether the size of free blocks is known.
    pub(crate) fn measurable(&self) -> bool {
        self.orders != 0 && self.private.is_some()
    }

    /// Returns log2 of the pages in the block whose first page is `page`, of class `class`.
    #[inline]
    pub(crate) fn order(&self, class: PageClass, page: &[u8]) -> Option<u32> {
        match class {
            // Memory is accepted in blocks of the largest order (dcdfdd40fa82, 6.5), and only those are marked.
            PageClass::Unaccepted => self.orders.checked_sub(1).map(|order| order as u32),
            _ => {
                let order = word(page, self.private?);
                (order < self.orders).then_some(order as u32)
            }
        }
    }
}
