//! `--compress auto`: the strongest level that the output's bandwidth allows.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagehaul_codec::Method;
use pagehaul_machine::Pfn;

/// Batches between two decisions: a few tenths of a second, in which a slow disk completes several writes.
const WINDOW: u32 = 32;
/// Levels to rise when threads only wait. With 2 the level oscillated, since a change has an effect only after the batches
/// in flight are written.
const GAIN: f64 = 0.75;
/// Weight of the writer's waiting against a thread's: an idle disk is time lost, an idle thread only a smaller ratio.
const STARVED: f64 = 2.0;
/// Steps between two levels.
const STEPS: u32 = 256;

/// The current level, between two methods of the ladder. The packing threads read it.
pub(crate) struct AdaptiveLevel {
    ladder: Vec<Method>,
    /// Position on the ladder, in [`STEPS`].
    at: AtomicU32,
    /// Nanoseconds that threads waited for a buffer: the disk is slow.
    waited: AtomicU64,
    regions: IncompressibleRegions,
}

impl AdaptiveLevel {
    /// Starts with the fastest of `ladder`, which is not empty: a slow disk is noticed sooner than a fast one.
    pub(crate) fn new(ladder: Vec<Method>) -> Self {
        Self {
            ladder,
            at: AtomicU32::new(0),
            waited: AtomicU64::new(0),
            regions: IncompressibleRegions::new(),
        }
    }

    /// The methods to choose from, fastest first.
    pub(crate) fn ladder(&self) -> &[Method] {
        &self.ladder
    }

    /// Returns the index of the method for batch number `sequence`. Between two methods, batches alternate.
    pub(crate) fn rung(&self, sequence: u64) -> usize {
        // An odd factor visits all remainders, in a different order.
        let dither = (sequence.wrapping_mul(157) % u64::from(STEPS)) as u32;
        ((self.at.load(Ordering::Relaxed) + dither) / STEPS) as usize
    }

    /// Sets the position, for tests.
    #[cfg(test)]
    pub(crate) fn stand_at(&self, rung: f64) {
        self.at.store((rung * f64::from(STEPS)) as u32, Ordering::Relaxed);
    }

    /// Returns the regions known to be incompressible, where there is a choice of methods.
    pub(crate) fn regions(&self) -> Option<&IncompressibleRegions> {
        (self.ladder.len() > 1).then_some(&self.regions)
    }

    /// Records that a thread waited for a buffer.
    pub(crate) fn waited(&self, time: Duration) {
        self.waited.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Adjusts the level, on the writer's thread.
pub(crate) struct LevelController<'a> {
    level: &'a AdaptiveLevel,
    threads: u32,
    since: Instant,
    batches: u32,
    /// Time the writer waited for a batch: packing is slow.
    starved: Duration,
}

impl<'a> LevelController<'a> {
    pub(crate) fn new(level: &'a AdaptiveLevel, threads: usize) -> Self {
        Self {
            level,
            threads: threads.max(1) as u32,
            since: Instant::now(),
            batches: 0,
            starved: Duration::ZERO,
        }
    }

    /// Records that the writer waited for a batch while the disk was idle.
    pub(crate) fn starved(&mut self, time: Duration) {
        self.starved += time;
    }

    /// Counts a written batch; adjusts the level after each window.
    pub(crate) fn batch_written(&mut self) {
        self.batches += 1;
        if self.batches < WINDOW {
            return;
        }
        let window = std::mem::replace(&mut self.since, Instant::now()).elapsed();
        let waited = Duration::from_nanos(self.level.waited.swap(0, Ordering::Relaxed)) / self.threads;
        let starved = std::mem::take(&mut self.starved);
        self.batches = 0;
        let at =
            next(self.level.at.load(Ordering::Relaxed), self.level.ladder.len(), window, waited, starved);
        self.level.at.store(at, Ordering::Relaxed);
    }
}

/// Returns the position on a ladder of `rungs` methods that follows `at`, after a `window` in which each thread `waited`
/// for the disk and the writer `starved` for the threads.
fn next(at: u32, rungs: usize, window: Duration, waited: Duration, starved: Duration) -> u32 {
    let share = |time: Duration| (time.as_secs_f64() / window.as_secs_f64().max(1e-9)).min(1.0);
    let step = (share(waited) - STARVED * share(starved)).max(-1.0) * GAIN * f64::from(STEPS);
    let top = (rungs.saturating_sub(1)) as f64 * f64::from(STEPS);
    (f64::from(at) + step).clamp(0.0, top) as u32
}

/// Regions of memory whose pages did not shrink recently: encrypted or compressed files, mostly. Only the fastest codec is
/// tried on them.
pub(crate) struct IncompressibleRegions(Box<[AtomicU8]>);

/// Regions remembered at a time: 8 GiB of memory, in any order of packing.
const REGIONS: usize = 1 << 12;
/// log2 of the pages of a region: 2 MiB, like a huge page or the readahead of a large file.
const REGION_SHIFT: u32 = 9;

impl IncompressibleRegions {
    fn new() -> Self {
        Self((0..REGIONS).map(|_| AtomicU8::new(0)).collect())
    }

