//! Time and size limits.

use std::time::{Duration, Instant};

use crate::report::Clock;
use crate::{Limits, Outcome};
use pagehaul_output::{DumpWriter, PageBatch};
use pagehaul_run::Progress;

/// Safety factor: writing tables may be slower than writing pages was.
const CAUTION: u32 = 2;

/// The limits of one capture while it writes pages.
pub(crate) struct Deadline<'a> {
    limits: Limits,
    start: Instant,
    phase: Instant,
    progress: &'a Progress,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(limits: Limits, clock: &Clock, progress: &'a Progress) -> Self {
        Self { limits, start: clock.start_time(), phase: clock.phase_time(), progress }
    }

    /// Returns the limit that ends the capture before `batch` is written to `dump`, if there is one.
    pub(crate) fn reached(&self, dump: &dyn DumpWriter, batch: PageBatch<'_>) -> Option<Outcome> {
        if self.no_room(dump.size_with(batch)) {
            return Some(Outcome::SizeLimit);
        }
        self.no_time(dump.finish_bytes(), self.progress.written()).then_some(Outcome::TimeLimit)
    }

    /// Returns whether a dump of `size` bytes is too large.
    pub(crate) fn no_room(&self, size: u64) -> bool {
        self.limits.size.is_some_and(|limit| size > limit)
    }

    /// Returns whether only the time to write `finish` bytes is left, at the speed at which `written` were written.
    pub(crate) fn no_time(&self, finish: u64, written: u64) -> bool {
        let Some(limit) = self.limits.time else { return false };
        let rate = if written == 0 { 0.0 } else { self.phase.elapsed().as_secs_f64() / written as f64 };
        // Bounded: at most what the table of the largest machine takes on the slowest disk.
        let end = Duration::try_from_secs_f64(finish as f64 * rate).unwrap_or_default() * CAUTION;
        self.start.elapsed() + end > limit
    }
}
