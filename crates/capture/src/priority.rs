//! What a page is worth to whoever opens the dump.

use std::ops::Range;

use pagehaul_kernel::{OwnPages, PageClass};
use pagehaul_physmem::bits;
use serde::Serialize;

/// How much is lost with a page, most first: pages are written in this order where the format allows, so that a dump
/// that has to end early has what matters. Tasks, backtraces and the log are in the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// The kernel's data, stacks, per-CPU data and page tables.
    KernelData,
    /// Slab objects.
    Slab,
    /// What the kernel and its modules run, which debuggers mostly take from their own copy.
    KernelText,
    /// Struct pages.
    StructPages,
    /// Other pages of the kernel.
    Kernel,
    /// Page cache.
    Cache,
    /// Memory of processes.
    User,
    /// Nobody's.
    Free,
}

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 8;

    /// All of them, in the order of writing.
    pub const ALL: [Self; Self::COUNT] = [
        Self::KernelData,
        Self::Slab,
        Self::KernelText,
        Self::StructPages,
        Self::Kernel,
        Self::Cache,
        Self::User,
        Self::Free,
    ];

    /// What reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelData => "kernel data",
            Self::Slab => "slab",
            Self::KernelText => "kernel text",
            Self::StructPages => "struct pages",
            Self::Kernel => "other kernel",
            Self::Cache => "cache",
            Self::User => "user",
            Self::Free => "free",
        }
    }

    /// What a page of `class` is priority, unless the kernel maps it for itself.
    fn of(class: PageClass) -> Self {
        match class {
            PageClass::PageTable => Self::KernelData,
            PageClass::Slab => Self::Slab,
            PageClass::Absent | PageClass::Kernel | PageClass::Undecided => Self::Kernel,
            PageClass::Cache | PageClass::CachePrivate => Self::Cache,
            PageClass::Anon | PageClass::HugeTlb => Self::User,
            PageClass::Free | PageClass::Unaccepted | PageClass::HwPoison | PageClass::Offline => Self::Free,
        }
    }

    /// Splits the pages set in `kept`, whose `classes` are those from PFN `first` on, into one set per [`Priority`].
    pub(crate) fn split(
        first: u64,
        classes: &[PageClass],
        kept: &[u64],
        own: &OwnPages,
        sets: &mut [Vec<u64>],
    ) {
        sets.iter_mut().for_each(|set| set.fill(0));
        for (index, (classes, &word)) in classes.chunks_exact(64).zip(kept).enumerate() {
            let mut rest = word;
            while rest != 0 {
                // Neighbours are mostly of one class: all of the next page's class at once.
                let class = classes[rest.trailing_zeros() as usize];
                let same = classes
                    .iter()
                    .enumerate()
                    .fold(0, |bits, (bit, &other)| bits | u64::from(other == class) << bit);
                sets[Self::of(class) as usize][index] |= rest & same;
                rest &= !same;
            }
        }
        // What is data to one mapping is data, whatever others make of it.
        let pages = first..first + classes.len() as u64;
        for (priority, runs) in [
            (Self::StructPages, &own.struct_pages),
            (Self::KernelText, &own.text),
            (Self::KernelData, &own.data),
        ] {
            for run in overlaps(runs, &pages) {
                for set in sets.iter_mut() {
                    bits::clear_range(set, run.start, run.end);
                }
                bits::set_range(&mut sets[priority as usize], run.start, run.end);
            }
            for (word, kept) in sets[priority as usize].iter_mut().zip(kept) {
                *word &= kept;
            }
        }
    }
}

/// The parts of `runs` within `pages`, counted from its start.
fn overlaps<'a>(
    runs: &'a [Range<u64>],
    pages: &'a Range<u64>,
) -> impl Iterator<Item = Range<usize>> + use<'a> {
    let from = runs.partition_point(|run| run.end <= pages.start);
    runs[from..].iter().take_while(|run| run.start < pages.end).map(|run| {
        let (start, end) = (run.start.max(pages.start), run.end.min(pages.end));
        (start - pages.start) as usize..(end - pages.start) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_page_is_in_one_set() {
        let mut classes = [PageClass::Kernel; 128];
        classes[..10].fill(PageClass::Slab);
        classes[70..80].fill(PageClass::Anon);
        let kept = [u64::MAX, u64::MAX - 1];
        let own = OwnPages {
            data: vec![1005..1008, 1120..2000],
            text: vec![0..1, 1000..1002],
            ..Default::default()
        };
        let mut sets = vec![vec![0; 2]; Priority::COUNT];
        Priority::split(1000, &classes, &kept, &own, &mut sets);
        for word in 0..2 {
            assert_eq!(sets.iter().fold(0, |all, set| all | set[word]), kept[word]);
            assert_eq!(sets.iter().map(|set| set[word].count_ones()).sum::<u32>(), kept[word].count_ones());
        }
        let set = |priority: Priority| bits::ones(&sets[priority as usize]).collect::<Vec<_>>();
        assert_eq!(set(Priority::KernelData), [5, 6, 7].into_iter().chain(120..128).collect::<Vec<_>>());
        assert_eq!(set(Priority::KernelText), [0, 1]);
        assert_eq!(set(Priority::Slab), [2, 3, 4, 8, 9]);
        assert_eq!(set(Priority::User), (70..80).collect::<Vec<_>>());
    }
}
