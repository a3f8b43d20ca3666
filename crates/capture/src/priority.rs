//! The priority of pages: which are written first.

use std::ops::Range;

use pagehaul_kernel::{KernelMappedPages, PageClass};
use pagehaul_physmem::bits;
use serde::Serialize;

/// The priority of a page, highest first. Pages are written in this order where the format allows, so that a dump that ends
/// early has what matters most. Tasks, backtraces and the log are in the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// Pages that the caller wants first: those that a crash report is made of.
    First,
    /// The kernel's data, stacks, per-CPU data and page tables.
    KernelData,
    /// Slab objects.
    Slab,
    /// Code of the kernel and its modules, which debuggers mostly read from vmlinux.
    KernelText,
    StructPages,
    /// Other pages of the kernel.
    Kernel,
    /// Page cache.
    Cache,
    /// Memory of processes.
    User,
    /// Free memory.
    Free,
}

impl Priority {
    /// The number of priorities.
    pub const COUNT: usize = 9;

    /// All priorities, in the order of writing.
    pub const ALL: [Self; Self::COUNT] = [
        Self::First,
        Self::KernelData,
        Self::Slab,
        Self::KernelText,
        Self::StructPages,
        Self::Kernel,
        Self::Cache,
        Self::User,
        Self::Free,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "crash report",
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

    /// Returns the priority of a page of `class` that the kernel does not map for itself.
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

    /// Divides the pages of `kept`, with `classes` from PFN `first`, into one set per [`Priority`].
    pub(crate) fn split(
        first: u64,
        classes: &[PageClass],
        kept: &[u64],
        ordered: &OrderedPages,
        sets: &mut [Vec<u64>],
    ) {
        sets.iter_mut().for_each(|set| set.fill(0));
        for (index, (classes, &word)) in classes.chunks_exact(64).zip(kept).enumerate() {
            let mut rest = word;
            while rest != 0 {
                // Adjacent pages are mostly of one class: take all of the next page's class at once.
                let class = classes[rest.trailing_zeros() as usize];
                let same = classes
                    .iter()
                    .enumerate()
                    .fold(0, |bits, (bit, &other)| bits | u64::from(other == class) << bit);
                sets[Self::of(class) as usize][index] |= rest & same;
                rest &= !same;
            }
        }
        // A page that one mapping uses as data is data, whatever other mappings use it for.
        let pages = first..first + classes.len() as u64;
        for (priority, runs) in [
            (Self::StructPages, &ordered.kernel.struct_pages),
            (Self::KernelText, &ordered.kernel.text),
            (Self::KernelData, &ordered.kernel.data),
            (Self::First, &ordered.first),
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

/// Runs of PFNs, ascending and apart, that decide about the priority of their pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct OrderedPages {
    /// Pages that the caller wants first.
    pub(crate) first: Vec<Range<u64>>,
    /// Pages that the kernel maps for itself.
    pub(crate) kernel: KernelMappedPages,
}

/// Returns the parts of `runs` within `pages`, relative to its start.
pub(crate) fn overlaps<'a>(
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
        let kernel = KernelMappedPages {
            data: vec![1005..1008, 1120..2000],
            text: vec![0..1, 1000..1002],
            ..Default::default()
        };
        let ordered = OrderedPages { first: vec![1001..1002, 1007..1008, 1064..1066], kernel };
        let mut sets = vec![vec![0; 2]; Priority::COUNT];
        Priority::split(1000, &classes, &kept, &ordered, &mut sets);
        for word in 0..2 {
            assert_eq!(sets.iter().fold(0, |all, set| all | set[word]), kept[word]);
            assert_eq!(sets.iter().map(|set| set[word].count_ones()).sum::<u32>(), kept[word].count_ones());
        }
        let set = |priority: Priority| bits::ones(&sets[priority as usize]).collect::<Vec<_>>();
        // PFN 1064 is not kept.
        assert_eq!(set(Priority::First), [1, 7, 65]);
        assert_eq!(set(Priority::KernelData), [5, 6].into_iter().chain(120..128).collect::<Vec<_>>());
        assert_eq!(set(Priority::KernelText), [0]);
        assert_eq!(set(Priority::Slab), [2, 3, 4, 8, 9]);
        assert_eq!(set(Priority::User), (70..80).collect::<Vec<_>>());
    }
}
