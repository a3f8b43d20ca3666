//! The classes of pages the guest fills memory with.

use serde::{Deserialize, Serialize};

/// How a stamped page is used, in the kernel's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u32)]
pub enum Class {
    /// Anonymous memory in 4 KiB pages.
    Anon = 1,
    /// Anonymous memory in transparent huge pages.
    AnonHuge = 2,
    /// Anonymous memory locked with mlock (on the unevictable list).
    AnonLocked = 3,
    /// Identical anonymous pages offered to KSM for merging.
    AnonMerged = 4,
    /// Anonymous pages that were written, but hold only zeros. They carry no stamp.
    AnonZero = 5,
    /// tmpfs files in 4 KiB pages.
    Shmem = 6,
    /// tmpfs files in huge pages.
    ShmemHuge = 7,
    /// Page cache of a file that was read (no buffer heads: PG_private clear).
    Cache = 8,
    /// Page cache of a file written on a file system with 1 KiB blocks (buffer heads: PG_private set).
    CachePrivate = 9,
    /// HugeTLB pages of 2 MiB.
    HugeTlb = 10,
    /// Pages that were stamped, then freed again. The kernel soon reuses some.
    Free = 11,
    /// Pages poisoned with MADV_HWPOISON.
    HwPoison = 12,
    /// Pages filled through pipes: kernel memory that every dump must keep.
    Pipe = 13,
    /// System V messages: slab memory that every dump must keep. Not page-aligned, so without PFNs.
    Message = 14,
    /// Memory given to the hypervisor through the balloon (PG_offline). Not stamped.
    Offline = 15,
}

impl Class {
    /// All classes, in the order of their numbers.
    pub const ALL: [Class; 15] = [
        Class::Anon,
        Class::AnonHuge,
        Class::AnonLocked,
        Class::AnonMerged,
        Class::AnonZero,
        Class::Shmem,
        Class::ShmemHuge,
        Class::Cache,
        Class::CachePrivate,
        Class::HugeTlb,
        Class::Free,
        Class::HwPoison,
        Class::Pipe,
        Class::Message,
        Class::Offline,
    ];

    /// Returns the class with this number, as stored in a stamp.
    pub fn from_number(number: u32) -> Option<Class> {
        Class::ALL.into_iter().find(|class| *class as u32 == number)
    }
}

impl std::fmt::Display for Class {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Class::Anon => "anon",
            Class::AnonHuge => "anon-huge",
            Class::AnonLocked => "anon-locked",
            Class::AnonMerged => "anon-merged",
            Class::AnonZero => "anon-zero",
            Class::Shmem => "shmem",
            Class::ShmemHuge => "shmem-huge",
            Class::Cache => "cache",
            Class::CachePrivate => "cache-private",
            Class::HugeTlb => "huge-tlb",
            Class::Free => "free",
            Class::HwPoison => "hw-poison",
            Class::Pipe => "pipe",
            Class::Message => "message",
            Class::Offline => "offline",
        };
        f.pad(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_names_and_serde_agree() {
        for class in Class::ALL {
            assert_eq!(Class::from_number(class as u32), Some(class));
            assert_eq!(serde_json::to_string(&class).unwrap(), format!("\"{class}\""));
        }
        assert_eq!(Class::from_number(0), None);
    }
}
