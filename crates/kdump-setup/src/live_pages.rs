//! What the pages of a running machine are used for, from `/proc/kpageflags` (`Documentation/admin-guide/mm/pagemap.rst` and
//! `fs/proc/page.c`, Linux 4.6 to 7.2).

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use pagehaul_machine::{PageSize, Pfn, PhysAddr};
use serde::Serialize;

use crate::release::Release;
use crate::root::Root;

/// Bits of a page's flags.
mod flag {
    pub(super) const LRU: u64 = 1 << 5;
    pub(super) const SLAB: u64 = 1 << 7;
    pub(super) const BUDDY: u64 = 1 << 10;
    pub(super) const ANON: u64 = 1 << 12;
    pub(super) const SWAPCACHE: u64 = 1 << 13;
    pub(super) const COMPOUND_HEAD: u64 = 1 << 15;
    pub(super) const COMPOUND_TAIL: u64 = 1 << 16;
    pub(super) const HUGE: u64 = 1 << 17;
    pub(super) const HWPOISON: u64 = 1 << 19;
    pub(super) const NOPAGE: u64 = 1 << 20;
    pub(super) const OFFLINE: u64 = 1 << 23;
    pub(super) const PRIVATE: u64 = 1 << 35;
}

/// Pages read at a time.
const BLOCK: u64 = 1 << 15;
/// PFNs kept of each use; twice as many at times.
const SAMPLE: usize = 8192;

/// What a page is used for, as dump levels distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageUse {
    /// The kernel's own, in every dump.
    Kernel,
    /// Page cache without private data.
    Cache,
    /// Page cache with private data.
    CachePrivate,
    /// Anonymous memory and HugeTLB pages.
    User,
    Free,
}

impl PageUse {
    /// All uses.
    pub const ALL: [Self; 5] = [Self::Kernel, Self::Cache, Self::CachePrivate, Self::User, Self::Free];

    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Cache => "cache",
            Self::CachePrivate => "cache-private",
            Self::User => "user",
            Self::Free => "free",
        }
    }

    /// Whether a dump of this level has such pages.
    pub fn is_kept(self, level: u8) -> bool {
        let bit = match self {
            Self::Kernel => return true,
            Self::Cache => 2,
            // makedumpfile's level 4 excludes both kinds.
            Self::CachePrivate => 4,
            Self::User => 8,
            Self::Free => 16,
        };
        level & bit == 0 && !(self == Self::Cache && level & 4 != 0)
    }

    /// The use of a page with these flags. `None` for pages that no dump has: holes, poisoned and offline ones.
    fn of(flags: u64) -> Option<Self> {
        let has = |bits: u64| flags & bits != 0;
        Some(if has(flag::NOPAGE | flag::HWPOISON | flag::OFFLINE) {
            return None;
        } else if has(flag::BUDDY) {
            Self::Free
        } else if has(flag::SLAB) {
            // Since 130d4df57390 (6.2) a slab keeps a number where other pages have `mapping`: an odd one shows as ANON.
            Self::Kernel
        } else if has(flag::ANON | flag::HUGE) {
            Self::User
        } else if !has(flag::LRU | flag::SWAPCACHE) {
            Self::Kernel
        } else if has(flag::PRIVATE) {
            Self::CachePrivate
        } else {
            Self::Cache
        })
    }
}

/// Pages of one use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsedPages {
    /// Their use.
    pub used_for: PageUse,
    /// Their number.
    pub pages: u64,
    /// Some of them, evenly spread.
    pub sample: Vec<Pfn>,
}

/// The memory of a running machine that a crash would leave to the capture kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivePages {
    /// The size of the machine's pages.
    pub page_size: PageSize,
    /// Pages by use, in the order of [`PageUse::ALL`].
    pub uses: Vec<UsedPages>,
    /// One more than the highest PFN.
    pub max_pfn: Pfn,
    /// Free pages in per-CPU lists: they have no mark, and count as the kernel's here and in dumps.
    pub per_cpu_free: u64,
    /// How many pages these lists may hold.
    pub per_cpu_most: u64,
}

