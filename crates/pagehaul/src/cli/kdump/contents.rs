//! How many pages a dump of this machine would have, how well they compress, and how fast.

use std::time::Duration;

use pagehaul_bench::live::{self, Contents, ScanRate};
use pagehaul_codec::Method;
use pagehaul_kdump::{Layout, PageDesc};
use pagehaul_kdump_setup::{LivePages, PageUse, Root};
use pagehaul_machine::PageSize;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE};
use pagehaul_vmcore::Source;
use serde::Serialize;

/// A running kernel's memory.
const KCORE: &str = "/proc/kcore";
/// How long the scan is measured.
const SCAN_TIME: Duration = Duration::from_millis(300);
/// Bytes of ELF notes of a vmcore: VMCOREINFO, and registers of each CPU.
const NOTES: u64 = 8 << 10;

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Origin {
    /// Measured here.
    Measured,
    /// Assumed: nothing better is known.
    Assumed,
}

/// Pages of one use.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Class {
    pub(super) name: &'static str,
    pub(super) pages: u64,
    /// Share of pages of zeros, which take no room in a dump.
    pub(super) zero: f64,
    /// Bytes stored per page, zeros included.
    pub(super) stored: f64,
    /// Microseconds that one CPU packs a page.
    pub(super) microseconds: f64,
    pub(super) contents: Origin,
    #[serde(skip)]
    used_for: PageUse,
}

/// A machine's memory as a capture would find it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Memory {
    pub(super) classes: Vec<Class>,
    /// Where the numbers of pages come from.
    pub(super) pages: Origin,
    pub(super) max_pfn: u64,
    /// Free pages in per-CPU lists, which count as the kernel's.
    per_cpu_free: u64,
    /// How many these lists may hold.
    per_cpu_most: u64,
    /// Struct pages that one CPU classifies per second.
    pub(super) scan: f64,
    /// Seconds before the scan.
    pub(super) start: f64,
    /// Seconds that reading a page takes.
    pub(super) read: f64,
    pub(super) rates: Origin,
    /// Why something is assumed.
    pub(super) notes: Vec<String>,
}

/// Share of each use on a machine of which only the size is known.
const SHARES: [f64; 5] = [0.06, 0.30, 0.04, 0.45, 0.15];
/// Zero pages, bytes stored per page, and microseconds per page by zstd level 1: about what the lab's guests and a vmcore of
/// real files had on one CPU (docs/benchmarks/2026-11-22-capture.md).
const ASSUMED: Contents = Contents { pages: 100, zero: 15, stored: 100 * 1200, seconds: 100.0 * 8e-6 };
/// Struct pages per second of one CPU, from docs/benchmarks/2026-11-21-scale.md.
const ASSUMED_SCAN: ScanRate = ScanRate { start: 0.1, pages: 2.0e8 };

/// Seconds to read a page: 4 GiB/s.
const ASSUMED_READ: f64 = 1e-6;

impl Memory {
    /// Examines the running kernel, as far as it lets itself be read.
    pub(super) fn of_running_kernel(
        root: &Root,
        mut live: LivePages,
        method: Method,
    ) -> anyhow::Result<Self> {
        let mut notes = Vec::new();
        let source = match Source::open(KCORE.as_ref(), MapPolicy::default()) {
            Ok(source) => Some(source),
            Err(error) => {
                notes.push(format!("contents of pages are assumed: {error}"));
                None
            }
        };
        let pfns: Vec<u64> = live.uses.iter().flat_map(|used| used.sample.iter().copied()).collect();
        let read = source.as_ref().map_or(ASSUMED_READ, |source| live::read(source, &pfns));
        let mut measured = Vec::new();
        for used in &live.uses {
            measured.push(match &source {
                Some(source) => live::contents(source, &used.sample, method)?,
                None => Contents::default(),
            });
        }
        let scan = source.as_ref().and_then(|source| live::scan(source, live.max_pfn, SCAN_TIME));
        if source.is_some() && scan.is_none() {
            notes.push(format!("the rate of the scan is assumed: no kernel is found in {KCORE}"));
        }
        let rates = if scan.is_some() { Origin::Measured } else { Origin::Assumed };
        let ScanRate { start, pages } = scan.unwrap_or(ASSUMED_SCAN);
        // All this took memory from the per-CPU lists.
        live.recount_per_cpu(root);
        let uses = live.uses.iter().zip(measured);
        let classes = uses.map(|(used, measured)| Class::new(used.used_for, used.pages, measured)).collect();
        Ok(Self {
            classes,
            pages: Origin::Measured,
            max_pfn: live.max_pfn,
            per_cpu_free: live.per_cpu_free,
            per_cpu_most: live.per_cpu_most,
            scan: pages,
            start,
            read,
            rates,
            notes,
        })
    }

