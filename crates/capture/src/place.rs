//! Packing threads on one side, one writer on the other: batches are packed in any order and placed in theirs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use crossbeam_channel::bounded;
use pagehaul_codec::Method;
use pagehaul_physmem::PAGE_SIZE;

use crate::batch::{Batcher, KeptPages};
use crate::limits::Deadline;
use crate::pace::{Governor, Pace};
use crate::pack::{Batch, Packer};
use crate::report::Clock;
use crate::select::Selection;
use crate::worth::Worth;
use crate::{CaptureError, Compression, Ended, Limits, Unreadable};
use pagehaul_output::{DumpWriter, StoredPage, WriteError};
use pagehaul_run::{Phase, Progress};

/// Unreadable pages that a report names; the others are counted.
const NAMED: usize = 16;

/// Batches on their way, at 1 MiB each: well within the bound of 32 MiB and 8 MiB per thread. Fewer let the threads wait
/// for the disk: with 5 for 2 threads a capture took 12 % longer than with 16 (`-d 0 -c lzo`, 2.2 GB/s disk).
const BUFFERS_PER_THREAD: usize = 4;
const SPARE_BUFFERS: usize = 8;

/// How many batches `threads` packing threads need.
pub(crate) fn buffers(threads: usize) -> usize {
    BUFFERS_PER_THREAD * threads + SPARE_BUFFERS
}

/// What became of the kept pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) ended: Ended,
    /// Pages that are on record in the output.
    pub(crate) written: u64,
    /// The same by worth, of a dump that ended early, where it is known.
    pub(crate) by_worth: Option<[u64; Worth::COUNT]>,
    pub(crate) zero: u64,
    pub(crate) raw: u64,
    /// Pages compressed, by the way they were.
    pub(crate) packed: Vec<(Method, u64)>,
    pub(crate) unreadable_pages: u64,
    pub(crate) unreadable: Vec<Unreadable>,
    pub(crate) stored_bytes: u64,
}