/// Why the pages are not known.
#[derive(Debug, thiserror::Error)]
pub enum LivePagesError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Without root, all addresses in `/proc/iomem` are 0.
    #[error("/proc/iomem shows no addresses of memory; run as root")]
    NoAddresses,
}

impl LivePages {
    /// Counts the pages of System RAM, of `page_size` each, outside the memory reserved for the capture kernel. Needs root.
    pub fn read(root: &Root, page_size: PageSize) -> Result<Self, LivePagesError> {
        let ranges = memory(&root.text("/proc/iomem").unwrap_or_default(), page_size);
        let max_pfn = ranges.iter().map(|range| range.end).max().ok_or(LivePagesError::NoAddresses)?;
        let path = root.path("/proc/kpageflags");
        let failed = |source| LivePagesError::Io { path: path.clone(), source };
        let file = root.file("/proc/kpageflags").map_err(failed)?;
        let mut samplers = PageUse::ALL.map(|_| Sampler::default());
        let mut bytes = vec![0; BLOCK as usize * 8];
        for range in ranges {
            // Flags of the compound page that a page is part of: 6.1 shows some of them for its head only.
            let mut head = 0;
            let mut first = range.start;
            while first < range.end {
                let pages = BLOCK.min(range.end - first);
                let bytes = &mut bytes[..pages as usize * 8];
                let read = read_most(&file, bytes, first * 8).map_err(failed)?;
                for (pfn, word) in (first..).zip(bytes[..read].as_chunks::<8>().0) {
                    let mut flags = u64::from_ne_bytes(*word);
                    if flags & flag::COMPOUND_TAIL != 0 {
                        flags |= head;
                    } else {
                        head = if flags & flag::COMPOUND_HEAD != 0 { flags } else { 0 };
                    }
                    if let Some(used_for) = PageUse::of(flags) {
                        samplers[used_for as usize].add(pfn);
                    }
                }
                if read < bytes.len() {
                    break;
                }
                first += pages;
            }
        }
        let uses = PageUse::ALL.into_iter().zip(samplers);
        let uses = uses
            .map(|(used_for, sampler)| UsedPages {
                used_for,
                pages: sampler.pages,
                sample: sampler.sample.into_iter().map(Pfn::new).collect(),
            })
            .collect();
        let (per_cpu_free, per_cpu_most) = per_cpu(root);
        Ok(Self { page_size, uses, max_pfn: Pfn::new(max_pfn), per_cpu_free, per_cpu_most })
    }

    /// Counts the per-CPU lists again, after work that took pages from them. Pages that were added to them are what that work freed,
    /// and do not count.
    pub fn recount_per_cpu(&mut self, root: &Root) {
        let (free, _) = per_cpu(root);
        let taken = self.per_cpu_free.saturating_sub(free);
        let kernel = &mut self.uses[PageUse::Kernel as usize].pages;
        *kernel = kernel.saturating_sub(taken);
        self.per_cpu_free -= taken;
    }

    /// Pages of all uses.
    pub fn total(&self) -> u64 {
        self.uses.iter().map(|used| used.pages).sum()
    }
}

/// Reads until the end of the file; returns how much was read, whole entries.
fn read_most(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done / 8 * 8)
}

/// PFN ranges of "System RAM" without "Crash kernel", of a listing of `/proc/iomem`.
fn memory(text: &str, page_size: PageSize) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for (range, name) in text.lines().filter_map(|line| resource(line, page_size)) {
        match name {
            "System RAM" => ranges.push(range),
            // Nested: it follows the range that holds it.
            "Crash kernel" => {
                if let Some(last) = ranges.pop() {
                    ranges
                        .extend([last.start..range.start.min(last.end), range.end.max(last.start)..last.end]);
                }
            }
            _ => {}
        }
    }
    ranges.retain(|range| range.start < range.end);
    ranges
}

