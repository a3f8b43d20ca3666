//! Rates and contents of a running machine, through `/proc/kcore`: what a prediction for its capture kernel needs.

use std::hint::black_box;
use std::time::Duration;

use pagehaul_codec::{Compressor, Method, is_zero};
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_machine::{Pfn, PhysAddr};
use pagehaul_physmem::{PAGE_SIZE, PageBuf};
use pagehaul_vmcore::Source;
use rustix::time::{ClockId, clock_gettime};

use crate::BenchError;

/// Pages compressed between two readings of the clock: 1 MiB, which fits caches.
const BATCH: usize = 256;

/// Returns the time that a processor worked for this thread. Other programs run next to a measurement, but not in the capture
/// kernel that it is for.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// The result of packing a sample of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Contents {
    /// Readable pages.
    pub pages: u64,
    /// Zero pages among them.
    pub zero: u64,
    /// Bytes stored for them.
    pub stored: u64,
    /// Seconds that one CPU took to test and compress them.
    pub seconds: f64,
}

/// Packs these pages of a source, on one CPU. Unreadable pages are skipped.
pub fn contents(source: &Source, pfns: &[u64], method: Method) -> Result<Contents, BenchError> {
    let mut compressor = Compressor::new(method)?;
    let mut view = source.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    let mut found = Contents::default();
    let mut pages: Vec<PageBuf> = Vec::with_capacity(BATCH);
    for pfns in pfns.chunks(BATCH) {
        pages.clear();
        // Reading is measured separately: a capture reads long runs of pages.
        pages.extend(
            pfns.iter().filter_map(|&pfn| view.page(PhysAddr::of_4k_page(pfn), &mut scratch).ok().copied()),
        );
        found.pack(&mut compressor, &pages);
    }
    Ok(found)
}

impl Contents {
    /// Packs pages and discards them.
    pub(crate) fn pack(&mut self, compressor: &mut Compressor, pages: &[PageBuf]) {
        let mut out = [0; PAGE_SIZE];
        let start = cpu_time();
        for page in pages {
            if is_zero(page) {
                self.zero += 1;
            } else {
                self.stored += compressor.compress(page, &mut out).unwrap_or(PAGE_SIZE) as u64;
            }
        }
        self.seconds += (cpu_time() - start).as_secs_f64();
        self.pages += pages.len() as u64;
    }
}

/// Pages of a run, and number of runs, to measure reading.
const ROW: u64 = 256;
const ROWS: usize = 64;

/// Returns the seconds that reading a page takes, measured on runs of pages that begin at some of these. 0 if none is readable.
pub fn read(source: &Source, pfns: &[u64]) -> f64 {
    let mut view = source.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    let (mut pages, mut spent) = (0u64, Duration::ZERO);
    for &first in pfns.iter().step_by(pfns.len().div_ceil(ROWS).max(1)) {
        let start = cpu_time();
        for pfn in first..first.saturating_add(ROW) {
            if view.page(PhysAddr::of_4k_page(pfn), &mut scratch).is_err() {
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
pub fn scan(source: &Source, max_pfn: u64, time: Duration) -> Option<ScanRate> {
    let memory = source.memory();
    let start = cpu_time();
    let kernel = Kernel::discover(memory).ok()?;
    black_box(kernel.kernel_mapped_pages(memory));
    let found = (cpu_time() - start).as_secs_f64();
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let blocks = kernel.blocks(Pfn::new(max_pfn));
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
