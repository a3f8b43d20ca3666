//! What a page is, and what a dump should make of it.

use crate::Era;
use crate::era::PageType;

/// What a capture should take a page for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The kernel's own, or nothing that can be told: kept at every level.
    Kernel,
    /// Page cache without private data: dropped at levels with bit 2 or 4.
    Cache,
    /// Page cache with private data: dropped at levels with bit 4.
    CachePrivate,
    /// Memory of processes: dropped at levels with bit 8.
    User,
    /// In the page allocator: dropped at levels with bit 16.
    Free,
    /// Its hardware failed: always dropped.
    HwPoison,
    /// Given back to the hypervisor: always dropped.
    Offline,
}

impl Class {
    /// Whether a dump of `level` (bits 2, 4, 8, 16) leaves pages of this class out.
    pub fn is_dropped(self, level: u32) -> bool {
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

/// What a page is used for. More than classes: several uses look alike to a dump, or should and once did not.
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
    /// HugeTLB page that gave its vmemmap pages back.
    HugetlbOptimised,
    /// Free, in the buddy allocator.
    Buddy,
    /// Free, not yet accepted by the confidential guest.
    Unaccepted,
    /// Slab.
    Slab,
    /// Page table.
    PageTable,
    /// Poisoned, and of no other use any more.
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
    /// PG_owner_priv_1 set by a file system (PG_checked), off the LRU: no swap cache page, for all that the bit is
    /// the same.
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
        Kind::HugetlbOptimised,
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

    /// What a capture can know such a page for, on a kernel of `era`.
    pub fn class(self, era: Era) -> Class {
        match self {
            Kind::Anon | Kind::Ksm | Kind::AnonSwapcache | Kind::Hugetlb | Kind::HugetlbOptimised => {
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

    /// Whether pages of order > 0 are compound: struck by one head. Free ones are not.
    pub(crate) fn is_compound(self) -> bool {
        !matches!(self, Kind::Buddy | Kind::Unaccepted | Kind::Kernel | Kind::Reserved | Kind::Offline)
    }
}