/// A line such as `  00100000-7ffdafff : System RAM`, as PFNs of whole pages.
fn resource(line: &str, page_size: PageSize) -> Option<(Range<u64>, &str)> {
    let (range, name) = line.split_once(" : ")?;
    let (first, last) = range.trim().split_once('-')?;
    let first = PhysAddr::new(u64::from_str_radix(first, 16).ok()?).next_pfn(page_size);
    let end = PhysAddr::new(u64::from_str_radix(last, 16).ok()?.checked_add(1)?).pfn(page_size);
    Some((first.number()..end.number(), name))
}

/// Since 90b41691b988 (6.7) the kernel lets a zone's per-CPU lists grow to this part of it (`MIN_PERCPU_PAGELIST_HIGH_FRACTION`).
const ZONE_SHARE: u64 = 8;

/// Pages in all per-CPU lists of `/proc/zoneinfo`, and how many they may hold.
fn per_cpu(root: &Root) -> (u64, u64) {
    let lists_grow =
        root.text("/proc/sys/kernel/osrelease").is_some_and(|release| Release(release).is_at_least(6, 7));
    let (mut pages, mut most) = (0u64, 0u64);
    for zone in root.text("/proc/zoneinfo").unwrap_or_default().split("Node ") {
        let sum = |wanted: &str| {
            let values = zone.lines().filter_map(|line| {
                let mut words = line.split_whitespace();
                words.next().filter(|name| *name == wanted)?;
                words.next()?.parse::<u64>().ok()
            });
            values.fold(0, u64::saturating_add)
        };
        pages = pages.saturating_add(sum("count:"));
        let share = if lists_grow { sum("managed") / ZONE_SHARE } else { 0 };
        most = most.saturating_add(sum("high:").max(share));
    }
    (pages, most)
}

/// Counts pages, and keeps one of so many.
#[derive(Default)]
struct Sampler {
    pages: u64,
    /// log2 of that number.
    shift: u32,
    sample: Vec<u64>,
}

impl Sampler {
    fn add(&mut self, pfn: u64) {
        self.pages += 1;
        if !is_sampled(pfn, self.shift) {
            return;
        }
        if self.sample.len() == 2 * SAMPLE {
            self.shift += 1;
            self.sample.retain(|pfn| is_sampled(*pfn, self.shift));
        }
        if is_sampled(pfn, self.shift) {
            self.sample.push(pfn);
        }
    }
}

/// Whether a page is one of 2^`shift`. Every 2^n-th page would not do: the kernel allocates in powers of two, and what it keeps
/// in the first page of an allocation is not typical of the others.
fn is_sampled(pfn: u64, shift: u32) -> bool {
    // Multiples of 2^64 over the golden ratio are spread evenly.
    pfn.wrapping_mul(0x9e37_79b9_7f4a_7c15).leading_zeros() >= shift
}

#[cfg(test)]
mod tests {
    use super::*;

    const IOMEM: &str = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n\
        00100000-3fffffff : System RAM\n  01000000-01ffffff : Kernel code\n  30000000-37ffffff : Crash kernel\n";

    #[test]
    fn reserved_memory_is_skipped() {
        let memory = |bytes| memory(IOMEM, PageSize::new(bytes).unwrap());
        assert_eq!(memory(4 << 10), [1..0x9f, 0x100..0x30000, 0x38000..0x40000]);
        // Parts of pages are not counted.
        assert_eq!(memory(16 << 10), [1..0x27, 0x40..0xc000, 0xe000..0x10000]);
        assert_eq!(super::memory("00000000-00000000 : System RAM\n", PageSize::KIB_4), []);
    }

