//! Runs captures of simulated machines, to show that time grows with the machine's size and memory use does not.
//!
//! Every struct page is classified. Where packing every kept page would take too long, only a sample of page blocks is
//! packed, spread evenly over the machine, and the run records it; all bitmaps and descriptors are those of the whole
//! machine's PFNs. The dump goes to a file in the given directory, is checked, and removed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pagehaul_bench::BenchError;
use pagehaul_capture::{CaptureReport, Options, Target, capture};
use pagehaul_codec::Method;
use pagehaul_kernel::DumpLevel;
use pagehaul_run::{Progress, memory};
use pagehaul_vmcore::Source;
use serde::Serialize;

use crate::offsets::{self, Offsets};
use crate::simulated::Simulated;

/// The sizes of the full sweep: 1 GiB to 64 TiB.
pub const SIZES: [u64; 11] =
    [1 << 30, 8 << 30, 64 << 30, 256 << 30, 1 << 40, 2 << 40, 4 << 40, 8 << 40, 16 << 40, 32 << 40, 64 << 40];
/// The bound on anonymous memory, less 8 MiB for each thread.
const BOUND: u64 = 32 << 20;
const BOUND_PER_THREAD: u64 = 8 << 20;
/// Time between two samples of memory use.
const LOOK: Duration = Duration::from_millis(2);

/// Parameters of a sweep.
#[derive(Debug, Clone)]
pub struct Config {
    /// Bytes of memory of each machine, whole sections of 128 MiB.
    pub sizes: Vec<u64>,
    /// Dump levels.
    pub levels: Vec<DumpLevel>,
    /// How pages are packed.
    pub method: Method,
    /// Threads that scan and pack.
    pub threads: usize,
    /// Directory for dumps and for the contents of the machines.
    pub scratch: PathBuf,
    /// Runs of each machine of less than 16 TiB; the one of median time counts.
    pub rounds: usize,
}

/// One machine, one level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Bytes of memory.
    pub memory: u64,
    /// The dump level.
    pub level: u8,
    /// Threads that scanned and packed.
    pub threads: usize,
    /// Codec and level.
    pub codec: String,
    /// One of this many page blocks was packed.
    pub sample: u64,
    /// Seconds finding the kernel.
    pub prepare: f64,
    /// Seconds classifying every struct page, and writing both bitmaps.
    pub scan: f64,
    /// Seconds packing and writing the sample, and walking the bitmap of all.
    pub pack: f64,
    /// Seconds waiting for the disk.
    pub finish: f64,
    /// Pages packed.
    pub pages: u64,
    /// Bytes stored for them.
    pub stored: u64,
    /// Highest sampled use of anonymous memory.
    pub peak_anonymous: u64,
    /// Its limit.
    pub bound: u64,
    /// The descriptors of the dump.
    pub offsets: Offsets,
}

impl Run {
    /// Seconds of scanning per TiB of memory.
    pub fn scan_per_tib(&self) -> f64 {
        self.scan / tib(self.memory)
    }

    /// Seconds of packing per TiB of memory, extrapolated from the sample.
    pub fn pack_per_tib(&self) -> f64 {
        self.pack * self.sample as f64 / tib(self.memory)
    }

    /// Struct pages classified per second.
    pub fn scan_rate(&self) -> f64 {
        self.memory as f64 / 4096.0 / self.scan
    }

    /// Bytes of memory packed per second.
    pub fn pack_rate(&self) -> f64 {
        self.pages as f64 * 4096.0 / self.pack
    }

    /// Bytes packed over bytes stored.
    pub fn ratio(&self) -> f64 {
        self.pages as f64 * 4096.0 / self.stored.max(1) as f64
    }

    /// Share of the machine's memory that is kept.
    pub fn kept(&self) -> f64 {
        (self.pages * self.sample) as f64 * 4096.0 / self.memory as f64
    }
}

/// Bytes in TiB.
pub fn tib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 40) as f64
}

/// Runs the sweep; `done` is called after each run.
pub fn run(config: &Config, done: &mut dyn FnMut(&Run)) -> Result<Vec<Run>, BenchError> {
    let mut runs = Vec::new();
    for &level in &config.levels {
        for &size in &config.sizes {
            let rounds = if size < 16 << 40 { config.rounds.max(1) } else { 1 };
            let mut tried = (0..rounds).map(|_| one(config, size, level)).collect::<Result<Vec<_>, _>>()?;
            let peak = tried.iter().map(|run| run.peak_anonymous).max().unwrap_or(0);
            tried.sort_by(|a, b| (a.scan + a.pack).total_cmp(&(b.scan + b.pack)));
            let mut run = tried.swap_remove(rounds / 2);
            run.peak_anonymous = peak;
            done(&run);
            runs.push(run);
        }
    }
    Ok(runs)
}

