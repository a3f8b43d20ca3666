//! Slab pages.

use pagehaul_machine::VmcoreInfo;

/// How slab pages are marked: by a flag until 46df8e73a4a3 (6.10), by a page type since. The flag has no default:
/// its bit is PG_waiters since 6.10.
#[derive(Debug, Clone)]
pub(crate) struct Slab {
    /// `PG_slab`, as a mask; 0 if slab is a page type.
    flag: u64,
    known: bool,
}

impl Slab {
    pub(super) fn new(info: &VmcoreInfo) -> Self {
        let flag = super::cache::flag(info, "PG_slab");
        Self { flag, known: flag != 0 || info.number("PAGE_SLAB_MAPCOUNT_VALUE").is_some() }
    }

    /// The flag as a mask; 0 if slab is a page type.
    pub(crate) fn flag(&self) -> u64 {
        self.flag
    }

    /// Returns whether the page is slab by its flags. Must precede the page type: slab allocators keep counters in
    /// `_mapcount` if slab is a flag.
    #[inline]
    pub(crate) fn by_flag(&self, flags: u64) -> bool {
        flags & self.flag != 0
    }

    /// Returns whether slab pages can be recognized.
    pub(super) fn known(&self) -> bool {
        self.known
    }
}
