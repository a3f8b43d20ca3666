//! When what failed is tried again: one policy for everything that goes over a network.
//!
//! A failed try is followed by another after 0.1 s, then after twice as long each time, up to 5 s. There is none once nothing
//! [moved](Retry::moved) for as long as the [`Patience`] says. After the run was cancelled there is none once nothing moved
//! for 10 s, and what has waited for an answer for 60 s is [ended](Stop::end_if_stuck).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How often a wait looks whether the run was cancelled.
const POLL: Duration = Duration::from_millis(50);
/// Bytes per second that count as progress: a body that brings fewer could last forever.
const LEAST_RATE: u64 = 1 << 10;
/// How long what fails is tried again after the run was cancelled.
const AFTER_CANCEL: Duration = Duration::from_secs(10);
/// How long an answer may take after the run was cancelled: the other end may have to write gigabytes to its disks.
const STUCK: Duration = Duration::from_secs(60);

/// How long something is tried again after its last progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// While the other end was never reached.
    pub first: Duration,
    /// Once it was.
    pub later: Duration,
}

impl Patience {
    /// Of reading.
    pub const READ: Self = Self::of(Duration::from_secs(20));
    /// Of uploads: a network that comes back, or a server that is restarted, does not cost the dump.
    pub const UPLOAD: Self = Self { first: Duration::from_secs(60), later: Duration::from_secs(600) };

    /// The same patience always.
    pub const fn of(limit: Duration) -> Self {
        Self { first: limit, later: limit }
    }

    /// The patience with another end that was reached, or was not.
    pub fn limit(self, was_reached: bool) -> Duration {
        if was_reached { self.later } else { self.first }
    }
}

/// The end of a run that was cancelled.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    cancel: CancelToken,
    /// When the cancellation was seen first. Signal handlers cannot note it.
    since: Arc<OnceLock<Instant>>,
}

impl Stop {
    /// Of a run that `cancel` cancels.
    pub fn new(cancel: CancelToken) -> Self {
        Self { cancel, since: Arc::default() }
    }

    /// Whether the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Whether the run was cancelled, and for so long had no progress since.
    fn is_due(&self, progress: Instant, limit: Duration) -> bool {
        self.cancel.is_cancelled() && progress.max(*self.since.get_or_init(Instant::now)).elapsed() >= limit
    }

    /// Runs `work`. Calls `end`, once, if the run was cancelled and `work` still waits 60 s after the last byte moved.
    pub fn end_if_stuck<T>(&self, moved: &Moved, end: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            let (working, worked) = channel::<()>();
            let watch = move || {
                while worked.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                    if moved.last().is_some_and(|last| self.is_due(last, STUCK)) {
                        return end();
                    }
                }
            };
            // Without a thread, the work takes its own time.
            let _ = thread::Builder::new().name("stop".into()).spawn_scoped(scope, watch);
            let result = work();
            drop(working);
            result
        })
    }
}

/// Whether bytes move fast enough.
#[derive(Debug)]
pub struct Pace {
    limit: Duration,
    /// The last progress, or the beginning.
    progress: Instant,
    /// Bytes since then.
    bytes: u64,
}

impl Pace {
    /// Each `limit` of time has progress if 1 KiB per second moves in it.
    pub fn new(limit: Duration) -> Self {
        Self { limit, progress: Instant::now(), bytes: 0 }
    }

    /// Counts bytes. Returns whether they are progress.
    pub fn moved(&mut self, bytes: u64) -> bool {
        self.bytes += bytes;
        let is_progress = u128::from(self.bytes) * 1000 >= u128::from(LEAST_RATE) * self.limit.as_millis();
        if is_progress {
            (self.progress, self.bytes) = (Instant::now(), 0);
        }
        is_progress
    }

    /// Whether a limit of time passed without progress.
    pub fn is_slow(&self) -> bool {
        self.progress.elapsed() >= self.limit
    }
}

/// The tries of one thing.
#[derive(Debug)]
pub struct Retry {
    pace: Pace,
    stop: Stop,
    wait: Duration,
    tries: u32,
}

