//! Pages with memory errors.

use pagehaul_machine::VmcoreInfo;

/// `PG_hwpoison`. Exported where CONFIG_MEMORY_FAILURE is set (2.6.37); without it, no page is marked. The flag is on
/// each bad page, tails too, except in hugetlb pages, where the head has it for all (their vmemmap may be shared).
#[derive(Debug, Clone)]
pub(crate) struct Poison {
    flag: u64,
}

impl Poison {
    pub(super) fn new(info: &VmcoreInfo) -> Self {
        Self { flag: super::cache::flag(info, "PG_hwpoison") }
    }

    /// The flag as a mask; 0 if no page is marked.
    pub(crate) fn flag(&self) -> u64 {
        self.flag
    }

    /// Returns whether the page is poisoned.
    #[inline]
    pub(crate) fn holds(&self, flags: u64) -> bool {
        flags & self.flag != 0
    }
}
