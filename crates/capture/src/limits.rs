//! When it is time to end.

use std::time::{Duration, Instant};

use crate::dump::DumpWriter;
use crate::pack::Batch;
use crate::report::Clock;
use crate::{Ended, Limits, Watch};

/// Writing tables may be slower than writing pages was.
const CAUTION: u32 = 2;

/// The limits of one capture, seen from its last phase.
pub(crate) struct Deadline<'a> {
    limits: Limits,
    start: Instant,
    phase: Instant,
    watch: &'a Watch,
}

impl<'a> Deadline<'a> {
    pub(crate) fn new(limits: Limits, clock: &Clock, watch: &'a Watch) -> Self {
        Self { limits, start: clock.start_time(), phase: clock.phase_time(), watch }
    }

    /// Why the capture has to end before `batch` is placed in `dump`, if it has.
    pub(crate) fn reached(&self, dump: &dyn DumpWriter, batch: &Batch) -> Option<Ended> {
        if self.limits.size.is_some_and(|size| dump.size_with(batch) > size) {
            return Some(Ended::SizeLimit);
        }
        let limit = self.limits.time?;
        (self.start.elapsed() + self.time_to_finish(dump) > limit).then_some(Ended::TimeLimit)
    }

    /// How long the end would take, as fast as pages were written so far.
    fn time_to_finish(&self, dump: &dyn DumpWriter) -> Duration {
        let written = self.watch.written();
        if written == 0 {
            return Duration::ZERO;
        }
        let rate = self.phase.elapsed().as_secs_f64() / written as f64;
        // Never absurd: at most what the table of the largest machine takes at the pace of the slowest disk.
        Duration::try_from_secs_f64(dump.finish_bytes() as f64 * rate).unwrap_or_default() * CAUTION
    }
}