impl Placed {
    pub(crate) fn nothing(ended: Ended) -> Self {
        Self {
            ended,
            written: 0,
            by_worth: None,
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

    /// Adds what became of other pages, of which `pages` are on record.
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
pub(crate) struct Work<'a> {
    pub(crate) selection: &'a Selection<'a>,
    pub(crate) kept: KeptPages<'a>,
    /// How many pages are kept.
    pub(crate) pages: u64,
    pub(crate) compression: Compression,
    pub(crate) threads: usize,
    pub(crate) limits: Limits,
}

/// Packs all of `work` and places it in `dump`, which is called `name` in messages.
pub(crate) fn write_pages(
    work: Work<'_>,
    dump: &mut dyn DumpWriter,
    name: &str,
    progress: &Progress,
    clock: &mut Clock,
) -> Result<Placed, CaptureError> {
    let pace = Pace::new(work.compression.ladder());
    // Here rather than in the threads, so that a codec that cannot be set up costs nothing.
    Packer::new(work.selection.memory, &pace)?;
    progress.begin(Phase::Pack, work.pages * PAGE_SIZE as u64);
    let priorities = work.kept.priorities();
    let (pages, deadline) = (work.pages, Deadline::new(work.limits, clock, progress));
    let mut placed = Placed::nothing(Ended::Complete);
    let result = match dump.begin() {
        Ok(()) => place_all(work, &pace, dump, &mut placed, &deadline, progress),
        Err(error) => Err(Failure::Write(error)),
    };
    clock.lap(Phase::Pack);
    progress.begin(Phase::Finish, 0);
    placed.ended = match result {
        Ok((_, Some(limit))) => limit,
        Ok((count, None)) if count < pages && progress.is_cancelled() => Ended::Stopped,
        Ok((count, None)) if count != pages => Ended::ReadFailed(format!(
            "the source changed while it was read: {pages} pages were to be kept, then {count}"
        )),
        Ok(_) => match dump.finish() {
            Ok(()) => Ended::Complete,
            Err(error) => ended(name, &error),
        },
        Err(Failure::Write(error)) => ended(name, &error),
        Err(Failure::Read(error)) => Ended::ReadFailed(error.to_string()),
    };
    if placed.ended.is_success() {
        placed.written = pages;
    } else {
        let recorded = dump.abandon();
        placed.written = recorded.pages;
        placed.by_worth = recorded.per_pass.and_then(|counts| by_worth(&priorities, &counts));
    }
    clock.lap(Phase::Finish);
    Ok(placed)
}

/// How a failed write ends a capture.
pub(crate) fn ended(name: &str, error: &WriteError) -> Ended {
    let WriteError::Write { source, .. } = error else {
        return Ended::ReadFailed(format!("{name}: {error}"));
    };
    let why = format!("cannot write to {name}: {source}");
    if error.is_full() { Ended::DiskFull(why) } else { Ended::WriteFailed(why) }
}

/// Sums the pages of each pass by priority; none where passes have none.
fn by_worth(passes: &[Option<Worth>], counts: &[u64]) -> Option<[u64; Worth::COUNT]> {
    let mut sums = [0; Worth::COUNT];
    for (worth, count) in passes.iter().zip(counts) {
        sums[(*worth)? as usize] += count;
    }
    Some(sums)
}

enum Failure {
    Read(CaptureError),
    Write(WriteError),
}

/// Gives the number of pages placed, fewer than there are when the capture was stopped, and the limit that was reached.
fn place_all(
    work: Work<'_>,
    pace: &Pace,
    dump: &mut dyn DumpWriter,
    placed: &mut Placed,
    deadline: &Deadline<'_>,
    progress: &Progress,
) -> Result<(u64, Option<Ended>), Failure> {
    let Work { selection, kept, pages: most, threads, .. } = work;
    let batcher = Mutex::new(Batcher::new(kept, selection.blocks(), selection.pages_per_block()));
    // One batch per thread is packed; the others keep the threads busy while the disk takes its time.
    let buffers = buffers(threads);
    let (free_tx, free_rx) = bounded(buffers);
    let (done_tx, done_rx) = bounded::<Result<Batch, CaptureError>>(buffers);
    for _ in 0..buffers {
        // The channel has room for exactly these.
        let _ = free_tx.send(Batch::new());
    }
    thread::scope(|scope| {
        for _ in 0..threads {
            let (free, done, batcher) = (free_rx.clone(), done_tx.clone(), &batcher);
            scope.spawn(move || match Packer::new(selection.memory, pace) {
                Ok(packer) => packer.run(batcher, &free, &done, progress),
                Err(error) => drop(done.send(Err(error))),
            });
        }
        drop((free_rx, done_tx));
        // Moved in, so that it is gone on every way out and no thread waits for it.
        let (free_tx, done_rx) = (free_tx, done_rx);
        let mut waiting = BTreeMap::new();
        let mut expected = 0;
        let mut pages = 0;
        let mut governor = Governor::new(pace, threads);
        loop {
            let since = Instant::now();
            let Ok(batch) = done_rx.recv() else { break };
            if !dump.is_writing() {
                governor.starved(since.elapsed());
            }
            let batch = batch.map_err(Failure::Read)?;
            waiting.insert(batch.sequence, batch);
            while let Some(batch) = waiting.remove(&expected) {
                pages += batch.stored.len() as u64;
                // There is room for no more descriptors than were counted.
                if pages > most {
                    return Ok((pages, None));
                }
                if let Some(limit) = deadline.reached(dump, batch.pages()) {
                    return Ok((pages, Some(limit)));
                }
                dump.write_batch(batch.pages()).map_err(Failure::Write)?;
                placed.add(&batch);
                governor.placed();
                progress.advance(Phase::Pack, (batch.stored.len() * PAGE_SIZE) as u64);
                expected += 1;
                // Fails only when every thread is gone.
                let _ = free_tx.send(batch);
            }
        }
        Ok((pages, None))
    })
}
