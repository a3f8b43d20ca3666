//! What writes and syncs of one output took: evidence of how long the end of a dump will take.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Writes and syncs that count: the last ones, since a disk may become slower or faster.
const RECENT: usize = 5;
/// Shorter writes say more about latency than about bandwidth.
const SHORTEST_WRITE: usize = 128 << 10;
/// Fewer bytes say more about the latency of a sync than about the bandwidth of what is behind the page cache.
const LEAST_CACHED: u64 = 1 << 20;

/// Measures the writes and syncs of an output. Clones share the measurements.
#[derive(Debug, Clone, Default)]
pub struct WriteMeter(Arc<Mutex<Measured>>);

#[derive(Debug, Default)]
struct Measured {
    /// Seconds per byte of the last long writes.
    writes: VecDeque<f64>,
    /// The last syncs.
    syncs: VecDeque<Sync>,
    /// Bytes in the page cache that no sync followed so far.
    cached: u64,
    slowest: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Sync {
    time: Duration,
    /// Bytes that were written to the page cache since the sync before.
    cached: u64,
}

/// What writing to an output costs at present. The slowest of the recent writes, and of the recent syncs, does not count where
/// there are others: one that stalls does not make a slow disk.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WriteCosts {
    /// Seconds per byte written, to the disk or the page cache.
    pub per_byte: f64,
    /// Seconds per byte from the page cache to the disk, where that was measured.
    pub per_cached_byte: f64,
    /// Bytes in the page cache that no sync followed so far.
    pub cached: u64,
    /// Seconds per sync.
    pub per_sync: f64,
    /// The slowest write or sync so far.
    pub slowest: Duration,
    /// Recent syncs that were measured, at most 5.
    pub syncs: usize,
}

impl WriteCosts {
    /// Returns how long it takes to write `bytes` and to sync `syncs` times, with what is in the page cache.
    pub fn time(&self, bytes: u64, syncs: u64) -> Duration {
        let seconds = bytes as f64 * self.per_byte
            + (bytes + self.cached) as f64 * self.per_cached_byte
            + syncs as f64 * self.per_sync;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

impl WriteMeter {
    /// Records a write of `bytes` bytes, of which `cached` went to the page cache.
    pub fn wrote(&self, bytes: usize, cached: usize, time: Duration) {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        measured.slowest = measured.slowest.max(time);
        measured.cached += cached as u64;
        if bytes >= SHORTEST_WRITE {
            push(&mut measured.writes, time.as_secs_f64() / bytes as f64);
        }
    }

    /// Records a sync.
    pub fn synced(&self, time: Duration) {
        let mut measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        measured.slowest = measured.slowest.max(time);
        let cached = std::mem::take(&mut measured.cached);
        push(&mut measured.syncs, Sync { time, cached });
    }

    /// Runs `write` of `bytes` bytes and records what it took. It returns its result and the bytes that went to the page cache.
    pub fn measure_write<T>(&self, bytes: usize, write: impl FnOnce() -> (T, usize)) -> T {
        let start = Instant::now();
        let (result, cached) = write();
        self.wrote(bytes, cached, start.elapsed());
        result
    }

    /// Runs `sync` and records what it took.
    pub fn measure_sync<T>(&self, sync: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = sync();
        self.synced(start.elapsed());
        result
    }

    /// Returns what writing costs at present.
    pub fn costs(&self) -> WriteCosts {
        let measured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let syncs = &measured.syncs;
        // A sync takes at least as long as its bytes do, so the lowest of these costs is an upper bound of the real one.
        let per_cached_byte = syncs
            .iter()
            .filter(|sync| sync.cached >= LEAST_CACHED)
            .map(|sync| sync.time.as_secs_f64() / sync.cached as f64)
            .reduce(f64::min)
            .unwrap_or(0.0);
        WriteCosts {
            per_byte: mean_without_slowest(measured.writes.iter().copied()),
            per_cached_byte,
            cached: measured.cached,
            per_sync: mean_without_slowest(syncs.iter().map(|sync| sync.time.as_secs_f64())),
            slowest: measured.slowest,
            syncs: syncs.len(),
        }
    }
}

fn push<T>(recent: &mut VecDeque<T>, value: T) {
    if recent.len() == RECENT {
        recent.pop_front();
    }
    recent.push_back(value);
}

/// Returns the mean of all values but the largest, or the only value; 0 if there is none.
fn mean_without_slowest(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut largest, mut count) = (0.0, 0.0f64, 0u32);
    for value in values {
        sum += value;
        largest = largest.max(value);
        count += 1;
    }
    if count < 2 { sum } else { (sum - largest) / f64::from(count - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_stall_is_remembered_but_is_not_the_speed_of_the_disk() {
        let meter = WriteMeter::default();
        assert_eq!(meter.costs(), WriteCosts::default());
        meter.wrote(2 * MIB, 0, seconds(0.6));
        let first = meter.costs();
        assert_eq!((first.time(2 * MIB as u64, 0), first.syncs), (seconds(0.6), 0));
        meter.wrote(2 * MIB, 0, seconds(0.02));
        // Short writes and bytes of a partial block are no evidence.
        meter.wrote(4096, 4096, seconds(0.05));
        meter.synced(seconds(0.03));
        let then = meter.costs();
        assert_eq!((then.time(2 * MIB as u64, 0), then.slowest), (seconds(0.02), seconds(0.6)));
        assert_eq!((then.time(0, 3), then.syncs), (seconds(0.09), 1));
    }

    #[test]
    fn recent_writes_count() {
        let meter = WriteMeter::default();
        (0..100).for_each(|_| meter.wrote(2 * MIB, 0, seconds(0.02)));
        (0..RECENT).for_each(|_| meter.wrote(2 * MIB, 0, seconds(2.0)));
        assert_eq!(meter.costs().time(2 * MIB as u64, 0), seconds(2.0));
    }

    #[test]
    fn bytes_in_the_page_cache_cost_what_their_sync_does() {
        let meter = WriteMeter::default();
        for (bytes, sync) in [(32 * MIB, 0.5), (2 * MIB, 0.2), (MIB / 2, 0.2)] {
            (0..bytes / (MIB / 2)).for_each(|_| meter.wrote(MIB / 2, MIB / 2, seconds(0.001)));
            meter.synced(seconds(sync));
        }
        let cost = meter.costs().time(32 * MIB as u64, 0).as_secs_f64();
        assert!((0.5..0.6).contains(&cost), "{cost}");
    }
}
