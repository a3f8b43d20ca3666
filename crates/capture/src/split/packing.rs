//! What workers do for all parts: load a batch's PFNs from bitmap 2, and pack its pages.

use std::time::Duration;

use pagehaul_machine::{PageCount, PageSize, Pfn};
use pagehaul_output::StoredBitmap;
use pagehaul_physmem::{PhysMemory, bits};
use pagehaul_pool::{Ticket, Work};

use super::dispatch::{BatchTask, Dispatcher, Task};
use crate::adaptive::AdaptiveLevel;
use crate::batch::batch_pages;
use crate::error::CaptureError;
use crate::pack::{Batch, Packer};
use pagehaul_run::Outcome;

/// The work of all parts together.
pub(super) struct SplitPacking<'a> {
    pub(super) dispatcher: &'a Dispatcher<'a>,
    pub(super) memory: (&'a dyn PhysMemory, PageSize),
    pub(super) level: &'a AdaptiveLevel,
    /// Bitmap 2 of each part: they are equal, but no part has to wait for another's disk.
    pub(super) bitmaps: Vec<StoredBitmap>,
    /// Words of bitmap 2 per unit.
    pub(super) unit_words: usize,
}

/// A batch and the task it is for.
pub(super) struct SplitBatch {
    pub(super) task: Task,
    pub(super) batch: Batch,
}

#[derive(Default)]
pub(super) struct Worker<'a> {
    packer: Option<Packer<'a>>,
    words: Vec<u64>,
}

impl SplitBatch {
    pub(super) fn new(page_size: PageSize) -> Self {
        Self { task: Task::Flush, batch: Batch::new(page_size) }
    }
}

impl<'a> Work for SplitPacking<'a> {
    type Buffer = SplitBatch;
    type Worker = Worker<'a>;
    type Error = CaptureError;

    fn next(&self, buffer: &mut SplitBatch) -> Option<Ticket> {
        let (task, ticket) = self.dispatcher.next(self.level)?;
        buffer.task = task;
        buffer.batch.sequence = ticket.number;
        Some(ticket)
    }

    fn run(&self, worker: &mut Worker<'a>, buffer: &mut SplitBatch) -> Result<(), CaptureError> {
        let Task::Pack(task) = buffer.task else { return Ok(()) };
        worker.words.resize(self.unit_words, 0);
        self.load(task, &mut buffer.batch.pfns, &mut worker.words)?;
        Packer::get_or_insert(&mut worker.packer, self.memory, self.level)?.pack(&mut buffer.batch);
        Ok(())
    }

    fn waited_for_buffer(&self, time: Duration) {
        self.level.waited(time);
    }

    fn abort(&self) {
        self.dispatcher.stop(Outcome::ReadFailed("a thread panicked".into()));
    }
}

impl SplitPacking<'_> {
    /// Reads the PFNs of a batch.
    fn load(&self, task: BatchTask, pfns: &mut Vec<Pfn>, words: &mut [u64]) -> Result<(), CaptureError> {
        let bitmap = &self.bitmaps[task.part];
        let changed = || std::io::Error::other("its contents changed after they were written");
        bitmap
            .load(task.first_pfn.number(), words)
            .and_then(|()| if bits::count(words) == task.unit.pages { Ok(()) } else { Err(changed()) })
            .map_err(|source| CaptureError::read_back(bitmap, source))?;
        pfns.clear();
        let ones = bits::ones(words).skip(task.skip).take(batch_pages(self.memory.1));
        pfns.extend(ones.map(|bit| task.first_pfn + PageCount::new(bit as u64)));
        Ok(())
    }
}