    /// Assumes what a machine with `bytes` of memory uses it for.
    pub(super) fn assumed(bytes: u64, why: String) -> Self {
        let pages = bytes / PAGE_SIZE as u64;
        let share =
            |(used_for, share)| Class::new(used_for, (pages as f64 * share) as u64, Contents::default());
        let classes = PageUse::ALL.into_iter().zip(SHARES).map(share).collect();
        let ScanRate { start, pages: scan } = ASSUMED_SCAN;
        Self {
            classes,
            pages: Origin::Assumed,
            max_pfn: pages,
            per_cpu_free: 0,
            per_cpu_most: 0,
            scan,
            start,
            read: ASSUMED_READ,
            rates: Origin::Assumed,
            notes: vec![why],
        }
    }

    /// Bytes of memory that a capture goes through.
    pub(super) fn bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.pages).sum::<u64>() * PAGE_SIZE as u64
    }

    /// What a dump of `level` would hold.
    pub(super) fn dump(&self, level: u8) -> Dump {
        let kept = || self.classes.iter().filter(move |class| class.used_for.is_kept(level));
        let pages = kept().map(|class| class.pages).sum();
        let sum = |of: fn(&Class) -> f64| kept().map(|class| class.pages as f64 * of(class)).sum::<f64>();
        let stored = sum(|class| class.stored);
        let tables =
            Layout::new(PageSize::KIB_4, self.max_pfn, NOTES).map_or(0, |layout| layout.descriptors_offset());
        let fixed = tables + pages * PageDesc::SIZE as u64 + PAGE_SIZE as u64;
        let bytes = fixed + stored as u64;
        let class = |used_for| self.classes.iter().find(|class| class.used_for == used_for);
        let (kernel, user) = (class(PageUse::Kernel), class(PageUse::User));
        let (fewer, more) = kernel.zip(user).map_or((0.0, 0.0), |(kernel, user)| {
            let filled = kernel.pages as f64 * kernel.zero * kernel.stored_of_nonzero();
            if PageUse::Free.is_kept(level) {
                return (0.0, filled);
            }
            let with_descriptor = |stored| PageDesc::SIZE as f64 + stored;
            let freed = self.per_cpu_free.min(kernel.pages) as f64;
            // What exiting processes leave is in most of these pages.
            let added = self.per_cpu_most.saturating_sub(self.per_cpu_free) as f64;
            (freed * with_descriptor(kernel.stored), filled + added * with_descriptor(user.stored))
        });
        Dump {
            level,
            pages,
            bytes,
            least: bytes.saturating_sub(fewer as u64),
            most: bytes.saturating_add(more as u64),
            stored,
            cpu_seconds: sum(|class| class.microseconds) / 1e6,
        }
    }
}

impl Class {
    /// Bytes stored for a page that is not zero.
    fn stored_of_nonzero(&self) -> f64 {
        if self.zero < 1.0 { self.stored / (1.0 - self.zero) } else { 0.0 }
    }

    fn new(used_for: PageUse, pages: u64, measured: Contents) -> Self {
        let contents = if measured.pages > 0 { Origin::Measured } else { Origin::Assumed };
        let of = if contents == Origin::Measured { measured } else { ASSUMED };
        let sampled = of.pages as f64;
        Self {
            name: used_for.name(),
            pages,
            zero: of.zero as f64 / sampled,
            stored: of.stored as f64 / sampled,
            microseconds: of.seconds * 1e6 / sampled,
            contents,
            used_for,
        }
    }
}

/// A dump of one level.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Dump {
    pub(super) level: u8,
    pub(super) pages: u64,
    /// Size of the file.
    pub(super) bytes: u64,
    /// The size if the free pages in per-CPU lists, which count as the kernel's, leave them before the crash.
    pub(super) least: u64,
    /// The size if these lists fill up, and the kernel its pages of zeros, before the crash.
    pub(super) most: u64,
    #[serde(skip)]
    pub(super) stored: f64,
    /// Seconds that one CPU packs its pages.
    #[serde(skip)]
    pub(super) cpu_seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_a_range_by_what_may_become_of_the_kernels_pages() {
        let class = |used_for, pages| {
            Class::new(used_for, pages, Contents { pages: 100, zero: 20, stored: 80 * 1000, seconds: 1.0 })
        };
        let memory = Memory {
            classes: [PageUse::Kernel, PageUse::User, PageUse::Free].map(|of| class(of, 1000)).into(),
            pages: Origin::Measured,
            per_cpu_free: 50,
            per_cpu_most: 90,
            ..Memory::assumed(1 << 30, String::new())
        };
        let dump = memory.dump(31);
        // 50 pages of 800 bytes on average, with their descriptors; 200 pages of zeros become pages of 1000 bytes, and 40 pages
        // join the lists.
        let more = 200 * 1000 + 40 * (800 + 24);
        assert_eq!((dump.bytes - dump.least, dump.most - dump.bytes), (50 * (800 + 24), more));
        // Free pages are kept: it does not matter how many are on the lists.
        let dump = memory.dump(0);
        assert_eq!((dump.bytes - dump.least, dump.most - dump.bytes), (0, 200 * 1000));
    }
}
