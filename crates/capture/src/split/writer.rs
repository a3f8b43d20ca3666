//! One thread per part, which takes the part's batches in order and writes them to its file.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use pagehaul_kdump::write::{SplitPartWriter, SplitUnit};
use pagehaul_output::{Output, WriteError};
use pagehaul_pool::Lane;
use pagehaul_run::{Phase, Progress};

use super::dispatch::{Dispatcher, Task};
use super::packing::{SplitBatch, SplitPacking};
use crate::adaptive::LevelController;
use crate::error::CaptureError;
use crate::limits::Deadline;
use crate::pack::Batch;
use crate::write::WriteStats;
use pagehaul_run::Outcome;

/// The writer of one part.
pub(super) struct PartWriter<'a, 'b> {
    part: usize,
    file: SplitPartWriter<'a>,
    deadline: Deadline,
    shared: &'b Shared<'b>,
    /// Whether the time is over: batches that still come are not written.
    over: bool,
    /// Statistics of the units that are not wholly in the file, oldest first.
    units: VecDeque<(SplitUnit, WriteStats)>,
    /// Statistics of the pages that the file holds.
    stats: WriteStats,
}

/// What the writers of all parts share.
pub(super) struct Shared<'a> {
    pub(super) dispatcher: &'a Dispatcher<'a>,
    pub(super) progress: &'a Progress,
    /// Chooses one level for all parts.
    pub(super) controller: Mutex<LevelController<'a>>,
    pub(super) parts: u32,
}

impl Shared<'_> {
    fn control(&self, change: impl FnOnce(&mut LevelController<'_>)) {
        change(&mut self.controller.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Why a part takes no more.
enum Failure {
    Write(WriteError),
    Read(CaptureError),
    Limit(Outcome),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Write(error)
    }
}

/// What became of a part.
pub(super) struct Written<'a> {
    pub(super) file: SplitPartWriter<'a>,
    pub(super) stats: WriteStats,
    pub(super) outcome: Outcome,
    /// Whether the file is a valid part, if perhaps a smaller one; otherwise it holds nothing.
    pub(super) sealed: bool,
}

impl<'a, 'b> PartWriter<'a, 'b> {
    pub(super) fn new(
        part: usize,
        file: SplitPartWriter<'a>,
        deadline: Deadline,
        shared: &'b Shared<'b>,
    ) -> Self {
        let stats = WriteStats::new(Outcome::Complete);
        Self { part, file, deadline, shared, over: false, units: VecDeque::new(), stats }
    }

    /// Writes batches until there are no more.
    pub(super) fn run(mut self, mut lane: Lane<SplitPacking<'_>>) -> Written<'a> {
        match self.write_all(&mut lane) {
            Ok(()) => self.finish(),
            Err(failure) => {
                let why = self.reason(failure);
                self.fail(why, lane)
            }
        }
    }

    fn write_all(&mut self, lane: &mut Lane<SplitPacking<'_>>) -> Result<(), Failure> {
        self.file.begin()?;
        loop {
            let since = Instant::now();
            let Some(task) = lane.recv() else { return Ok(()) };
            // While this writer waits, others may be busy: it counts for its share only.
            self.shared.control(|controller| controller.starved(since.elapsed() / self.shared.parts));
            let written = match task {
                Ok(SplitBatch { task: Task::Pack(task), batch }) => self.write(task.unit, batch),
                Ok(SplitBatch { task: Task::Flush, .. }) => self.flush().map_err(Failure::Write),
                Err(error) => Err(Failure::Read(error)),
            };
            lane.recycle();
            self.shared.dispatcher.finish_task(self.part);
            written?;
        }
    }

    fn write(&mut self, unit: SplitUnit, batch: &Batch) -> Result<(), Failure> {
        let finish = self.file.finish_bound();
        self.over |= self.deadline.no_time(Instant::now(), finish, self.file.output().costs());
        if self.over {
            self.shared.dispatcher.stop(Outcome::TimeLimit);
            return Ok(());
        }
        if self.deadline.no_room(self.file.size_with(batch.pages())) {
            return Err(Failure::Limit(Outcome::SizeLimit));
        }
        if self.units.back().is_none_or(|(known, _)| known.rank != unit.rank) {
            self.units.push_back((unit, WriteStats::new(Outcome::Complete)));
        }
        if let Some((_, stats)) = self.units.back_mut() {
            stats.add(batch);
        }
        let units = self.file.write_batch(unit, batch.pages())?;
        self.shared.progress.advance(Phase::Pack, batch.memory_bytes());
        if units > 0 {
            self.record(units);
        }
        self.shared.control(|controller| controller.batch_written());
        Ok(())
    }

    fn flush(&mut self) -> Result<(), WriteError> {
        let units = self.file.flush()?;
        self.record(units);
        Ok(())
    }

    /// Records that the oldest `units` units are in the file.
    fn record(&mut self, units: usize) {
        for (unit, stats) in self.units.drain(..units) {
            self.stats.add_all(stats, unit.pages);
        }
        self.shared.dispatcher.record(self.part, units);
    }

    /// Finishes the part once all workers have ended.
    fn finish(mut self) -> Written<'a> {
        let stopped = self.shared.dispatcher.stopped();
        match self.flush().and_then(|()| self.record_begun()).and_then(|()| self.seal()) {
            Ok(()) => self.written(stopped.unwrap_or(Outcome::Complete), true),
            Err(error) => {
                let why = self.reason(Failure::Write(error));
                self.shared.dispatcher.closed(self.part, false);
                self.written(why, false)
            }
        }
    }

    /// Records the pages of the unit that was begun.
    fn record_begun(&mut self) -> Result<(), WriteError> {
        self.shared.dispatcher.end(self.part, usize::from(self.file.has_begun()));
        let pages = self.file.record_begun()?;
        if let Some((_, stats)) = self.units.pop_front() {
            self.stats.add_all(stats, pages);
        }
        Ok(())
    }

    /// Leaves the rest to the other parts, and makes a smaller part of what is there.
    fn fail(mut self, why: Outcome, mut lane: Lane<SplitPacking<'_>>) -> Written<'a> {
        let dispatcher = self.shared.dispatcher;
        dispatcher.close(self.part);
        while dispatcher.in_flight(self.part) > 0 && lane.recv().is_some() {
            lane.recycle();
            dispatcher.finish_task(self.part);
        }
        let sealed = self.file.recorded() > 0 && self.file.drop_pending().and_then(|()| self.seal()).is_ok();
        dispatcher.closed(self.part, sealed);
        self.written(why, sealed)
    }

    fn written(self, outcome: Outcome, sealed: bool) -> Written<'a> {
        Written { file: self.file, stats: self.stats, outcome, sealed }
    }

    fn seal(&mut self) -> Result<(), WriteError> {
        let (range, rank, pages) = self.shared.dispatcher.with_plan(|plan| {
            let (units, range) = (plan.units(), plan.range(self.part));
            (units.pfns(&range), units.before(range.start), units.kept(range))
        });
        self.file.seal(range, rank, pages)
    }

    fn reason(&self, failure: Failure) -> Outcome {
        match failure {
            Failure::Limit(outcome) => outcome,
            Failure::Read(error) => Outcome::ReadFailed(error.to_string()),
            Failure::Write(error) => error.outcome(&self.file.output().path().display().to_string()),
        }
    }
}