impl Retry {
    /// The first try begins. It is tried again for `limit` after its last progress.
    pub fn new(limit: Duration, stop: &Stop) -> Self {
        Self { pace: Pace::new(limit), stop: stop.clone(), wait: FIRST_WAIT, tries: 1 }
    }

    /// Counts bytes of the result that arrived. Returns whether they are progress: 1 KiB per second or more.
    pub fn moved(&mut self, bytes: u64) -> bool {
        let is_progress = self.pace.moved(bytes);
        if is_progress {
            self.wait = FIRST_WAIT;
        }
        is_progress
    }

    /// Time since the last progress.
    pub fn idle(&self) -> Duration {
        self.pace.progress.elapsed()
    }

    /// How long it is tried again after its last progress.
    pub fn limit(&self) -> Duration {
        self.pace.limit
    }

    /// How many tries there were.
    pub fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether there is to be no other try.
    pub fn is_over(&self) -> bool {
        self.pace.is_slow() || self.stop.is_due(self.pace.progress, AFTER_CANCEL)
    }

    /// Waits for the next try, for `least` at least, where that is not too long. Returns whether there is to be one.
    pub fn wait(&mut self, least: Duration) -> bool {
        let until = Instant::now() + self.wait.max(least).min(MAX_WAIT);
        self.wait = (self.wait * 2).min(MAX_WAIT);
        while !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.tries += 1;
                return true;
            }
            thread::sleep(left.min(POLL));
        }
        false
    }
}

/// When bytes last moved, in either direction, while an answer is awaited.
#[derive(Debug)]
pub struct Moved {
    start: Instant,
    /// Milliseconds since then; [`IDLE`] while no answer is awaited.
    last: AtomicU64,
}

const IDLE: u64 = u64::MAX;

impl Default for Moved {
    fn default() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(IDLE) }
    }
}

impl Moved {
    /// Bytes move now. From here on an answer is awaited.
    pub fn now(&self) {
        self.last.store(self.start.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// No answer is awaited.
    pub fn idle(&self) {
        self.last.store(IDLE, Ordering::Relaxed);
    }

    fn last(&self) -> Option<Instant> {
        let last = self.last.load(Ordering::Relaxed);
        (last != IDLE).then(|| self.start + Duration::from_millis(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_is_tried_again_and_what_drips_is_not() {
        let limit = Duration::from_millis(200);
        let mut retry = Retry::new(limit, &Stop::default());
        thread::sleep(limit);
        assert!(retry.is_over());
        assert!(!retry.moved(LEAST_RATE / 5) && retry.is_over());
        assert!(retry.moved(1) && !retry.is_over());
        assert!(retry.wait(Duration::ZERO));
        assert_eq!(retry.tries(), 2);
        while retry.wait(Duration::ZERO) {}
        assert!(retry.tries() < 5);
    }

    #[test]
    fn a_run_that_was_cancelled_ends_soon() {
        let cancel = CancelToken::default();
        let stop = Stop::new(cancel.clone());
        let Some(long_ago) = Instant::now().checked_sub(STUCK) else { return };
        assert!(!stop.is_due(long_ago, AFTER_CANCEL));
        cancel.cancel();
        assert!(stop.is_cancelled() && !stop.is_due(long_ago, AFTER_CANCEL));
        let seen = Stop { cancel, since: Arc::new(OnceLock::from(long_ago)) };
        assert!(seen.is_due(long_ago, AFTER_CANCEL));
        assert!(!seen.is_due(Instant::now(), AFTER_CANCEL));
        assert!(Retry::new(Duration::from_secs(600), &seen).wait(Duration::ZERO));
        // Work that waits for an answer is ended; work that waits for its input is not.
        let (ended, end) = channel();
        let moved = Moved { start: long_ago, last: AtomicU64::new(0) };
        seen.end_if_stuck(&moved, || ended.send(()).unwrap(), || end.recv().unwrap());
        seen.end_if_stuck(&Moved::default(), || panic!("nothing is awaited"), || thread::sleep(POLL * 3));
    }
}
