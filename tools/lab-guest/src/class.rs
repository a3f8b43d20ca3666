//! The classes of pages the guest fills memory with.

use serde::{Deserialize, Serialize};

/// What kind of page a stamped page is, as the kernel that owned it would say.
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
    /// Anonymous pages that were written, but hold only zeroes. They carry no stamp.
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
    /// Pages that were stamped, then given back to the kernel. Some are soon used for something else.
    Free = 11,
    /// Pages poisoned with MADV_HWPOISON.
    HwPoison = 12,
    /// Pages filled through pipes: kernel memory that every dump must keep.
    Pipe = 13,
    /// System V messages: slab memory that every dump must keep. Not page-aligned, so without page frame numbers.
    Message = 14,
    /// Memory handed to the hypervisor through the balloon (PG_offline). Not stamped.
    Offline = 15,
}

/// Bits of a dump level, as the field's readers and writers number them.
pub mod level {
    /// Pages of zeroes.
    pub const ZERO: u32 = 1;
    /// Page cache without private data.
    pub const CACHE: u32 = 2;
    /// Page cache with or without private data.
    pub const CACHE_PRIVATE: u32 = 4;
    /// Anonymous and HugeTLB pages.
    pub const USER: u32 = 8;
    /// Free pages.
    pub const FREE: u32 = 16;
}

impl Class {
    /// Every class, in the order of their numbers.
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

    /// The class with this number, as it stands in a stamp.
    pub fn from_number(number: u32) -> Option<Class> {
        Class::ALL.into_iter().find(|class| *class as u32 == number)
    }

    /// Whether a dump of this level (0-31) drops the class. Pages of class `Free` that were reused since are
    /// the exception: they belong to whoever holds them now.
    pub fn dropped_at(self, dump_level: u32) -> bool {
        let bits = match self {
            Class::Anon | Class::AnonHuge | Class::AnonLocked | Class::AnonMerged | Class::HugeTlb => {
                level::USER
            }
            Class::AnonZero => level::USER | level::ZERO,
            Class::Shmem | Class::ShmemHuge | Class::Cache => level::CACHE | level::CACHE_PRIVATE,
            Class::CachePrivate => level::CACHE_PRIVATE,
            Class::Free => level::FREE,
            Class::HwPoison | Class::Offline => return true,
            Class::Pipe | Class::Message => return false,
        };
        dump_level & bits != 0
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

    #[test]
    fn levels_drop_what_the_field_says() {
        assert!(
            !Class::ALL.iter().any(|c| c.dropped_at(0) && !matches!(c, Class::HwPoison | Class::Offline))
        );
        assert!(Class::Cache.dropped_at(2) && !Class::CachePrivate.dropped_at(2));
        assert!(Class::CachePrivate.dropped_at(4) && Class::Cache.dropped_at(4));
        assert!(Class::HugeTlb.dropped_at(8) && !Class::Shmem.dropped_at(8));
        assert!(!Class::Pipe.dropped_at(31) && !Class::Message.dropped_at(31));
    }
}
