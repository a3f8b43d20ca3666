//! Speed and ratio of every codec and level, against the dirtiness of the data and on real pages; and the zero test
//! against a plain sum.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use fastrand::Rng;
use pagehaul_codec::{Compressor, Method, is_zero};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SHIFT, PAGE_SIZE, PageBuf, bits};
use pagehaul_vmcore::Source;
use serde::Serialize;

use crate::error::BenchError;
use crate::pages;

/// The default methods.
pub const METHODS: &str = "zlib:1,zlib:6,lzo,snappy,zstd:-5,zstd:-3,zstd:-1,zstd:1,zstd:3";
/// Percent of incompressible bytes.
pub const DIRTINESS: [u8; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// Pages of each dirtiness: 4 MiB, more than the second cache holds.
const PAGES: usize = 1024;
/// PFNs that are sampled together.
const BLOCK: usize = 1 << 15;

/// One method on one kind of pages, one thread.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodecRate {
    /// Codec and level.
    pub method: String,
    /// Percent of incompressible bytes; none for real pages.
    pub dirtiness: Option<u8>,
    /// Bytes of memory compressed per second.
    pub speed: f64,
    /// Bytes of memory over bytes stored.
    pub ratio: f64,
    /// Share of pages that do not shrink and are stored uncompressed.
    pub raw: f64,
}

/// The zero test next to a plain sum over the same bytes, in the same run; bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ZeroTest {
    /// Bytes, more than any cache holds.
    pub bytes: usize,
    /// The zero test, on zero pages.
    pub test: f64,
    pub sum: f64,
}

/// Measures every method at every dirtiness, about `time` for each figure.
pub fn by_dirtiness(methods: &[Method], time: Duration) -> Result<Vec<CodecRate>, BenchError> {
    let mut rates = Vec::new();
    for dirtiness in DIRTINESS {
        let mut noise = Rng::with_seed(u64::from(dirtiness));
        let sample: Vec<PageBuf> = (0..PAGES).map(|_| pages::page(dirtiness, &mut noise)).collect();
        for &method in methods {
            rates.push(CodecRate { dirtiness: Some(dirtiness), ..measure(method, &sample, time)? });
        }
    }
    Ok(rates)
}

/// Measures every method on the pages of `sample`.
pub fn on_pages(
    methods: &[Method],
    sample: &[PageBuf],
    time: Duration,
) -> Result<Vec<CodecRate>, BenchError> {
    methods.iter().map(|&method| measure(method, sample, time)).collect()
}

/// Returns about `count` pages of a dump or vmcore, spread evenly over those it holds. Zero pages are skipped, as in a
/// dump.
pub fn sample(path: &Path, count: usize) -> Result<Vec<PageBuf>, BenchError> {
    let source = Source::open(path, MapPolicy::default())?;
    let memory = source.memory();
    let last = memory.ranges().end() >> PAGE_SHIFT;
    let mut words = vec![0; BLOCK / 64];
    let mut held = 0;
    for first in (0..last).step_by(BLOCK) {
        memory.mark_stored(PhysAddr::of_4k_page(first), &mut words)?;
        held += bits::count(&words);
    }
    let step = (held / count.max(1) as u64).max(1);
    let (mut seen, mut sample) = (0, Vec::new());
    let (mut view, mut scratch) = (memory.view(), [0; PAGE_SIZE]);
    for first in (0..last).step_by(BLOCK) {
        memory.mark_stored(PhysAddr::of_4k_page(first), &mut words)?;
        for index in bits::ones(&words) {
            seen += 1;
            if seen % step != 0 {
                continue;
            }
            // Unreadable pages are not part of the sample.
            if let Ok(page) = view.page(PhysAddr::of_4k_page(first + index as u64), &mut scratch)
                && !is_zero(page)
            {
                sample.push(*page);
            }
        }
    }
    if sample.is_empty() {
        return Err(BenchError::Wrong(format!("{} holds zero pages only", path.display())));
    }
    Ok(sample)
}

/// Measures the zero test over 256 MiB of zeros.
pub fn zero_test(time: Duration) -> ZeroTest {
    let bytes = 256 << 20;
    let mut zeros = vec![0u8; bytes];
    // Write every page: reading untouched memory maps the shared zero page, which stays in the CPU cache.
    zeros.iter_mut().step_by(PAGE_SIZE).for_each(|byte| *byte = black_box(0));
    let pages = zeros.as_chunks::<PAGE_SIZE>().0;
    let sum = |page: &PageBuf| {
        page.as_chunks::<8>().0.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
    };
    let (mut tests, mut sums) = (Vec::new(), Vec::new());
    let start = Instant::now();
    // Alternating, so that other load on the machine affects both.
    while start.elapsed() < time || tests.len() < 3 {
        tests.push(seconds(|| {
            black_box(pages.iter().all(is_zero_page));
        }));
        sums.push(seconds(|| {
            black_box(pages.iter().map(sum).fold(0, u64::wrapping_add));
        }));
    }
    ZeroTest { bytes, test: bytes as f64 / median(tests), sum: bytes as f64 / median(sums) }
}

fn is_zero_page(page: &PageBuf) -> bool {
    is_zero(black_box(page))
}

fn measure(method: Method, pages: &[PageBuf], time: Duration) -> Result<CodecRate, BenchError> {
    let mut compressor = Compressor::new(method)?;
    let mut out = [0; PAGE_SIZE];
    let (mut stored, mut raw) = (0, 0);
    let mut pass = |compressor: &mut Compressor| {
        (stored, raw) = (0, 0);
        for page in pages {
            match compressor.compress(page, &mut out) {
                Some(size) => stored += size,
                None => (stored, raw) = (stored + PAGE_SIZE, raw + 1),
            }
        }
    };
    let mut passes = Vec::new();
    let start = Instant::now();
    while start.elapsed() < time || passes.len() < 3 {
        passes.push(seconds(|| pass(&mut compressor)));
    }
    let bytes = (pages.len() * PAGE_SIZE) as f64;
    Ok(CodecRate {
        method: method.to_string(),
        dirtiness: None,
        speed: bytes / median(passes),
        ratio: bytes / stored as f64,
        raw: raw as f64 / pages.len() as f64,
    })
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirt_makes_ratios_worse_until_nothing_shrinks() {
        let methods = ["lzo".parse().unwrap(), "zstd:-1".parse().unwrap()];
        let rates = by_dirtiness(&methods, Duration::ZERO).unwrap();
        assert_eq!(rates.len(), DIRTINESS.len() * 2);
        for method in ["lzo", "zstd:-1"] {
            let ratios: Vec<f64> = rates.iter().filter(|r| r.method == method).map(|r| r.ratio).collect();
            assert!(ratios.is_sorted_by(|a, b| a >= b), "{method}: {ratios:?}");
            assert!(ratios[0] > 2.5 && ratios[10] == 1.0, "{method}: {ratios:?}");
        }
        assert!(rates.iter().all(|rate| rate.speed > 0.0));
    }

    #[test]
    fn samples_are_of_pages_with_something_in_them() {
        let mut machine = pagehaul_synth::Machine::new(pagehaul_synth::Era::V6_12);
        let image = machine.anon(0x4000).fill(0x4000, pagehaul_synth::Content::Text).build();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), image.elf().bytes()).unwrap();
        let all = sample(file.path(), usize::MAX).unwrap();
        assert!(!all.is_empty() && all.iter().all(|page| page.iter().any(|byte| *byte != 0)));
        assert!(sample(file.path(), 100).unwrap().len() <= 101);
    }
}
