//! Pages of hugetlbfs: compound pages, which kernels mark in different ways.
//!
//! Their order must be one that the architecture has (`hstates` of the kernel is a subset, and VMCOREINFO does not export it): the
//! flag of 6.6 to 6.8 is PG_active, which other pages have for other reasons.

use pagehaul_machine::{PageSize, arch};

use super::layout::{PageLayout, half, word};
use super::page_type::PageTypes;
use crate::class::PageClass;
use crate::undecidable::Undecidable;
use pagehaul_machine::VmcoreInfo;

/// How hugetlb pages are marked.
#[derive(Debug, Clone)]
pub(crate) enum HugeTlb {
    /// In the head's page type (d99e3140a4d3: 6.9, stable 6.6).
    Type(u32),
    /// By a flag of the first tail (9c5ccf2db04b: 6.6 to 6.8). A mask.
    TailFlag(u64),
    /// By the number of its destructor, at this offset from the head (f1e61557f023: 4.4; in struct folio from 6.3 to 6.5).
    Destructor { at: usize, id: u8 },
    /// Not at all: CONFIG_HUGETLB_PAGE exports the above, so the kernel has none or does not export the mark.
    Unknown,
}

impl HugeTlb {
    pub(super) fn new(
        info: &VmcoreInfo,
        layout: &PageLayout,
        types: &PageTypes,
        gaps: &mut Vec<Undecidable>,
    ) -> Self {
        if let Some(value) = types.hugetlb {
            return Self::Type(value);
        }
        match super::cache::flag(info, "PG_hugetlb") {
            0 => {}
            mask => return Self::TailFlag(mask),
        }
        let Some(id) = info.number("HUGETLB_PAGE_DTOR").and_then(|id| u8::try_from(id).ok()) else {
            return Self::Unknown;
        };
        // 4.4 had 4 bytes for the number, 4.16 has one; it is small and little-endian, so one is enough.
        let at = match info.offset("folio._folio_dtor") {
            // Counted from the head (6.3).
            Some(offset) => Some(offset),
            // Counted from the tail.
            None => {
                info.offset("page.compound_dtor").and_then(|offset| offset.checked_add(layout.size as u64))
            }
        };
        match at.and_then(|at| usize::try_from(at).ok()).filter(|at| *at < layout.size * 2) {
            Some(at) => Self::Destructor { at, id },
            None => {
                // d7f53518f7a2 (4.6, stable 4.4) exports it.
                gaps.push(Undecidable {
                    class: PageClass::HugeTlb,
                    missing: "OFFSET(page.compound_dtor)",
                    consequence: "pages of hugetlbfs are kept unless they are anonymous",
                });
                Self::Unknown
            }
        }
    }

    /// Returns the orders that its pages can have, as bits.
    pub(super) fn orders(info: &VmcoreInfo) -> u32 {
        // Another architecture is an error elsewhere.
        let page = info.unsigned("PAGESIZE").and_then(PageSize::new).unwrap_or(PageSize::KIB_4);
        arch::of_kernel(info).map_or(0, |arch| arch.hugetlb_orders(page))
    }

    /// Returns whether the compound page with head and first tail `pair` is hugetlb.
    pub(crate) fn holds(&self, layout: &PageLayout, types: &PageTypes, pair: &[u8]) -> bool {
        match *self {
            Self::Type(value) => types.is(half(pair, layout.mapcount), Some(value)),
            Self::TailFlag(mask) => word(pair, layout.size + layout.flags) & mask != 0,
            Self::Destructor { at, id } => pair.get(at) == Some(&id),
            Self::Unknown => false,
        }
    }
}
