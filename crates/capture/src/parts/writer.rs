//! One thread for each part: it puts batches in order and places them in its file.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use pagehaul_physmem::PAGE_SIZE;
use pagehaul_run::{Phase, Progress};

use super::file::{PartFile, UnitPages};
use super::pool::Pool;
use crate::limits::Deadline;
use crate::pace::Governor;
use crate::pack::Batch;
use crate::place::ended;
use crate::sink::{Sink, WriteError};
use crate::{CaptureError, Ended};

/// What a packing thread tells a writer.
pub(super) enum Message {
    /// A batch of a unit.
    Packed(UnitPages, Batch),
    /// Nothing comes for now.
    Flush,
    /// The part's bitmap cannot be read.
    Broken(CaptureError),
}

/// The writer of one part.
pub(super) struct Writer<'a, 'b> {
    pub(super) part: usize,
    pub(super) file: PartFile<'a>,
    pub(super) pool: &'b Pool<'a>,
    pub(super) inbox: Receiver<Message>,
    pub(super) deadline: &'b Deadline<'a>,
    pub(super) pacer: Pacer<'b>,
    pub(super) progress: &'a Progress,
    /// The time is over: what still comes is not placed.
    pub(super) over: bool,
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
    pub(super) file: PartFile<'a>,
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

    fn place_all(&mut self, waiting: &mut BTreeMap<u64, (UnitPages, Batch)>) -> Result<(), Failure> {
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
                    self.pool.settle(self.part, units);
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

    fn place(&mut self, unit: UnitPages, batch: &Batch) -> Result<(), Failure> {
        self.over |= self.deadline.no_time(self.file.table_bytes(), self.file.written_bytes());
        if self.over {
            self.pool.stop(Ended::TimeLimit);
            return Ok(());
        }
        if self.deadline.no_room(self.file.size_with(batch)) {
            return Err(Failure::Limit(Ended::SizeLimit));
        }
        let units = self.file.place(unit, batch)?;
        self.progress.advance(Phase::Pack, (batch.stored.len() * PAGE_SIZE) as u64);
        if units > 0 {
            self.pool.settle(self.part, units);
        }
        Ok(())
    }

    /// All threads are gone: the part is what it will be.
    fn finish(mut self) -> Written<'a> {
        let stopped = self.pool.stopped();
        let result = self.file.flush().and_then(|units| {
            self.pool.settle(self.part, units);
            let begun = usize::from(self.file.has_begun());
            self.pool.end(self.part, begun);
            self.file.settle_begun()?;
            self.seal()
        });
        match result {
            Ok(()) => Written { ended: stopped.unwrap_or(Ended::Complete), sealed: true, file: self.file },
            Err(error) => {
                let why = self.reason(Failure::Write(error));
                self.pool.closed(self.part, false);
                Written { ended: why, sealed: false, file: self.file }
            }
        }
    }

    /// Leaves the rest to the others, and makes a smaller part of what is there.
    fn fail(mut self, why: Ended, waiting: BTreeMap<u64, (UnitPages, Batch)>) -> Written<'a> {
        self.pool.close(self.part);
        waiting.into_values().for_each(|(_, batch)| self.pool.give_back(self.part, batch));
        while self.pool.in_flight(self.part) > 0
            && let Ok(message) = self.inbox.recv()
        {
            if let Message::Packed(_, batch) = message {
                self.pool.give_back(self.part, batch);
            }
        }
        let sealed = self.file.placed.written > 0 && self.file.cut().and_then(|()| self.seal()).is_ok();
        self.pool.closed(self.part, sealed);
        Written { file: self.file, ended: why, sealed }
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
            Failure::Write(error) => ended(&self.file.sink.path().display().to_string(), &error),
        }
    }
}