    #[test]
    fn pages_are_counted_by_use_and_sampled() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("proc")).unwrap();
        std::fs::write(directory.path().join("proc/iomem"), "00000000-0fffffff : System RAM\n").unwrap();
        let mut flags = vec![0u64; 0x10000];
        flags[0x100..0x200].fill(flag::BUDDY);
        flags[0x200] = flag::COMPOUND_HEAD | flag::LRU | flag::PRIVATE;
        flags[0x201..0x240].fill(flag::COMPOUND_TAIL);
        flags[0x240] = flag::ANON | flag::LRU;
        flags[0x241] = flag::LRU;
        flags[0x242] = flag::HWPOISON | flag::LRU;
        flags[0x243] = flag::NOPAGE;
        flags[0x244] = flag::HUGE;
        flags[0x245] = flag::COMPOUND_TAIL;
        flags[0x246] = flag::SLAB | flag::ANON;
        let zoneinfo = |counts: [u32; 2]| {
            let [first, second] = counts;
            let text = format!(
                "Node 0, zone DMA\n  pages free 9\n        high     70\n        managed  80\n  pagesets\n    cpu: 0\n              count:    {first}\n              high:     9\n    cpu: 1\n              count: {second}\n              high:  8\nNode 0, zone Normal\n        managed  160\n    cpu: 0\n              high: 2\n"
            );
            std::fs::write(directory.path().join("proc/zoneinfo"), text).unwrap();
        };
        zoneinfo([7, 5]);
        let bytes: Vec<u8> = flags.iter().flat_map(|word| word.to_ne_bytes()).collect();
        std::fs::write(directory.path().join("proc/kpageflags"), bytes).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mut live = LivePages::read(&root, PageSize::KIB_4).unwrap();
        let pages: Vec<u64> = live.uses.iter().map(|used| used.pages).collect();
        assert_eq!(pages, [0x10000 - 0x100 - 64 - 5, 1, 64, 2, 256]);
        assert_eq!((live.total(), live.max_pfn), (0x10000 - 2, Pfn::new(0x10000)));
        assert_eq!((live.per_cpu_free, live.per_cpu_most), (12, 17 + 2));
        let kernel = &live.uses[0].sample;
        assert!((SAMPLE..=2 * SAMPLE).contains(&kernel.len()), "{}", kernel.len());
        assert!(kernel.is_sorted() && *kernel.last().unwrap() > Pfn::new(0xff00));
        let first_of_eight = kernel.iter().filter(|pfn| pfn.number() % 8 == 0).count();
        assert!((kernel.len() / 9..kernel.len() / 7).contains(&first_of_eight), "{first_of_eight}");
        assert_eq!(live.uses[2].sample, (0x200..0x240).map(Pfn::new).collect::<Vec<_>>());

        std::fs::create_dir_all(directory.path().join("proc/sys/kernel")).unwrap();
        std::fs::write(directory.path().join("proc/sys/kernel/osrelease"), "6.12.107+deb13-amd64\n").unwrap();
        zoneinfo([6, 3]);
        let kernel = live.uses[0].pages;
        live.recount_per_cpu(&root);
        assert_eq!((live.per_cpu_free, live.uses[0].pages), (9, kernel - 3));
        // What this process frees is not counted.
        zoneinfo([60, 3]);
        live.recount_per_cpu(&root);
        assert_eq!((live.per_cpu_free, live.uses[0].pages), (9, kernel - 3));
        // A zone of 80 pages lets its lists have 10, less than they have; one of 160 lets them have 20.
        assert_eq!(LivePages::read(&root, PageSize::KIB_4).unwrap().per_cpu_most, 17 + 20);
    }

    #[test]
    fn levels_exclude_what_makedumpfile_does() {
        let kept = |level| PageUse::ALL.map(|used_for| used_for.is_kept(level));
        assert_eq!(kept(0), [true; 5]);
        assert_eq!(kept(1), [true; 5]);
        assert_eq!(kept(2), [true, false, true, true, true]);
        assert_eq!(kept(4), [true, false, false, true, true]);
        assert_eq!(kept(31), [true, false, false, false, false]);
    }
}
