//! Page cache: of files, and of shmem, which is swapped like anonymous memory but belongs to files.

use crate::class::PageClass;
use crate::error::KernelError;
use crate::undecidable::Undecidable;
use pagehaul_machine::VmcoreInfo;

/// On an LRU list and not anonymous, or in the swap cache and not anonymous (shmem on its way out or in).
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    lru: u64,
    /// Flags that together mark the swap cache; 0 if they are unknown.
    swap: u64,
    /// `PG_private`: filesystem data in `private`; 0 if unknown.
    private: u64,
}

impl Cache {
    pub(super) fn new(info: &VmcoreInfo, gaps: &mut Vec<Undecidable>) -> Result<Self, KernelError> {
        let lru = flag(info, "PG_lru");
        let lru = info.required((lru != 0).then_some(lru), "NUMBER(PG_lru)", "telling page cache")?;
        let private = flag(info, "PG_private");
        if private == 0 {
            gaps.push(Undecidable {
                class: PageClass::Cache,
                missing: "NUMBER(PG_private)",
                consequence: "all page cache counts as cache with filesystem data",
            });
        }
        let (swapcache, swapbacked) = (flag(info, "PG_swapcache"), flag(info, "PG_swapbacked"));
        // 6326fec1122c (4.10) made PG_swapcache an alias of PG_owner_priv_1, which is below PG_private and means swap
        // cache only together with PG_swapbacked; that key is exported since 1cbf29da3628 (4.17). Before 4.10 the flag
        // was above PG_private and had a bit of its own.
        let swap = if swapcache == 0 || swapbacked != 0 {
            if swapcache == 0 { 0 } else { swapcache | swapbacked }
        } else if private != 0 && swapcache > private {
            swapcache
        } else {
            gaps.push(Undecidable {
                class: PageClass::Cache,
                missing: "NUMBER(PG_swapbacked)",
                consequence: "pages of the swap cache that are on no LRU list are kept",
            });
            0
        };
        Ok(Self { lru, swap, private })
    }

    /// The flag of pages on an LRU list, as a mask.
    pub(crate) fn lru(&self) -> u64 {
        self.lru
    }

    /// The flags that together mark the swap cache; 0 if they are unknown.
    pub(crate) fn swap(&self) -> u64 {
        self.swap
    }

    /// The flag of filesystem data, as a mask; 0 if unknown: every page then counts as having some.
    pub(crate) fn private(&self) -> u64 {
        self.private
    }

    /// Returns the class of a page that is neither slab nor typed nor anonymous.
    #[inline]
    pub(super) fn class(&self, flags: u64) -> PageClass {
        // Neighbours often differ in class; a table lookup avoids mispredicted branches.
        const CLASSES: [PageClass; 4] =
            [PageClass::Kernel, PageClass::Kernel, PageClass::Cache, PageClass::CachePrivate];
        let cached = (flags & self.lru != 0) | (self.swap != 0) & (flags & self.swap == self.swap);
        let private = (self.private == 0) | (flags & self.private != 0);
        CLASSES[usize::from(cached) * 2 + usize::from(private)]
    }
}

/// Returns the mask of a page flag, which is exported as a bit number; 0 if it is not exported or exceeds a word.
pub(super) fn flag(info: &VmcoreInfo, name: &str) -> u64 {
    info.number(name).and_then(|bit| 1u64.checked_shl(u32::try_from(bit).ok()?)).unwrap_or(0)
}
