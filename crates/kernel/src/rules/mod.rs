//! Rules that derive the class of a page from its `struct page`, for one kernel. What a rule needs is computed once from
//! VMCOREINFO. If keys are missing, a rule reports it and never matches.

mod anon;
mod cache;
mod compound;
mod free;
mod hugetlb;
mod layout;
mod page_type;
mod poison;
mod slab;

pub(crate) use compound::{Compound, Head, MAX_ORDER};
pub(crate) use hugetlb::HugeTlb;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use layout::NO_STRUCT_PAGES;
pub use layout::page_head;
pub(crate) use layout::{PageLayout, half, word};

use crate::class::PageClass;
use crate::error::KernelError;
use crate::undecidable::Undecidable;
use pagehaul_machine::VmcoreInfo;

/// All rules of one kernel.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) layout: PageLayout,
    pub(crate) types: page_type::PageTypes,
    pub(crate) slab: slab::Slab,
    pub(crate) cache: cache::Cache,
    pub(crate) anon: anon::Anon,
    pub(crate) free: free::Free,
    pub(crate) poison: poison::Poison,
    pub(crate) hugetlb: hugetlb::HugeTlb,
    /// Orders that hugetlb pages can have: bit *n* is order *n*.
    pub(crate) hugetlb_orders: u32,
    pub(crate) order: compound::OrderAt,
    /// `PG_head`, as a mask.
    pub(crate) head: u64,
    /// `PG_reserved`, as a mask; 0 if unknown. The kernel image and what else is allocated at boot have it. Pages that the
    /// kernel frees, as those of its init sections, lose it.
    pub(crate) reserved: u64,
}

/// The words of a `struct page` that rules read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Words {
    pub(crate) flags: u64,
    pub(crate) mapping: u64,
    pub(crate) mapcount: u32,
}

impl Rules {
    pub(crate) fn new(info: &VmcoreInfo) -> Result<(Self, Vec<Undecidable>), KernelError> {
        let mut gaps = Vec::new();
        let layout = PageLayout::new(info)?;
        let types = page_type::PageTypes::new(info, &mut gaps);
        let slab = slab::Slab::new(info);
        let head = info.number("PG_head_mask").map(|mask| mask as u64);
        let rules = Self {
            cache: cache::Cache::new(info, &mut gaps)?,
            anon: anon::Anon::new(&slab, &types, &mut gaps),
            free: free::Free::new(info, &layout, &types, &mut gaps),
            poison: poison::Poison::new(info),
            hugetlb: hugetlb::HugeTlb::new(info, &layout, &types, &mut gaps),
            hugetlb_orders: hugetlb::HugeTlb::orders(info),
            order: compound::OrderAt::new(info, &layout),
            head: info.required(head, "NUMBER(PG_head_mask)", "telling compound pages")?,
            // VMCOREINFO does not export it. It precedes PG_private in `enum pageflags` of every kernel from 4.4 to 7.1.
            reserved: cache::flag(info, "PG_private") >> 1,
            layout,
            types,
            slab,
        };
        Ok((rules, gaps))
    }

    /// Returns whether a page with `flags` contradicts its class: pages that the kernel has reserved belong to no process, file or
    /// free block. Offline pages may be reserved, and must not be read.
    #[inline]
    pub(crate) fn contradicts(&self, flags: u64, class: PageClass) -> bool {
        flags & self.reserved != 0 && class.is_filtered()
    }

    /// Returns the class of a page by its own `struct page`, ignoring poison. Not for tails of compound pages; for heads,
    /// where the rule for hugetlb is not in the page type, [`Compound`] decides.
    #[inline]
    pub(crate) fn class(&self, page: Words) -> PageClass {
        if self.slab.by_flag(page.flags) {
            return PageClass::Slab;
        }
        // Below -1, `_mapcount` is not a count of mappings: the page has a type, or the count is destroyed. No process
        // maps such pages, no LRU list holds them, and their owner defines their other fields.
        if (page.mapcount as i32) < -1 {
            return self.types.class(page.mapcount).unwrap_or(PageClass::Kernel);
        }
        [self.cache.class(page.flags), self.anon.class()][usize::from(self.anon.holds(page.mapping))]
    }
}
