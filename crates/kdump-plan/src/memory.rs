//! How many pages a dump of this machine would have, how well they compress, and how fast.

use std::time::Duration;

use pagehaul_bench::BenchError;
use pagehaul_bench::contents::Contents;
use pagehaul_codec::Method;
use pagehaul_kdump::{Layout, PageDesc};
use pagehaul_kdump_setup::{LivePages, PageUse, Root};
use pagehaul_machine::{PageSize, Pfn};
use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::Source;
use serde::Serialize;

use crate::live::{self, ScanRate};

/// A running kernel's memory.
const KCORE: &str = "/proc/kcore";
/// How long the scan is measured.
const SCAN_TIME: Duration = Duration::from_millis(300);
/// Bytes of ELF notes of a vmcore: VMCOREINFO, and registers of each CPU.
const NOTES: u64 = 8 << 10;

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Measured here.
    Measured,
    /// Given by who asks.
    Given,
    /// Assumed: nothing better is known.
    Assumed,
}

/// Pages of one use.
#[derive(Debug, Clone, Serialize)]
pub struct Class {
    /// The use's name.
    pub name: &'static str,
    /// Their number.
    pub pages: u64,
    /// Share of pages of zeros, which take no room in a dump.
    pub zero: f64,
    /// Bytes stored per page, zeros included.
    pub stored: f64,
    /// Microseconds that one CPU packs a page.
    pub microseconds: f64,
    /// Where the figures of its contents come from.
    pub contents: Origin,
    #[serde(skip)]
    used_for: PageUse,
}

/// A machine's memory as a capture would find it.
#[derive(Debug, Clone, Serialize)]
pub struct Memory {
    /// Its pages by use.
    pub classes: Vec<Class>,
    pub page_size: PageSize,
    /// Where the numbers of pages come from.
    pub pages: Origin,
    /// One more than the highest PFN.
    pub max_pfn: u64,
    /// Free pages in per-CPU lists, which count as the kernel's.
    per_cpu_free: u64,
    /// How many these lists may hold.
    per_cpu_most: u64,
    /// Struct pages that one CPU classifies per second.
    pub scan: f64,
    /// Seconds before the scan.
    pub start: f64,
    /// Seconds that reading a page takes.
    pub read: f64,
    /// Where the rates come from.
    pub rates: Origin,
    /// Why something is assumed.
    pub notes: Vec<String>,
}

/// Share of each use on a machine of which only the size is known.
const SHARES: [f64; 5] = [0.06, 0.30, 0.04, 0.45, 0.15];
/// Zero pages, bytes stored per page, and microseconds per page of 4 KiB by zstd level 1: about what the lab's guests and a vmcore of
/// real files had on one CPU (docs/benchmarks/2026-11-22-capture.md).
const ASSUMED: Contents = Contents { pages: 100, zero: 15, stored: 100 * 1200, seconds: 100.0 * 8e-6 };
/// The same of pages that are copied as they are.
const ASSUMED_COPIED: Contents = Contents { stored: (100 - 15) * 4096, seconds: 100.0 * 1e-6, ..ASSUMED };
/// Struct pages per second of one CPU, from docs/benchmarks/2026-11-21-scale.md.
const ASSUMED_SCAN: ScanRate = ScanRate { start: 0.1, pages: 2.0e8 };

/// Seconds to read 4 KiB: 4 GiB/s.
const ASSUMED_READ: f64 = 1e-6;

