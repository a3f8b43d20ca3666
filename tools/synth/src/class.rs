//! The use of a page, and its expected page class.

use crate::Era;
use crate::era::PageType;

/// The page class that a capture should find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The kernel's, or of unknown use: kept at every level.
    Kernel,
    /// Page cache without private data: excluded at levels with bit 2 or 4.
    Cache,
    /// Page cache with private data: excluded at levels with bit 4.
    CachePrivate,
    /// Memory of processes: excluded at levels with bit 8.
    User,
    /// Free in the page allocator: excluded at levels with bit 16.
    Free,
    /// Poisoned hardware: always excluded.
    HwPoison,
    /// Returned to the hypervisor: always excluded.
    Offline,
}

impl Class {
    /// Returns whether a dump of `level` (bits 2, 4, 8, 16) excludes pages of this class.
    pub fn is_excluded(self, level: u32) -> bool {
        match self {
            Class::Kernel => false,
            Class::Cache => level & (2 | 4) != 0,
            Class::CachePrivate => level & 4 != 0,
            Class::User => level & 8 != 0,
            Class::Free => level & 16 != 0,
            Class::HwPoison | Class::Offline => true,
        }
    }
}

/// The use of a page. Several uses belong to one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Anonymous memory on an LRU list; of order > 0 a transparent huge page or large folio.
    Anon,
    /// Anonymous memory merged by KSM.
    Ksm,
    /// Anonymous memory that is in the swap cache too.
    AnonSwapcache,
    /// File page.
    Cache,
    /// File page with buffers.
    CachePrivate,
    /// tmpfs or shared memory.
    Shmem,
    /// Read ahead from swap: no owner yet, not on an LRU list.
    Swapcache,
    /// HugeTLB page in use or in the pool.
    Hugetlb,
    /// HugeTLB page with an optimized vmemmap.
    HugetlbOptimized,
    /// Free, in the buddy allocator.
    Buddy,
    /// Free, not yet accepted by the confidential guest.
    Unaccepted,
    Slab,
    PageTable,
    /// Poisoned, and unused.
    HwPoison,
    /// Ballooned away or unplugged.
    Offline,
    /// Allocated by the kernel.
    Kernel,
    /// Reserved at boot.
    Reserved,
    /// Movable, not on an LRU list: balloon, zsmalloc before it had a page type.
    Movable,
    /// zsmalloc, which keeps an offset below its page type.
    Zsmalloc,
    /// kmalloc too large for slab; has a page type from 6.15.
    LargeKmalloc,
    /// Compound page of a driver.
    Compound,
    /// PG_owner_priv_1 set by a file system (PG_checked), off the LRU: not a swap cache page, although the
    /// bit is the same.
    Checked,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 22] = [
        Kind::Anon,
        Kind::Ksm,
        Kind::AnonSwapcache,
        Kind::Cache,
        Kind::CachePrivate,
        Kind::Shmem,
        Kind::Swapcache,
        Kind::Hugetlb,
        Kind::HugetlbOptimized,
        Kind::Buddy,
        Kind::Unaccepted,
        Kind::Slab,
        Kind::PageTable,
        Kind::HwPoison,
        Kind::Offline,
        Kind::Kernel,
        Kind::Reserved,
        Kind::Movable,
        Kind::Zsmalloc,
        Kind::LargeKmalloc,
        Kind::Compound,
        Kind::Checked,
    ];

    /// Returns the page class that a capture can find on a kernel of `era`.
    pub fn class(self, era: Era) -> Class {
        match self {
            Kind::Anon | Kind::Ksm | Kind::AnonSwapcache | Kind::Hugetlb | Kind::HugetlbOptimized => {
                Class::User
            }
            Kind::Cache | Kind::Shmem | Kind::Swapcache => Class::Cache,
            Kind::CachePrivate => Class::CachePrivate,
            Kind::Buddy => Class::Free,
            // The key is exported from 6.16 on.
            Kind::Unaccepted if era >= Era::V6_16 => Class::Free,
            Kind::HwPoison => Class::HwPoison,
            // The page type came with 5.0 (ca215086b14b).
            Kind::Offline if era.page_type(PageType::Offline).is_some() => Class::Offline,
            _ => Class::Kernel,
        }
    }

    /// Returns whether blocks of order > 0 are compound pages. Free ones are not.
    pub(crate) fn is_compound(self) -> bool {
        !matches!(self, Kind::Buddy | Kind::Unaccepted | Kind::Kernel | Kind::Reserved | Kind::Offline)
    }
}
