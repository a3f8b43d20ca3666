//! One thread for each part: it puts batches in order and places them in its file.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use pagehaul_kdump::write::{SplitPartWriter, SplitUnit};
use pagehaul_output::WriteError;
use pagehaul_physmem::PAGE_SIZE;

use super::pool::Pool;
use crate::limits::Deadline;
use crate::pace::Governor;
use crate::pack::Batch;
use crate::place::{Placed, ended};
use crate::{CaptureError, Ended};
use pagehaul_run::{Phase, Progress};

/// What a packing thread tells a writer.
pub(super) enum Message {
    /// A batch of a unit.
    Packed(SplitUnit, Batch),
    /// Nothing comes for now.
    Flush,
    /// The part's bitmap cannot be read.
    Broken(CaptureError),
}

/// The writer of one part.
pub(super) struct Writer<'a, 'b> {
    pub(super) part: usize,
    pub(super) file: SplitPartWriter<'a>,
    pub(super) pool: &'b Pool<'a>,
    pub(super) inbox: Receiver<Message>,
    pub(super) deadline: &'b Deadline<'a>,
    pub(super) pacer: Pacer<'b>,
    pub(super) progress: &'a Progress,
    /// The time is over: what still comes is not placed.
    pub(super) over: bool,
    /// What became of the pages of units that are not wholly in the file, oldest first.
    pub(super) units: VecDeque<(SplitUnit, Placed)>,
    /// What became of the pages that are on record.
    pub(super) placed: Placed,
}

/// What `--compress auto` goes by: all writers together. One that waits for batches while another is busy counts for its
/// share only.
pub(super) struct Pacer<'b> {
    pub(super) governor: &'b Mutex<Governor<'b>>,
    pub(super) parts: u32,
}

impl Pacer<'_> {
    fn starved(&self, time: Duration) {
        self.governor.lock().unwrap_or_else(PoisonError::into_inner).starved(time / self.parts);
    }

    fn placed(&self) {
        self.governor.lock().unwrap_or_else(PoisonError::into_inner).placed();
    }
}

/// Why a part takes no more.
enum Failure {
    Write(WriteError),
    Read(CaptureError),
    Limit(Ended),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// What became of a part.
pub(super) struct Written<'a> {
    pub(super) file: SplitPartWriter<'a>,
    pub(super) placed: Placed,
    pub(super) ended: Ended,
    /// Whether the file is a part in good order, if perhaps a smaller one; otherwise it holds nothing.
    pub(super) sealed: bool,
}

impl<'a> Writer<'a, '_> {
    /// Places batches until there are no more.
    pub(super) fn run(mut self) -> Written<'a> {
        let mut waiting = BTreeMap::new();
        match self.place_all(&mut waiting) {
            Ok(()) => self.finish(),
            Err(failure) => {
                let why = self.reason(failure);
                self.fail(why, waiting)
            }
        }
    }

    fn place_all(&mut self, waiting: &mut BTreeMap<u64, (SplitUnit, Batch)>) -> Result<(), Failure> {
        self.file.begin()?;
        let mut expected = 0;
        loop {
            let since = Instant::now();
            let Ok(message) = self.inbox.recv() else { return Ok(()) };
            self.pacer.starved(since.elapsed());
            match message {
                Message::Packed(unit, batch) => drop(waiting.insert(batch.sequence, (unit, batch))),
                Message::Flush => {
                    let units = self.file.flush()?;
                    self.settle(units);
                }
                Message::Broken(error) => return Err(Failure::Read(error)),
            }
            while let Some((unit, batch)) = waiting.remove(&expected) {
                let placed = self.place(unit, &batch);
                self.pool.give_back(self.part, batch);
                expected += 1;
                placed?;
                self.pacer.placed();
            }
        }
    }

    fn place(&mut self, unit: SplitUnit, batch: &Batch) -> Result<(), Failure> {
        self.over |= self.deadline.no_time(self.file.table_bytes(), self.file.data_bytes());
        if self.over {
            self.pool.stop(Ended::TimeLimit);
            return Ok(());
        }
        if self.deadline.no_room(self.file.size_with(batch.pages())) {
            return Err(Failure::Limit(Ended::SizeLimit));
        }
        if self.units.back().is_none_or(|(known, _)| known.rank != unit.rank) {
            self.units.push_back((unit, Placed::nothing(Ended::Complete)));
        }
        if let Some((_, placed)) = self.units.back_mut() {
            placed.add(batch);
        }
        let units = self.file.write_batch(unit, batch.pages())?;
        self.progress.advance(Phase::Pack, (batch.stored.len() * PAGE_SIZE) as u64);
        if units > 0 {
            self.settle(units);
        }
        Ok(())
    }

    /// The first `units` units that were begun are in the file.
    fn settle(&mut self, units: usize) {
        for (unit, placed) in self.units.drain(..units) {
            self.placed.add_all(placed, unit.pages);
        }
        self.pool.settle(self.part, units);
    }

    /// All threads are gone: the part is what it will be.
    fn finish(mut self) -> Written<'a> {
        let stopped = self.pool.stopped();
        let result = self.file.flush().and_then(|units| {
            self.settle(units);
            let begun = usize::from(self.file.has_begun());
            self.pool.end(self.part, begun);
            let pages = self.file.record_begun()?;
            if let Some((_, placed)) = self.units.pop_front() {
                self.placed.add_all(placed, pages);
            }
            self.seal()
        });
        match result {
            Ok(()) => self.written(stopped.unwrap_or(Ended::Complete), true),
            Err(error) => {
                let why = self.reason(Failure::Write(error));
                self.pool.closed(self.part, false);
                self.written(why, false)
            }
        }
    }

    /// Leaves the rest to the others, and makes a smaller part of what is there.
    fn fail(mut self, why: Ended, waiting: BTreeMap<u64, (SplitUnit, Batch)>) -> Written<'a> {
        self.pool.close(self.part);
        waiting.into_values().for_each(|(_, batch)| self.pool.give_back(self.part, batch));
        while self.pool.in_flight(self.part) > 0
            && let Ok(message) = self.inbox.recv()
        {
            if let Message::Packed(_, batch) = message {
                self.pool.give_back(self.part, batch);
            }
        }
        let sealed = self.file.recorded() > 0 && self.file.drop_pending().and_then(|()| self.seal()).is_ok();
        self.pool.closed(self.part, sealed);
        self.written(why, sealed)
    }

    fn written(self, ended: Ended, sealed: bool) -> Written<'a> {
        Written { file: self.file, placed: self.placed, ended, sealed }
    }

    fn seal(&mut self) -> Result<(), WriteError> {
        let (range, rank, pages) = self.pool.look(|share| {
            let (units, range) = (share.units(), share.range(self.part));
            (units.pfns(&range), units.before(range.start), units.kept(range))
        });
        self.file.seal(range, rank, pages)
    }

    fn reason(&self, failure: Failure) -> Ended {
        match failure {
            Failure::Limit(ended) => ended,
            Failure::Read(error) => Ended::ReadFailed(error.to_string()),
            Failure::Write(error) => ended(&self.file.output().path().display().to_string(), &error),
        }
    }
}