impl Memory {
    /// Examines the running kernel, as far as it lets itself be read.
    pub(crate) fn of_running_kernel(
        root: &Root,
        mut live: LivePages,
        method: Method,
    ) -> Result<Self, BenchError> {
        let mut notes = Vec::new();
        let source = match Source::open(KCORE.as_ref(), MapPolicy::default()) {
            Ok(source) => Some(source),
            Err(error) => {
                notes.push(format!("contents of pages are assumed: {error}"));
                None
            }
        };
        let pfns: Vec<Pfn> = live.uses.iter().flat_map(|used| used.sample.iter().copied()).collect();
        let read = source.as_ref().map_or(ASSUMED_READ * live.page_size.parts() as f64, |source| {
            live::read(source, live.page_size, &pfns)
        });
        let mut measured = Vec::new();
        for used in &live.uses {
            measured.push(match &source {
                Some(source) => live::contents(source, live.page_size, &used.sample, method)?,
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
        let classes = uses
            .map(|(used, measured)| {
                let measured = Some(measured).filter(|measured| measured.pages > 0);
                Class::new(used.used_for, used.pages, measured, method, live.page_size)
            })
            .collect();
        Ok(Self {
            classes,
            page_size: live.page_size,
            pages: Origin::Measured,
            max_pfn: live.max_pfn.number(),
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
    pub(crate) fn assumed(bytes: u64, page_size: PageSize, method: Method, why: String) -> Self {
        let pages = bytes >> page_size.shift();
        let share =
            |(used_for, share)| Class::new(used_for, (pages as f64 * share) as u64, None, method, page_size);
        let classes = PageUse::ALL.into_iter().zip(SHARES).map(share).collect();
        let ScanRate { start, pages: scan } = ASSUMED_SCAN;
        Self {
            classes,
            page_size,
            pages: Origin::Assumed,
            max_pfn: pages,
            per_cpu_free: 0,
            per_cpu_most: 0,
            scan,
            start,
            read: ASSUMED_READ * page_size.parts() as f64,
            rates: Origin::Assumed,
            notes: vec![why],
        }
    }

    /// Bytes of memory that a capture goes through.
    pub fn bytes(&self) -> u64 {
        self.page_size.bytes_of(self.classes.iter().map(|class| class.pages).sum())
    }

    /// What a dump of `level` would hold.
    pub fn dump(&self, level: u8) -> Dump {
        let kept = || self.classes.iter().filter(move |class| class.used_for.is_kept(level));
        let pages = kept().map(|class| class.pages).sum();
        let sum = |of: fn(&Class) -> f64| kept().map(|class| class.pages as f64 * of(class)).sum::<f64>();
        let stored = sum(|class| class.stored);
        let tables =
            Layout::new(self.page_size, self.max_pfn, NOTES).map_or(0, |layout| layout.descriptors_offset());
        let fixed = tables + pages * PageDesc::SIZE as u64 + self.page_size.bytes() as u64;
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

    fn new(
        used_for: PageUse,
        pages: u64,
        measured: Option<Contents>,
        method: Method,
        page_size: PageSize,
    ) -> Self {
        let assumed = if method == Method::NONE { ASSUMED_COPIED } else { ASSUMED };
        // What is assumed is of pages of 4 KiB.
        let (of, parts, contents) = match measured {
            Some(measured) => (measured, 1, Origin::Measured),
            None => (assumed, page_size.parts(), Origin::Assumed),
        };
        let sampled = of.pages as f64 / parts as f64;
        Self {
            name: used_for.name(),
            pages,
            zero: of.zero as f64 / of.pages as f64,
            stored: of.stored as f64 / sampled,
            microseconds: of.seconds * 1e6 / sampled,
            contents,
            used_for,
        }
    }
}

/// A dump of one level.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Dump {
    pub level: u8,
    pub pages: u64,
    /// Size of the file.
    pub bytes: u64,
    /// The size if the free pages in per-CPU lists, which count as the kernel's, leave them before the crash.
    pub least: u64,
    /// The size if these lists fill up, and the kernel its pages of zeros, before the crash.
    pub most: u64,
    #[serde(skip)]
    pub(crate) stored: f64,
    /// Seconds that one CPU packs its pages.
    #[serde(skip)]
    pub(crate) cpu_seconds: f64,
}

#[cfg(test)]
mod tests {
    use pagehaul_codec::Codec;

    use super::*;

    fn assumed(page_kib: u64, method: Method) -> Memory {
        Memory::assumed(1 << 40, PageSize::new(page_kib << 10).unwrap(), method, String::new())
    }

    #[test]
    fn what_is_not_compressed_is_assumed_to_be_stored_whole() {
        for page_kib in [4, 64] {
            let dump = assumed(page_kib, Method::NONE).dump(30);
            let kept = dump.pages * (page_kib << 10);
            assert!(dump.bytes > kept * 84 / 100 && dump.bytes < kept * 87 / 100, "{} of {kept}", dump.bytes);
            let packed = assumed(page_kib, Method::default_of(Codec::Zstd)).dump(30);
            assert!(packed.bytes * 2 < dump.bytes, "{} {}", packed.bytes, dump.bytes);
        }
    }

    #[test]
    fn sizes_are_a_range_by_what_may_become_of_the_kernels_pages() {
        let class = |used_for, pages| {
            let contents = Contents { pages: 100, zero: 20, stored: 80 * 1000, seconds: 1.0 };
            Class::new(used_for, pages, Some(contents), Method::NONE, PageSize::KIB_4)
        };
        let memory = Memory {
            classes: [PageUse::Kernel, PageUse::User, PageUse::Free].map(|of| class(of, 1000)).into(),
            pages: Origin::Measured,
            per_cpu_free: 50,
            per_cpu_most: 90,
            ..assumed(4, Method::NONE)
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

    #[test]
    fn machines_of_larger_pages_have_fewer_of_them() {
        let of = |kib| assumed(kib, Method::default_of(Codec::Zstd));
        let (small, large) = (of(4), of(64));
        assert_eq!((small.max_pfn, large.max_pfn), (1 << 28, 1 << 24));
        assert!(small.bytes().abs_diff(large.bytes()) < 1 << 20);
        let (small, large) = (small.dump(31), large.dump(31));
        assert!(small.stored / large.stored < 1.001 && large.stored / small.stored < 1.001);
        assert!(
            small.cpu_seconds / large.cpu_seconds < 1.001 && large.cpu_seconds / small.cpu_seconds < 1.001
        );
        // One descriptor for sixteen.
        assert!(small.bytes - large.bytes > small.pages * 20);
    }
}
