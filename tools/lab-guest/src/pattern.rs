//! Pages with a pattern that says whose they are: the scenarios `keys` and `patterns` give some to processes, a cgroup and file systems,
//! and dumps are searched for them.

use std::ops::Range;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Pages of each pattern.
pub const PAGES: u64 = 512;
/// What each page begins with.
pub const TAG: u64 = 0x9a6e_0f5c_e9e0_47a6;

/// A pattern, by who has its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pattern {
    /// Anonymous memory of the process `scene-kept`; it must not touch half of them.
    Kept,
    /// Anonymous memory of the process `scene-other`.
    Other,
    /// Anonymous memory of the process `scene-grouped`, in the cgroup `/scene/inner`.
    Grouped,
    /// A file of tmpfs that this process wrote and does not map any more.
    GroupedFile,
    /// A file of ramfs, written by a process in no cgroup.
    Ramfs,
    /// A huge page of hugetlb of the process `scene-grouped`.
    GroupedHuge,
    /// A file of XFS, written by a process in no cgroup.
    Xfs,
    /// Anonymous memory of the process `scene-swapped`, in the cgroup `/scene/swapped`, which maps none of them: the first half has been
    /// written to swap and is still in the swap cache, the third quarter has been read into it again, the last one is in swap only.
    Swapped,
    /// Anonymous memory of the process `scene-numa`, in the other node than its CPU.
    Numa,
}

/// The pages of [`Pattern::Swapped`] that are in the swap cache.
pub const IN_SWAP_CACHE: Range<u64> = 0..PAGES / 4 * 3;

impl Pattern {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Kept,
        Self::Other,
        Self::Grouped,
        Self::GroupedFile,
        Self::Ramfs,
        Self::GroupedHuge,
        Self::Xfs,
        Self::Swapped,
        Self::Numa,
    ];

    /// Returns the word at `index` of a page.
    pub fn word(self, page: u64, index: usize) -> u64 {
        match index {
            0 => TAG,
            1 => (self as u64) << 32 | page,
            // No word twice, and no zeros.
            _ => ((self as u64 + 1) << 48 | page << 16 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Returns which page of which pattern `bytes` begin, and whether they are all of it.
    pub fn find(bytes: &[u8]) -> Option<(Self, u64, bool)> {
        let word = |index: usize| Some(u64::from_le_bytes(*bytes.get(8 * index..)?.first_chunk()?));
        if word(0)? != TAG {
            return None;
        }
        let id = word(1)?;
        let pattern = Self::ALL.into_iter().find(|pattern| *pattern as u64 == id >> 32)?;
        let page = id & 0xffff_ffff;
        let is_whole = (0..PAGE / 8).all(|index| word(index) == Some(pattern.word(page, index)));
        (page < PAGES).then_some((pattern, page, is_whole))
    }
}
