//! Caches fetched bytes, and fetches ranges large enough to be worth a request.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use crate::client::MAX_REQUESTS;
use crate::error::RemoteError;
use crate::object::Ranges;

/// Bytes of a block: most pages of a dump are smaller, so that two of them share one.
pub(crate) const BLOCK: u64 = 4 << 10;
/// Bytes that all blocks of an object take.
const MAX_BYTES: u64 = 64 << 20;
/// Blocks of the first fetch at a new place: at least, at most, and which part of what was fetched so far. A request to a distant
/// server costs as much as some 100 KiB, but a command that reads little fetches little.
const FIRST_WINDOW: u64 = 4;
const MAX_FIRST: u64 = (256 << 10) / BLOCK;
const SHARE: u64 = 4;
/// Announced runs that are fetched with what is around them, too: a walk down a tree begins with few.
const FEW: usize = 2;
/// Ranges up to this many bytes are headers of records, which lie apart.
const HEADER: u64 = 16;
/// Blocks of the largest fetch ahead.
const MAX_WINDOW: u64 = (8 << 20) / BLOCK;
/// Blocks of one request. A larger fetch is several at a time.
const MAX_BLOCKS: u64 = (1 << 20) / BLOCK;
/// Blocks between two announced ranges that are fetched with them: a request costs more.
const GAP: u64 = 4;
/// Sequential readers that are told apart: the bitmaps, the descriptors and the pages of a few threads.
const STREAMS: usize = 16;

static BYTES: AtomicU64 = AtomicU64::new(0);
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// What this process has fetched so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetched {
    /// Bytes of objects.
    pub bytes: u64,
    /// Ranges, each of one request where nothing fails.
    pub requests: u64,
}

/// Returns what this process has fetched so far, of all objects.
pub fn fetched() -> Fetched {
    Fetched { bytes: BYTES.load(Ordering::Relaxed), requests: REQUESTS.load(Ordering::Relaxed) }
}

fn count(bytes: usize) {
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    REQUESTS.fetch_add(1, Ordering::Relaxed);
}

/// The blocks of an object, shared by all threads that read it.
pub(crate) struct Cache {
    ranges: Box<dyn Ranges>,
    size: u64,
    most_blocks: usize,
    state: Mutex<State>,
    arrived: Condvar,
    /// Requests in flight.
    requests: Mutex<usize>,
    answered: Condvar,
    /// The error of a server that will give no other answer.
    refused: OnceLock<RemoteError>,
}

#[derive(Default)]
struct State {
    blocks: HashMap<u64, Block>,
    /// Blocks that a thread is fetching.
    pending: HashSet<u64>,
    streams: Vec<Stream>,
    /// Blocks that were fetched so far.
    fetched: u64,
    clock: u64,
}

struct Block {
    bytes: Box<[u8]>,
    used: u64,
}

/// A sequential reader.
struct Stream {
    /// Number of the block that it needs next.
    next: u64,
    /// Blocks of its last fetch.
    window: u64,
    used: u64,
}

impl Cache {
    /// A cache of an object of `size` bytes, of which the first are known.
    pub(crate) fn new(ranges: Box<dyn Ranges>, size: u64, first: &[u8]) -> Self {
        Self::with_limit(ranges, size, first, MAX_BYTES)
    }

    fn with_limit(ranges: Box<dyn Ranges>, size: u64, first: &[u8], most_bytes: u64) -> Self {
        count(first.len());
        let mut state = State::default();
        // A last block in part is whole only where the object ends.
        let whole = if first.len() as u64 == size {
            first.len()
        } else {
            first.len() / BLOCK as usize * BLOCK as usize
        };
        state.insert(0, &first[..whole]);
        let most_blocks = (most_bytes / BLOCK) as usize;
        Self::of(ranges, size, most_blocks, state)
    }

    fn of(ranges: Box<dyn Ranges>, size: u64, most_blocks: usize, state: State) -> Self {
        Self {
            ranges,
            size,
            most_blocks,
            state: Mutex::new(state),
            arrived: Condvar::new(),
            requests: Mutex::new(0),
            answered: Condvar::new(),
            refused: OnceLock::new(),
        }
    }