    /// Returns whether pages near `pfn` did not shrink. A wrong answer (two regions share a slot) costs a little space.
    pub(crate) fn resists(&self, pfn: Pfn) -> bool {
        self.place(pfn).load(Ordering::Relaxed) != 0
    }

    /// Records that `raw` of `pages` pages from `pfn` did not shrink.
    pub(crate) fn saw(&self, pfn: Pfn, pages: usize, raw: usize) {
        let resists = u8::from(raw * 2 > pages);
        let place = self.place(pfn);
        if place.load(Ordering::Relaxed) != resists {
            place.store(resists, Ordering::Relaxed);
        }
    }

    fn place(&self, pfn: Pfn) -> &AtomicU8 {
        &self.0[(pfn.number() >> REGION_SHIFT) as usize % REGIONS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn ladder() -> Vec<Method> {
        ["lzo", "zstd:-1", "zstd:3"].map(|method| method.parse().unwrap()).to_vec()
    }

    /// Returns the position for a disk of `disk` MB/s when method *n* packs `speed[n]` MB/s at ratio `ratio[n]`.
    fn settle(disk: f64, speed: [f64; 3], ratio: [f64; 3]) -> f64 {
        let mut at = 0;
        for _ in 0..200 {
            let rung = f64::from(at) / f64::from(STEPS);
            let (low, part) = ((rung as usize).min(1), rung - f64::from((rung as u32).min(1)));
            let between = |of: [f64; 3]| of[low] + (of[low + 1] - of[low]) * part;
            let (pack, write) = (1.0 / between(speed), 1.0 / (disk * between(ratio)));
            let window = pack.max(write);
            let waits = |time: f64| Duration::from_secs_f64(window - time);
            at = next(at, 3, Duration::from_secs_f64(window), waits(pack), waits(write));
        }
        f64::from(at) / f64::from(STEPS)
    }

    #[test]
    fn what_is_scarce_decides() {
        let (speed, ratio) = ([2000.0, 1400.0, 800.0], [2.5, 2.8, 3.1]);
        assert_eq!(settle(5000.0, speed, ratio), 0.0, "the disk is faster than any codec");
        assert!(settle(100.0, speed, ratio) > 1.9, "the disk is slower than every codec");
        let between = settle(400.0, speed, ratio);
        assert!((1.0..1.9).contains(&between), "the disk is as fast as a codec between two: {between}");
    }

    #[test]
    fn batches_are_spread_over_two_rungs() {
        let level = AdaptiveLevel::new(ladder());
        level.stand_at(1.25);
        let rungs: Vec<usize> = (0..u64::from(STEPS)).map(|sequence| level.rung(sequence)).collect();
        assert_eq!(rungs.iter().filter(|&&rung| rung == 2).count(), STEPS as usize / 4);
        assert!(rungs.iter().all(|&rung| rung == 1 || rung == 2));
        level.stand_at(2.0);
        assert!((0..1000).all(|sequence| level.rung(sequence) == 2));
    }

    #[test]
    fn a_window_of_waiting_changes_the_rung() {
        let level = AdaptiveLevel::new(ladder());
        let mut controller = LevelController::new(&level, 1);
        // Enough windows to traverse the ladder.
        for _ in 0..3 {
            level.waited(1000 * SECOND);
            (0..WINDOW).for_each(|_| controller.batch_written());
        }
        assert_eq!(level.rung(0), 2);
        for _ in 0..3 {
            controller.starved(1000 * SECOND);
            (0..WINDOW).for_each(|_| controller.batch_written());
        }
        assert_eq!(level.rung(0), 0);
    }

    #[test]
    fn one_stall_of_the_disk_costs_less_than_a_rung_and_for_one_window() {
        // Packing is slower than the disk, whose first write took 0.6 s.
        let first = next(0, 3, SECOND, SECOND.mul_f64(0.6), SECOND.mul_f64(0.2));
        assert!(first < STEPS, "{first}");
        assert_eq!(next(first, 3, SECOND.mul_f64(0.4), Duration::ZERO, SECOND.mul_f64(0.2)), 0);
    }

    #[test]
    fn regions_that_do_not_shrink_are_remembered() {
        let regions = IncompressibleRegions::new();
        regions.saw(Pfn::new(0x1000), 32, 30);
        assert!(regions.resists(Pfn::new(0x11ff)) && !regions.resists(Pfn::new(0x1200)));
        regions.saw(Pfn::new(0x1020), 32, 3);
        assert!(!regions.resists(Pfn::new(0x1000)));
    }
}
