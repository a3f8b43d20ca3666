//! Time and size limits.

use std::time::{Duration, Instant};

use pagehaul_kdump::{Layout, PageDesc};
use pagehaul_machine::PageSize;
use pagehaul_output::{DumpWriter, FinishBound, PageBatch, WriteCosts, WriteError};

use crate::batch::batch_pages;
use crate::error::CaptureError;
use crate::options::Limits;
use crate::report::Clock;
use pagehaul_run::Outcome;

/// Safety factor: a disk may be slower at the end than it was measured.
const CAUTION: u32 = 2;
/// What only one write, one sync or one step took, or few syncs show, ends a capture at most this much, or this share of the
/// limit, before its limit.
const UNPROVEN: Duration = Duration::from_secs(2);
const UNPROVEN_SHARE: u32 = 5;
/// What several syncs show ends a capture at most this share of the limit before its limit.
const PROVEN_SHARE: u32 = 2;
/// Syncs that show what the end takes.
const PROOF: usize = 3;
/// Least time for the end, and share of the limit, for what is not measured: the work on the tables, the program's end.
const LEAST: Duration = Duration::from_secs(1);
const LEAST_SHARE: u32 = 20;
/// When an output that does not save by itself is saved: a power cut then loses little, its syncs are measured, and the end finds little
/// in the page cache.
const SAVED_TIME: Duration = Duration::from_secs(1);
const SAVED_BYTES: u64 = 32 << 20;

/// Refuses a size limit at which a dump in kdump format has no room for a page, whatever its kept pages are.
pub(crate) fn check_size(limits: Limits, layout: &Layout) -> Result<(), CaptureError> {
    refuse_below(limits, layout.descriptors_offset(), layout.page_size())
}

/// Refuses a size limit at which `dump`, to which nothing was added, has no room for a page.
pub(crate) fn check_size_of(
    limits: Limits,
    dump: &dyn DumpWriter,
    page_size: PageSize,
) -> Result<(), CaptureError> {
    let nothing = PageBatch { page_size, pfns: &[], pages: &[], data: &[] };
    refuse_below(limits, dump.size_with(nothing), page_size)
}

fn refuse_below(limits: Limits, tables: u64, page_size: PageSize) -> Result<(), CaptureError> {
    let Some(limit) = limits.size else { return Ok(()) };
    // Pages are written in batches. The shared page of zeros precedes them.
    let batch = batch_pages(page_size) as u64;
    let least = tables + page_size.bytes_of(1 + batch) + batch * PageDesc::SIZE as u64;
    if limit >= least {
        return Ok(());
    }
    Err(CaptureError::Refused(format!(
        "a dump within {limit} bytes has no room for a page: its tables take {tables} bytes; the smallest size limit is {}K",
        least.div_ceil(1 << 10)
    )))
}

/// The limits of one output while its pages are written.
pub(crate) struct Deadline {
    limits: Limits,
    start: Instant,
    /// When the limits were checked the last time.
    checked: Instant,
    /// The longest time between two checks: the next one may be as late.
    longest_step: Duration,
    saved: Instant,
    /// Bytes that whatever reads the output may hold, and has to send on.
    buffered: u64,
}

impl Deadline {
    /// Starts at the current phase of a capture.
    pub(crate) fn new(limits: Limits, buffered: u64, clock: &Clock) -> Self {
        let phase = clock.phase_time();
        let longest_step = Duration::ZERO;
        Self { limits, start: clock.start_time(), checked: phase, longest_step, saved: phase, buffered }
    }

    /// Returns the limit that ends the capture before `batch` is written to `dump`, if there is one.
    pub(crate) fn reached(
        &mut self,
        dump: &mut dyn DumpWriter,
        batch: PageBatch<'_>,
    ) -> Result<Option<Outcome>, WriteError> {
        if self.no_room(dump.size_with(batch)) {
            return Ok(Some(Outcome::SizeLimit));
        }
        let costs = dump.costs();
        let now = Instant::now();
        if self.limits.time.is_some() && self.no_time(now, dump.finish_bound(), costs) {
            return Ok(Some(Outcome::TimeLimit));
        }
        if now - self.saved >= SAVED_TIME || costs.cached >= SAVED_BYTES {
            dump.save()?;
            self.saved = Instant::now();
        }
        Ok(None)
    }

    /// Returns whether a dump of `size` bytes is too large.
    pub(crate) fn no_room(&self, size: u64) -> bool {
        self.limits.size.is_some_and(|limit| size > limit)
    }

    /// Returns whether only the time for the end is left, which writes what `finish` says, and at `costs`.
    pub(crate) fn no_time(&mut self, now: Instant, finish: FinishBound, costs: WriteCosts) -> bool {
        let Some(limit) = self.limits.time else { return false };
        self.longest_step = self.longest_step.max(now - self.checked);
        self.checked = now;
        let needed = costs.time(finish.bytes + self.buffered, finish.syncs);
        now - self.start + reserve(limit, needed, self.longest_step, costs) > limit
    }

    /// Returns until when data in flight may be written, so that the rest of what `finish` says is written in time.
    pub(crate) fn data_until(&self, finish: FinishBound, costs: WriteCosts) -> Option<Instant> {
        let limit = self.limits.time?;
        let end = reserve(limit, costs.time(finish.bytes, finish.syncs), Duration::ZERO, costs);
        self.start.checked_add(limit.saturating_sub(end))
    }
}

/// Returns how long before a time limit its capture ends, if the end `needed` so long by what was measured, a step between
/// two checks took up to `step`, and writing takes `costs`.
fn reserve(limit: Duration, needed: Duration, step: Duration, costs: WriteCosts) -> Duration {
    let needed = needed.saturating_mul(CAUTION);
    let unproven = UNPROVEN.max(limit / UNPROVEN_SHARE).min(limit / PROVEN_SHARE);
    let cautious = needed.saturating_add(costs.slowest).saturating_add(step).min(unproven);
    let proven = if costs.syncs >= PROOF { needed.min(limit / PROVEN_SHARE) } else { Duration::ZERO };
    // A disk that no sync was measured of may be slow.
    let least =
        if costs.syncs == 0 { UNPROVEN.min(limit / UNPROVEN_SHARE) } else { LEAST.min(limit / LEAST_SHARE) };
    cautious.max(proven).max(least)
}

#[cfg(test)]
mod tests;
