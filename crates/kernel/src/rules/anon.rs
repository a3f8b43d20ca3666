//! Anonymous pages.

use super::page_type::PageTypes;
use super::slab::Slab;
use crate::class::PageClass;
use crate::undecidable::Undecidable;

/// Bit 0 of `mapping` (`PAGE_MAPPING_ANON`, since 2.6; `FOLIO_MAPPING_ANON` since 6.17). Bit 1 alone marked pages of drivers
/// that can be moved (bda807d44454, 4.8) until page types took over in 6.17; both bits together are KSM's, whose
/// pages belong to processes too.
#[derive(Debug, Clone)]
pub(crate) struct Anon {
    decidable: bool,
}

impl Anon {
    pub(super) fn new(slab: &Slab, types: &PageTypes, gaps: &mut Vec<Undecidable>) -> Self {
        // Since 130d4df57390 (6.2) a slab keeps a number where `mapping` is, and any number can be odd.
        let decidable = slab.known() || types.complete();
        if !decidable {
            gaps.push(Undecidable {
                class: PageClass::Anon,
                missing: "NUMBER(PG_slab) and NUMBER(PAGE_SLAB_MAPCOUNT_VALUE)",
                consequence: "anonymous pages are kept, because slab pages may look like them",
            });
        }
        Self { decidable }
    }

    /// Returns whether `mapping` is that of an anonymous page. Slab and typed pages must be ruled out first.
    #[inline]
    pub(super) fn holds(&self, mapping: u64) -> bool {
        mapping & 1 != 0
    }

    /// The class of such pages.
    #[inline]
    pub(crate) fn class(&self) -> PageClass {
        if self.decidable { PageClass::Anon } else { PageClass::Undecided }
    }
}