/// Returns, per level, the largest over the smallest time per TiB, from 1 TiB up.
pub fn spread(runs: &[Run], level: u8) -> Option<f64> {
    let times = || {
        let large = runs.iter().filter(move |run| run.level == level && run.memory >= 1 << 40);
        large.map(|run| run.scan_per_tib() + run.pack_per_tib())
    };
    let (least, most) = (times().fold(f64::INFINITY, f64::min), times().fold(0.0, f64::max));
    (times().count() > 1).then_some(most / least)
}

/// Returns of how many page blocks one is packed: 1 up to 8 GiB, and the same from 1 TiB up, so that machines compare.
fn sample(size: u64, level: DumpLevel) -> u64 {
    match (size >= 1 << 40, level == DumpLevel::NONE) {
        (false, _) => (size >> 33).next_power_of_two(),
        (true, false) => 512,
        (true, true) => 4096,
    }
}

fn one(config: &Config, size: u64, level: DumpLevel) -> Result<Run, BenchError> {
    let sample = sample(size, level);
    let machine = Simulated::new(size, sample, &config.scratch)?;
    let source = Source::simulated(Path::new("simulated machine"), Box::new(machine));
    let directory = tempfile::tempdir_in(&config.scratch).map_err(|source| BenchError::Io {
        path: config.scratch.clone(),
        action: "make a temporary directory in",
        source,
    })?;
    let path = directory.path().join("dump");
    let target = Target::File { path: path.clone(), overwrite: false };
    let options = Options::new(level, config.method.into(), config.threads);
    let (report, peak) = watched(|progress| capture(&source, &target, &options, progress));
    let report = report?;
    if !report.outcome.is_success() {
        return Err(BenchError::Wrong(format!(
            "the capture of {size} bytes ended early: {:?}",
            report.outcome
        )));
    }
    let offsets = offsets::check(&path)?;
    Ok(describe(config, size, sample, &report, peak, offsets))
}

/// Runs `work` and samples memory use meanwhile. Returns the highest sample.
fn watched<T>(work: impl FnOnce(&Progress) -> T) -> (T, u64) {
    give_back();
    let progress = Progress::default();
    let (over, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let look = || {
            while !over.load(Ordering::Relaxed) {
                peak.fetch_max(anonymous(), Ordering::Relaxed);
                // The sampling interval; it waits for no event.
                thread::sleep(LOOK);
            }
        };
        // Without a thread, memory use is sampled at the end only.
        let _ = thread::Builder::new().spawn_scoped(scope, look);
        let result = work(&progress);
        peak.fetch_max(anonymous(), Ordering::Relaxed);
        over.store(true, Ordering::Relaxed);
        (result, peak.load(Ordering::Relaxed))
    })
}

/// Bytes of anonymous memory in use now.
fn anonymous() -> u64 {
    memory::bytes_in("/proc/self/status", "RssAnon:").unwrap_or(0)
}

/// Returns freed memory of earlier runs to the system: a capture runs in a fresh process.
fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only releases unused pages of the allocator.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn describe(
    config: &Config,
    memory: u64,
    sample: u64,
    report: &CaptureReport,
    peak: u64,
    offsets: Offsets,
) -> Run {
    Run {
        memory,
        level: report.level,
        threads: config.threads,
        codec: report.codec.clone(),
        sample,
        prepare: report.seconds.prepare,
        scan: report.seconds.scan,
        pack: report.seconds.pack,
        finish: report.seconds.finish,
        pages: report.pages_kept,
        stored: report.stored_bytes,
        peak_anonymous: peak,
        bound: BOUND + BOUND_PER_THREAD * config.threads as u64,
        offsets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_captured_whole_and_within_the_bound() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config {
            sizes: vec![1 << 30, 16 << 30],
            levels: vec![DumpLevel::ALL],
            method: "lzo".parse().unwrap(),
            threads: 2,
            scratch: directory.path().to_owned(),
            rounds: 1,
        };
        let mut told = 0;
        let runs = run(&config, &mut |_| told += 1).unwrap();
        assert_eq!((runs.len(), told), (2, 2));
        for run in &runs {
            assert!(run.peak_anonymous <= run.bound, "{run:?}");
            assert_eq!(run.offsets.checked, run.pages);
            assert!(run.offsets.end <= run.offsets.file && run.stored > 0);
        }
        assert_eq!((runs[0].sample, runs[1].sample), (1, 2));
        // Section 0 is the kernel's whole: an eighth of the smaller machine.
        assert!((0.2..0.25).contains(&runs[0].kept()), "{}", runs[0].kept());
        assert!((0.11..0.15).contains(&runs[1].kept()), "{}", runs[1].kept());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing is left behind");
    }

    #[test]
    fn samples_grow_with_the_machine_and_then_stay() {
        let all = DumpLevel::ALL;
        assert_eq!(SIZES.map(|size| sample(size, all)), [1, 1, 8, 32, 512, 512, 512, 512, 512, 512, 512]);
        assert_eq!(sample(1 << 40, DumpLevel::NONE), sample(64 << 40, DumpLevel::NONE));
    }
}