    /// Returns an empty cache of the same object for a process that was forked from the one of this cache.
    pub(crate) fn renew(&self) -> Result<Self, RemoteError> {
        Ok(Self::of(self.ranges.renew()?, self.size, self.most_blocks, State::default()))
    }

    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, RemoteError> {
        // A fetch is never larger than this, however long the read is.
        let most = (self.most_blocks as u64 / 2).max(1) * BLOCK;
        let end = offset.saturating_add((buf.len() as u64).min(most)).min(self.size);
        let wanted = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
        let buf = &mut buf[..wanted];
        let mut done = 0;
        let mut state = self.lock();
        loop {
            // What was just fetched is evicted last.
            done += state.copy(offset + done as u64, &mut buf[done..]);
            if done == wanted {
                return Ok(done);
            }
            let missing = (offset + done as u64) / BLOCK;
            if state.pending.contains(&missing) {
                state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let run = state.plan(missing, end.div_ceil(BLOCK), self.size.div_ceil(BLOCK));
            state.pending.extend(run.clone());
            drop(state);
            self.fetch(requests(run))?;
            state = self.lock();
        }
    }

    /// Fetches what is missing of ranges, with several requests at a time. What fails fails again when it is read.
    pub(crate) fn will_need(&self, ranges: &[Range<u64>]) {
        let mut state = self.lock();
        let runs = state.announced(ranges, self.size, self.most_blocks as u64 / 2);
        state.pending.extend(runs.iter().cloned().flatten());
        drop(state);
        let _ = self.fetch(runs.into_iter().flat_map(requests).collect());
    }

    /// Sends requests for blocks that are marked as pending, several at a time. Returns the first error.
    fn fetch(&self, runs: Vec<Range<u64>>) -> Result<(), RemoteError> {
        let others = runs.len().clamp(1, MAX_REQUESTS) - 1;
        let (runs, error) = (Mutex::new(runs.into_iter()), Mutex::new(None));
        let work = || {
            loop {
                let next = runs.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(run) = next else { return };
                if let Err(failed) = self.fetch_one(run) {
                    error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failed);
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..others {
                // This thread does what others cannot.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn fetch_one(&self, run: Range<u64>) -> Result<(), RemoteError> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        while *requests >= MAX_REQUESTS {
            requests = self.answered.wait(requests).unwrap_or_else(PoisonError::into_inner);
        }
        *requests += 1;
        drop(requests);
        let fetched = match self.refused.get() {
            Some(error) => Err(error.clone()),
            None => self.ranges.fetch(run.start * BLOCK..(run.end * BLOCK).min(self.size)),
        };
        // A server that cannot be reached may be back for a later read.
        if let Err(error) = &fetched
            && !matches!(error, RemoteError::Unreachable(_))
        {
            let _ = self.refused.set(error.clone());
        }
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.answered.notify_one();
        let mut state = self.lock();
        run.clone().for_each(|number| {
            state.pending.remove(&number);
        });
        self.arrived.notify_all();
        let fetched = fetched?;
        count(fetched.len());
        state.evict(self.most_blocks);
        state.insert(run.start, &fetched);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the blocks to fetch from `missing` on: those up to `end`, and more if they continue earlier reads.
    fn plan(&mut self, missing: u64, end: u64, end_of_object: u64) -> Range<u64> {
        self.clock += 1;
        let clock = self.clock;
        let follows = |stream: &&mut Stream| (stream.next..=stream.next + stream.window).contains(&missing);
        let at_least = self.first_window();
        let window = match self.streams.iter_mut().find(follows) {
            Some(stream) => {
                stream.window = (stream.window * 2).clamp(at_least, MAX_WINDOW);
                stream.used = clock;
                stream.window
            }
            None => at_least,
        };
        // What is read at a new place is likely to be in the middle of what is read next.
        let is_new = !self.streams.iter().any(|stream| stream.used == clock);
        let around = if is_new { missing / at_least * at_least } else { missing };
        let most = end.max(around + window).min(end_of_object);
        let Range { start, end: last } = self.extend(missing..missing + 1, around..most);
        match self.streams.iter_mut().find(|stream| stream.used == clock) {
            Some(stream) => stream.next = last,
            None => {
                if self.streams.len() == STREAMS {
                    let oldest = (0..STREAMS).min_by_key(|&at| self.streams[at].used);
                    self.streams.swap_remove(oldest.unwrap_or(0));
                }
                self.streams.push(Stream { next: last, window, used: clock });
            }
        }
        start..last
    }

    /// Returns how many blocks are fetched at a new place.
    fn first_window(&self) -> u64 {
        (self.fetched / SHARE).clamp(FIRST_WINDOW, MAX_FIRST).next_power_of_two()
    }

    /// Extends a run within `bounds` by blocks that are neither here nor on their way.
    fn extend(&self, run: Range<u64>, bounds: Range<u64>) -> Range<u64> {
        let Range { mut start, mut end } = run;
        while start > bounds.start && self.is_missing(start - 1) {
            start -= 1;
        }
        while end < bounds.end && self.is_missing(end) {
            end += 1;
        }
        start..end
    }

    fn is_missing(&self, number: u64) -> bool {
        !self.blocks.contains_key(&number) && !self.pending.contains(&number)
    }

    /// As [`missing`](Self::missing); if these are few, with what is around them.
    fn announced(&mut self, ranges: &[Range<u64>], size: u64, most: u64) -> Vec<Range<u64>> {
        let mut runs = self.missing(ranges, size, most);
        let window = self.first_window() / 2;
        if runs.len() > 2 * FEW || window < FIRST_WINDOW {
            return runs;
        }
        let larger: Vec<_> =
            ranges.iter().filter(|range| range.end - range.start.min(range.end) > HEADER).collect();
        let is_larger = |run: &&mut Range<u64>| {
            larger.iter().any(|range| range.start < run.end * BLOCK && run.start * BLOCK < range.end)
        };
        if runs.iter_mut().filter(is_larger).count() > FEW {
            return runs;
        }
        let mut before = 0;
        for run in runs.iter_mut().filter(is_larger) {
            let bounds = (run.start / window * window).max(before)..run.end.next_multiple_of(window);
            *run = self.extend(run.clone(), bounds.start..bounds.end.min(size.div_ceil(BLOCK)));
            before = run.end;
        }
        // The first may have reached the second.
        runs.dedup_by(|next, run| {
            let meets = next.start < run.end;
            run.end = if meets { run.end.max(next.end) } else { run.end };
            meets
        });
        runs
    }

    /// Returns the blocks of ranges that are neither here nor on their way, at most `most`, in order. Includes small gaps.
    fn missing(&mut self, ranges: &[Range<u64>], size: u64, most: u64) -> Vec<Range<u64>> {
        self.clock += 1;
        let mut wanted: Vec<Range<u64>> = ranges
            .iter()
            .map(|range| range.start / BLOCK..range.end.min(size).div_ceil(BLOCK))
            .filter(|range| !range.is_empty())
            .collect();
        wanted.sort_unstable_by_key(|range| range.start);
        let mut runs: Vec<Range<u64>> = Vec::new();
        let (mut count, mut next) = (0, 0);
        for range in wanted {
            for number in range.start.max(next)..range.end {
                if count == most {
                    return runs;
                }
                if let Some(block) = self.blocks.get_mut(&number) {
                    block.used = self.clock;
                    continue;
                }
                if self.pending.contains(&number) {
                    continue;
                }
                match runs.last_mut() {
                    Some(last)
                        if number - last.end <= GAP
                            && (last.end..number).all(|between| self.is_missing(between)) =>
                    {
                        last.end = number + 1;
                    }
                    _ => runs.push(number..number + 1),
                }
                count += 1;
            }
            next = next.max(range.end);
        }
        runs
    }

    /// Adds consecutive blocks.
    fn insert(&mut self, first: u64, bytes: &[u8]) {
        for (number, bytes) in (first..).zip(bytes.chunks(BLOCK as usize)) {
            self.blocks.insert(number, Block { bytes: bytes.into(), used: self.clock });
            self.fetched += 1;
        }
    }

    /// Drops the blocks used least recently, if there are too many.
    fn evict(&mut self, most: usize) {
        if self.blocks.len() <= most {
            return;
        }
        let mut used: Vec<u64> = self.blocks.values().map(|block| block.used).collect();
        // A quarter at once, so that it happens seldom.
        let at = used.len() / 4;
        let oldest = *used.select_nth_unstable(at).1;
        self.blocks.retain(|_, block| block.used > oldest);
    }

    /// Copies the bytes from `offset` on that are here. Returns how many.
    fn copy(&mut self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0;
        self.clock += 1;
        while done < buf.len() {
            let place = offset + done as u64;
            let Some(block) = self.blocks.get_mut(&(place / BLOCK)) else { break };
            block.used = self.clock;
            let Some(bytes) = block.bytes.get((place % BLOCK) as usize..) else { break };
            let some = bytes.len().min(buf.len() - done);
            buf[done..done + some].copy_from_slice(&bytes[..some]);
            done += some;
        }
        done
    }
}

/// Splits blocks into those of one request each.
fn requests(blocks: Range<u64>) -> Vec<Range<u64>> {
    let starts = blocks.clone().step_by(MAX_BLOCKS as usize);
    starts.map(|start| start..blocks.end.min(start + MAX_BLOCKS)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;

    use super::*;

    struct Bytes {
        bytes: Vec<u8>,
        fetches: Mutex<Vec<Range<u64>>>,
        /// How many of the next fetches fail.
        failures: AtomicUsize,
    }

    impl Ranges for std::sync::Arc<Bytes> {
        fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
            let mut fetches = self.fetches.lock().unwrap();
            assert!(fetches.len() < 10_000, "a read that does not end");
            fetches.push(range.clone());
            drop(fetches);
            let failing =
                self.failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            if failing.is_ok() {
                return Err(RemoteError::Unreachable("test".to_owned()));
            }
            Ok(self.bytes[range.start as usize..range.end as usize].to_vec())
        }

        fn renew(&self) -> Result<Box<dyn Ranges>, RemoteError> {
            Ok(Box::new(self.clone()))
        }
    }

    fn cache(size: usize, most_bytes: u64) -> (std::sync::Arc<Bytes>, Cache) {
        let bytes = (0..size).map(|at| ((at / 7) ^ (at >> 9)) as u8).collect();
        let bytes =
            std::sync::Arc::new(Bytes { bytes, fetches: Mutex::default(), failures: AtomicUsize::new(0) });
        let first = bytes.bytes[..size.min(10_000)].to_vec();
        (bytes.clone(), Cache::with_limit(Box::new(bytes), size as u64, &first, most_bytes))
    }

    fn read(cache: &Cache, offset: usize, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let mut done = 0;
        while done < len {
            match cache.read_at((offset + done) as u64, &mut out[done..]).unwrap() {
                0 => break,
                count => done += count,
            }
        }
        out.truncate(done);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is read, and however small the cache is, the bytes are those of the object.
        #[test]
        fn reads_return_the_bytes_of_the_object(
            size in 0usize..300_000,
            reads in prop::collection::vec((any::<bool>(), 0usize..300_000, 0usize..40_000), 1..30),
            blocks in 0u64..40,
        ) {
            let (bytes, cache) = cache(size, blocks * BLOCK);
            for (is_announced, offset, len) in reads {
                if is_announced {
                    let range = offset as u64..(offset + len) as u64;
                    cache.will_need(&[range.clone(), 7..9, range.start / 2..range.end, 5..5, u64::MAX - 1..u64::MAX]);
                }
                let expected = &bytes.bytes[offset.min(size)..(offset + len).min(size)];
                prop_assert!(read(&cache, offset, len) == expected);
            }
        }
    }

    #[test]
    fn a_read_ends_though_its_blocks_are_evicted() {
        let (bytes, cache) = cache(10_001, 0);
        assert_eq!(read(&cache, 1, 8_192), bytes.bytes[1..8_193]);
    }

    #[test]
    fn nothing_is_fetched_twice() {
        let (bytes, cache) = cache(1 << 20, MAX_BYTES);
        for _ in 0..2 {
            for offset in [700_000, 100_000, 0, 500_000, 100_000] {
                read(&cache, offset, 10_000);
            }
        }
        let mut fetches = bytes.fetches.lock().unwrap().clone();
        fetches.sort_unstable_by_key(|range| range.start);
        assert!(fetches.windows(2).all(|pair| pair[0].end <= pair[1].start), "{fetches:?}");
    }

    #[test]
    fn sequential_reads_need_few_requests() {
        let (bytes, cache) = cache(16 << 20, MAX_BYTES);
        // Two readers at a time, as the two bitmaps of a dump.
        for at in (0..8 << 20).step_by(32 << 10) {
            read(&cache, at, 32 << 10);
            read(&cache, (8 << 20) + at, 32 << 10);
        }
        let fetches = bytes.fetches.lock().unwrap().len();
        assert!(fetches < 40, "{fetches} requests for 512 reads");
    }

    /// Ranges of which each waits until as many as may be are in flight.
    struct Together {
        arrived: std::sync::Barrier,
        requests: Mutex<Vec<Range<u64>>>,
    }

    impl Ranges for std::sync::Arc<Together> {
        fn fetch(&self, range: Range<u64>) -> Result<Vec<u8>, RemoteError> {
            self.arrived.wait();
            let len = (range.end - range.start) as usize;
            self.requests.lock().unwrap().push(range);
            Ok(vec![0; len])
        }

        fn renew(&self) -> Result<Box<dyn Ranges>, RemoteError> {
            Ok(Box::new(self.clone()))
        }
    }

    #[test]
    fn announced_ranges_are_fetched_at_the_same_time() {
        let arrived = std::sync::Barrier::new(MAX_REQUESTS);
        let ranges = std::sync::Arc::new(Together { arrived, requests: Mutex::default() });
        let cache = Cache::new(Box::new(ranges.clone()), 1 << 30, &[]);
        // It ends only if all of a round are in flight together.
        let wanted: Vec<_> = (0..3 * MAX_REQUESTS as u64).map(|at| at << 20..(at << 20) + 100).collect();
        cache.will_need(&wanted);
        assert_eq!(ranges.requests.lock().unwrap().len(), wanted.len());
        for range in &wanted {
            assert_eq!(cache.read_at(range.start, &mut [0; 100]), Ok(100));
        }
        cache.will_need(&wanted);
        assert_eq!(ranges.requests.lock().unwrap().len(), wanted.len());
    }

    #[test]
    fn small_gaps_are_fetched_and_large_ones_are_not() {
        let (bytes, cache) = cache(1 << 20, MAX_BYTES);
        let block = |number: u64| number * BLOCK + 1..number * BLOCK + 2;
        cache.will_need(&[block(100), block(20), block(22), block(22), block(30)]);
        let mut fetches = bytes.fetches.lock().unwrap().clone();
        fetches.sort_unstable_by_key(|range| range.start);
        assert_eq!(fetches, [20 * BLOCK..23 * BLOCK, 30 * BLOCK..31 * BLOCK, 100 * BLOCK..101 * BLOCK]);
    }

    #[test]
    fn no_more_is_announced_than_fits() {
        let (bytes, cache) = cache(1 << 20, 64 * BLOCK);
        cache.will_need(&[0..1 << 20]);
        let fetched: u64 = bytes.fetches.lock().unwrap().iter().map(|range| range.end - range.start).sum();
        assert_eq!(fetched, 32 * BLOCK);
        bytes.failures.store(3, Ordering::Relaxed);
        cache.will_need(&[500_000..500_001, 700_000..700_001]);
        assert!(cache.read_at(700_000, &mut [0]).is_err());
        assert_eq!(read(&cache, 700_000, 10), bytes.bytes[700_000..700_010]);
    }

    #[test]
    fn announced_headers_that_lie_apart_cost_a_block_each() {
        let (bytes, cache) = cache(16 << 20, MAX_BYTES);
        for at in (100_000..16 << 20).step_by(1 << 20) {
            cache.will_need(&[at as u64..at as u64 + 16]);
            read(&cache, at, 16);
        }
        assert!(bytes.fetches.lock().unwrap().iter().all(|range| range.end - range.start == BLOCK));
    }

    #[test]
    fn a_fetch_that_failed_can_succeed_later() {
        let (bytes, cache) = cache(1 << 20, MAX_BYTES);
        bytes.failures.store(1, Ordering::Relaxed);
        assert_eq!(cache.read_at(500_000, &mut [0; 10]), Err(RemoteError::Unreachable("test".to_owned())));
        assert_eq!(read(&cache, 500_000, 10), bytes.bytes[500_000..500_010]);
    }

    #[test]
    fn threads_share_what_one_fetches() {
        let (bytes, cache) = cache(4 << 20, MAX_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for at in (0..4 << 20).step_by(16 << 10) {
                        assert_eq!(read(&cache, at, 16 << 10), bytes.bytes[at..at + (16 << 10)]);
                    }
                });
            }
        });
        let fetched: u64 = bytes.fetches.lock().unwrap().iter().map(|range| range.end - range.start).sum();
        assert!(fetched <= 4 << 20, "{fetched} bytes");
    }
}
