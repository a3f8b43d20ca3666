//! What a page is used for.

/// What a page was used for when the kernel died. One byte, so that a block's classes are an
/// array of bytes.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum PageClass {
    /// No struct page describes this PFN: memory the kernel never managed, or a hole. Kept where memory exists.
    #[default]
    Absent,
    /// Kernel memory of no class below. Kept at every level.
    Kernel,
    /// A page table, where the kernel says so (6.12 and later). Kept at every level.
    PageTable,
    /// Slab objects. Kept at every level.
    Slab,
    /// File or shmem page cache without filesystem data in `private`.
    Cache,
    /// File page cache with filesystem data (buffer heads, say) in `private`.
    CachePrivate,
    /// Anonymous memory of processes, KSM pages too.
    Anon,
    /// A page of hugetlbfs.
    HugeTlb,
    /// Free, in the buddy allocator.
    Free,
    /// Memory the confidential guest never accepted.
    Unaccepted,
    /// Poisoned by a memory error: reading it could stop the machine. Excluded at every level.
    HwPoison,
    /// Given back to the hypervisor (balloon, virtio-mem): reading it may fail. Excluded at every level.
    Offline,
    /// Its struct page could not be read, was not examined, or contradicts its neighbours: kept at every level.
    Undecided,
}

impl PageClass {
    /// The number of classes; `class as usize` is smaller.
    pub const COUNT: usize = 13;

    /// Every class, in the order of its number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Absent,
        Self::Kernel,
        Self::PageTable,
        Self::Slab,
        Self::Cache,
        Self::CachePrivate,
        Self::Anon,
        Self::HugeTlb,
        Self::Free,
        Self::Unaccepted,
        Self::HwPoison,
        Self::Offline,
        Self::Undecided,
    ];

    /// Returns the class with a number, [`Undecided`](Self::Undecided) for the others. Written out, so that it becomes a
    /// comparison of many numbers at once.
    pub(crate) const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Absent,
            1 => Self::Kernel,
            2 => Self::PageTable,
            3 => Self::Slab,
            4 => Self::Cache,
            5 => Self::CachePrivate,
            6 => Self::Anon,
            7 => Self::HugeTlb,
            8 => Self::Free,
            9 => Self::Unaccepted,
            10 => Self::HwPoison,
            11 => Self::Offline,
            _ => Self::Undecided,
        }
    }

    /// Returns whether a dump level excludes pages of this class: those of processes, files and free blocks.
    #[inline]
    pub(crate) const fn is_filtered(self) -> bool {
        // Their numbers follow each other: one comparison, of many pages at once.
        (self as u8).wrapping_sub(Self::Cache as u8) <= Self::Unaccepted as u8 - Self::Cache as u8
    }

    /// Returns the name in reports and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Absent => "no-struct-page",
            Self::Kernel => "kernel",
            Self::PageTable => "page-table",
            Self::Slab => "slab",
            Self::Cache => "cache",
            Self::CachePrivate => "cache-private",
            Self::Anon => "anon",
            Self::HugeTlb => "hugetlb",
            Self::Free => "free",
            Self::Unaccepted => "unaccepted",
            Self::HwPoison => "hwpoison",
            Self::Offline => "offline",
            Self::Undecided => "undecided",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_number() {
        for class in PageClass::ALL {
            assert_eq!(PageClass::from_number(class as u8), class);
        }
        assert_eq!(PageClass::from_number(PageClass::COUNT as u8), PageClass::Undecided);
    }

    #[test]
    fn filtered_classes_are_those_that_a_level_excludes() {
        for class in PageClass::ALL {
            let always = crate::level::DumpLevel::NONE.excludes(class);
            assert_eq!(
                class.is_filtered(),
                crate::level::DumpLevel::ALL.excludes(class) && !always,
                "{class:?}"
            );
        }
    }

    #[test]
    fn classes_are_numbered_from_zero() {
        for (number, class) in PageClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, number);
        }
    }
}
