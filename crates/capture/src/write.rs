//! Packing threads on one side, one writer on the other: batches are packed in any order and written in theirs.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pagehaul_codec::Method;
use pagehaul_machine::PageSize;
use pagehaul_output::{DumpWriter, StoredPage, WriteError};
use pagehaul_physmem::PhysMemory;
use pagehaul_pool::{Ticket, Work, ordered};
use pagehaul_run::{Phase, Progress};
use pagehaul_vmcore::Source;

use crate::adaptive::{AdaptiveLevel, LevelController};
use crate::batch::{Batcher, KeptPages};
use crate::compression::Compression;
use crate::error::CaptureError;
use crate::error::output_error;
use crate::limits::{Deadline, check_size_of};
use crate::options::Limits;
use crate::pack::{Batch, Packer};
use crate::priority::Priority;
use crate::report::Unreadable;
use crate::report::{Clock, outcome_at_end};
use crate::selection::Selection;
use pagehaul_run::Outcome;

/// Unreadable pages that a report lists; the others are only counted.
const NAMED: usize = 16;

/// Batches in flight, 1 MiB each: well within the bound of 32 MiB and 8 MiB per thread. With fewer, threads wait for the
/// disk: with 5 for 2 threads a capture took 12 % longer than with 16 (`-d 0 -c lzo`, 2.2 GB/s disk).
const BUFFERS_PER_THREAD: usize = 4;
const SPARE_BUFFERS: usize = 8;

/// Returns how many batches `threads` packing threads need.
pub(crate) fn buffers(threads: usize) -> usize {
    BUFFERS_PER_THREAD * threads + SPARE_BUFFERS
}

/// Statistics of the kept pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WriteStats {
    pub(crate) outcome: Outcome,
    /// Pages that the output holds.
    pub(crate) written: u64,
    /// The same by priority, for a dump that ended early, if known.
    pub(crate) by_priority: Option<[u64; Priority::COUNT]>,
    pub(crate) zero: u64,
    pub(crate) raw: u64,
    /// Compressed pages by method.
    pub(crate) packed: Vec<(Method, u64)>,
    pub(crate) unreadable_pages: u64,
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) stored_bytes: u64,
}

impl WriteStats {
    pub(crate) fn new(outcome: Outcome) -> Self {
        Self {
            outcome,
            written: 0,
            by_priority: None,
            zero: 0,
            raw: 0,
            packed: Vec::new(),
            unreadable_pages: 0,
            unreadable: Vec::new(),
            stored_bytes: 0,
        }
    }

    pub(crate) fn add(&mut self, batch: &Batch) {
        for &stored in &batch.stored {
            match stored {
                StoredPage::Zero => self.zero += 1,
                StoredPage::Raw => self.raw += 1,
                StoredPage::Compressed(method, _) => self.count(method, 1),
                StoredPage::Unreadable => self.unreadable_pages += 1,
            }
        }
        self.stored_bytes += batch.pages().data.len() as u64;
        if let Some((pfn, why)) = &batch.failure
            && self.unreadable.len() < NAMED
        {
            self.unreadable.push(Unreadable { pfn: *pfn, why: why.clone() });
        }
    }

    fn count(&mut self, method: Method, pages: u64) {
        match self.packed.iter_mut().find(|(known, _)| *known == method) {
            Some((_, known)) => *known += pages,
            None => self.packed.push((method, pages)),
        }
    }

    /// Adds the statistics of other pages, of which the output holds `pages`.
    pub(crate) fn add_all(&mut self, other: Self, pages: u64) {
        self.written += pages;
        self.zero += other.zero;
        self.raw += other.raw;
        other.packed.into_iter().for_each(|(method, pages)| self.count(method, pages));
        self.unreadable_pages += other.unreadable_pages;
        self.stored_bytes += other.stored_bytes;
        self.unreadable.extend(other.unreadable);
        self.unreadable.truncate(NAMED);
    }
}

/// The kept pages and how they are packed.
pub(crate) struct PageWork<'a> {
    pub(crate) source: &'a Source,
    pub(crate) selection: &'a Selection<'a>,
    pub(crate) kept: KeptPages<'a>,
    /// How many pages are kept.
    pub(crate) pages: u64,
    pub(crate) compression: Compression,
    pub(crate) threads: usize,
    /// Batches in flight.
    pub(crate) buffers: usize,
    /// Whether others write parts of the same dump at the same time: then none of them tells the phase.
    pub(crate) is_part: bool,
    pub(crate) limits: Limits,
    /// Bytes that whatever reads the output may hold, and has to send on.
    pub(crate) buffered: u64,
}

