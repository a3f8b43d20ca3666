//! Rates and contents of a running machine, through `/proc/kcore`: what a prediction for its capture kernel needs.

use std::hint::black_box;
use std::time::Duration;

use pagehaul_bench::BenchError;
use pagehaul_bench::contents::{Contents, cpu_time};
use pagehaul_codec::{Compressor, Method};
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_machine::{PageSize, Pfn};
use pagehaul_vmcore::Source;

/// Bytes compressed between two readings of the clock: they fit caches.
const BATCH: usize = 1 << 20;

/// Packs these pages of a source, on one CPU. Unreadable pages are skipped.
pub fn contents(
    source: &Source,
    page_size: PageSize,
    pfns: &[Pfn],
    method: Method,
) -> Result<Contents, BenchError> {
    let mut compressor = Compressor::new(method)?;
    let mut view = source.memory().view();
    let mut scratch = vec![0; page_size.bytes()];
    let mut found = Contents::default();
    let mut pages = Vec::with_capacity(BATCH);
    for pfns in pfns.chunks(BATCH >> page_size.shift()) {
        pages.clear();
        // Reading is measured separately: a capture reads long runs of pages.
        for pfn in pfns {
            if let Ok(page) = view.block(pfn.start(page_size).get(), &mut scratch) {
                pages.extend_from_slice(page);
            }
        }
        found.pack(&mut compressor, page_size, &pages);
    }
    Ok(found)
}

/// Bytes of a run, and number of runs, to measure reading.
const ROW: u64 = 1 << 20;
const ROWS: usize = 64;

/// Returns the seconds that reading a page takes, measured on runs of pages that begin at some of these. 0 if none is readable.
pub fn read(source: &Source, page_size: PageSize, pfns: &[Pfn]) -> f64 {
    let mut view = source.memory().view();
    let mut scratch = vec![0; page_size.bytes()];
    let (mut pages, mut spent) = (0u64, Duration::ZERO);
    for first in pfns.iter().step_by(pfns.len().div_ceil(ROWS).max(1)) {
        let start = cpu_time();
        for pfn in first.number()..first.number().saturating_add(ROW >> page_size.shift()) {
            if view.block(page_size.bytes_of(pfn), &mut scratch).is_err() {
                break;
            }
            black_box(&scratch);
            pages += 1;
        }
        spent += cpu_time() - start;
    }
    if pages == 0 { 0.0 } else { spent.as_secs_f64() / pages as f64 }
}

/// How fast one CPU classifies pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanRate {
    /// Seconds to find the kernel and the pages that it maps, once per capture.
    pub start: f64,
    /// Struct pages per second.
    pub pages: f64,
}

/// Classifies pages in blocks spread over the memory of a running kernel for about `time`. `None` if the kernel is not found.
pub fn scan(source: &Source, max_pfn: Pfn, time: Duration) -> Option<ScanRate> {
    let memory = source.memory();
    let start = cpu_time();
    let kernel = Kernel::discover(memory).ok()?;
    black_box(kernel.kernel_mapped_pages(memory));
    let found = (cpu_time() - start).as_secs_f64();
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let blocks = kernel.blocks(max_pfn);
    let (mut pages, mut spent) = (0, Duration::ZERO);
    // Every 61st block, then every 61st from the second: the ends of memory are not typical.
    for block in (0..61).flat_map(|first| (first..blocks).step_by(61)) {
        let start = cpu_time();
        if scanner.scan(block, &mut classes).is_ok() {
            spent += cpu_time() - start;
            pages += classes.iter().filter(|class| **class != PageClass::Absent).count();
        }
        if spent >= time {
            break;
        }
    }
    (pages > 0).then(|| ScanRate { start: found, pages: pages as f64 / spent.as_secs_f64().max(1e-9) })
}