/// Packs all of `work` and writes it to `dump`, which messages call `name`.
pub(crate) fn write_pages(
    work: PageWork<'_>,
    dump: &mut dyn DumpWriter,
    name: &str,
    progress: &Progress,
    clock: &mut Clock,
) -> Result<WriteStats, CaptureError> {
    let level = AdaptiveLevel::new(work.compression.ladder());
    // Fails here rather than in the threads if a codec cannot be set up.
    Packer::new(work.selection.memory, work.selection.page_size, &level)?;
    check_size_of(work.limits, dump, work.selection.page_size)?;
    let is_part = work.is_part;
    if !is_part {
        progress.begin(Phase::Pack, work.selection.page_size.bytes_of(work.pages));
    }
    let priorities = work.kept.priorities();
    let source = work.source;
    let (pages, mut deadline) = (work.pages, Deadline::new(work.limits, work.buffered, clock));
    let mut stats = WriteStats::new(Outcome::Complete);
    // A dump without its beginning has no tables to end early with; on a disk, an older dump's may still be there.
    dump.begin().map_err(|error| output_error(Path::new(name), error))?;
    let result = write_batches(work, &level, dump, &mut stats, &mut deadline, progress);
    clock.lap(Phase::Pack);
    if !is_part {
        progress.begin(Phase::Finish, 0);
    }
    stats.outcome = match result {
        Ok((_, Some(limit))) => limit,
        Ok((count, None)) if count < pages && progress.is_cancelled() => Outcome::Cancelled,
        Ok((count, None)) if count != pages => Outcome::ReadFailed(format!(
            "the source changed while it was read: {pages} pages were to be kept, then {count}"
        )),
        Ok(_) => {
            let at_end = outcome_at_end(source, stats.unreadable_pages);
            match finish_in_time(dump, &deadline, at_end.is_success()) {
                Ok(true) => at_end,
                Ok(false) => Outcome::TimeLimit,
                Err(error) => error.outcome(name),
            }
        }
        Err(Failure::Write(error)) => error.outcome(name),
        Err(Failure::Read(error)) => Outcome::ReadFailed(error.to_string()),
    };
    if stats.outcome.is_at_end() {
        stats.written = pages - stats.unreadable_pages;
    } else {
        let until = match stats.outcome {
            Outcome::TimeLimit => deadline.data_until(dump.finish_bound(), dump.costs()),
            _ => None,
        };
        let recorded = dump.abandon(until);
        stats.written = recorded.pages;
        stats.by_priority = recorded.per_pass.and_then(|counts| by_priority(&priorities, &counts));
    }
    clock.lap(Phase::Finish);
    Ok(stats)
}

/// Finishes `dump`, to which all pages were added. Returns `false` if pages had to be dropped to end within the time limit.
fn finish_in_time(
    dump: &mut dyn DumpWriter,
    deadline: &Deadline,
    complete: bool,
) -> Result<bool, WriteError> {
    if let Some(until) = deadline.data_until(dump.finish_bound(), dump.costs())
        && !dump.write_until(until)?
    {
        return Ok(false);
    }
    dump.finish(complete)?;
    Ok(true)
}

/// Sums the pages of each pass by priority. Returns `None` for passes without priority.
fn by_priority(passes: &[Option<Priority>], counts: &[u64]) -> Option<[u64; Priority::COUNT]> {
    let mut sums = [0; Priority::COUNT];
    for (priority, count) in passes.iter().zip(counts) {
        sums[(*priority)? as usize] += count;
    }
    Some(sums)
}

enum Failure {
    Read(CaptureError),
    Write(WriteError),
}

/// The work of the pool: the next kept pages are packed.
struct Packing<'a> {
    /// The number of the next batch, and its pages.
    batcher: Mutex<(u64, Batcher<'a>)>,
    memory: (&'a dyn PhysMemory, PageSize),
    level: &'a AdaptiveLevel,
    progress: &'a Progress,
}

impl<'a> Work for Packing<'a> {
    type Buffer = Batch;
    type Worker = Option<Packer<'a>>;
    type Error = CaptureError;

    fn next(&self, batch: &mut Batch) -> Option<Ticket> {
        if self.progress.is_cancelled() {
            return None;
        }
        let mut batcher = self.batcher.lock().unwrap_or_else(PoisonError::into_inner);
        match batcher.1.next(&mut batch.pfns) {
            Ok(false) => return None,
            Ok(true) => {}
            Err(error) => batch.error = Some(error),
        }
        batch.sequence = batcher.0;
        batcher.0 += 1;
        Some(Ticket::number(batch.sequence))
    }

    fn run(&self, packer: &mut Option<Packer<'a>>, batch: &mut Batch) -> Result<(), CaptureError> {
        if let Some(error) = batch.error.take() {
            return Err(error);
        }
        Packer::get_or_insert(packer, self.memory, self.level)?.pack(batch);
        Ok(())
    }

    fn waited_for_buffer(&self, time: Duration) {
        self.level.waited(time);
    }
}

/// Returns the number of pages written, fewer than there are when the capture was cancelled, and the limit that was
/// reached.
fn write_batches(
    work: PageWork<'_>,
    level: &AdaptiveLevel,
    dump: &mut dyn DumpWriter,
    stats: &mut WriteStats,
    deadline: &mut Deadline,
    progress: &Progress,
) -> Result<(u64, Option<Outcome>), Failure> {
    let PageWork { selection, kept, pages: most, threads, buffers, .. } = work;
    let batcher = Mutex::new((0, Batcher::new(kept, selection)));
    let page_size = selection.page_size;
    let packing = Packing { batcher, memory: (selection.memory, page_size), level, progress };
    // One batch per thread is being packed; the others keep the threads busy while the disk pauses.
    let buffers = (0..buffers).map(|_| Batch::new(page_size));
    ordered(&packing, "pack", threads, buffers, |batches| {
        let mut pages = 0;
        let mut controller = LevelController::new(level, threads);
        loop {
            let since = Instant::now();
            let Some(batch) = batches.recv() else { return Ok((pages, None)) };
            if !dump.is_writing() {
                controller.starved(since.elapsed());
            }
            let batch = batch.map_err(Failure::Read)?;
            pages += batch.stored.len() as u64;
            // There is room for no more descriptors than were counted.
            if pages > most {
                return Ok((pages, None));
            }
            if let Some(limit) = deadline.reached(dump, batch.pages()).map_err(Failure::Write)? {
                return Ok((pages, Some(limit)));
            }
            dump.write_batch(batch.pages()).map_err(Failure::Write)?;
            stats.add(batch);
            controller.batch_written();
            progress.advance(Phase::Pack, batch.memory_bytes());
        }
    })
}

#[cfg(test)]
mod tests;
