//! Packing threads.

use crossbeam_channel::Sender;
use pagehaul_kdump::write::SplitUnit;
use pagehaul_output::StoredBitmap;
use pagehaul_physmem::{PhysMemory, bits};

use super::pool::{Pool, Step, Task};
use super::writer::Message;
use crate::batch::BATCH_PAGES;
use crate::pace::Pace;
use crate::pack::{Batch, Packer};
use crate::{CaptureError, Ended};

/// One packing thread, which serves all parts.
pub(super) struct Worker<'a, 'b> {
    pub(super) pool: &'b Pool<'a>,
    /// The writers' inboxes.
    pub(super) outboxes: Vec<Sender<Message>>,
    /// Bitmap 2 of each part: all say the same, but no part has to wait for another's disk.
    pub(super) bitmaps: &'b [StoredBitmap],
}

impl Worker<'_, '_> {
    /// Packs until nothing is left to be packed.
    pub(super) fn run(self, memory: &dyn PhysMemory, pace: &Pace) {
        let mut packer = match Packer::new(memory, pace) {
            Ok(packer) => packer,
            Err(error) => return self.pool.stop(Ended::ReadFailed(error.to_string())),
        };
        let mut words = vec![0; (self.pool.look(|share| share.units().pages()) / 64) as usize];
        while let Some(step) = self.pool.next(pace) {
            let (part, message) = match step {
                Step::Flush(part) => (part, Message::Flush),
                Step::Pack(task) => (task.part, self.pack(task, &mut packer, &mut words)),
            };
            // A writer is gone only when no batch of its part is on its way.
            let _ = self.outboxes[part].send(message);
        }
    }

    fn pack(&self, task: Task, packer: &mut Packer<'_>, words: &mut [u64]) -> Message {
        let Task { part, unit, pages, skip, mut batch } = task;
        match self.load(part, unit, pages, skip, &mut batch, words) {
            Ok(rank) => {
                packer.pack(&mut batch);
                Message::Packed(SplitUnit { rank, pages }, batch)
            }
            Err(error) => {
                self.pool.give_back(part, batch);
                Message::Broken(error)
            }
        }
    }

    /// Puts the PFNs of a batch into it. Gives the rank of the unit's first page.
    fn load(
        &self,
        part: usize,
        unit: usize,
        pages: u64,
        skip: usize,
        batch: &mut Batch,
        words: &mut [u64],
    ) -> Result<u64, CaptureError> {
        let (first, rank) = self.pool.look(|share| {
            let units = share.units();
            (units.pfns(&(unit..unit + 1)).start, units.before(unit))
        });
        let bitmap = &self.bitmaps[part];
        let changed = || std::io::Error::other("it is not what was written");
        bitmap
            .load(first, words)
            .and_then(|()| if bits::count(words) == pages { Ok(()) } else { Err(changed()) })
            .map_err(|source| CaptureError::Output {
                path: bitmap.path().to_owned(),
                action: "read back the bitmap of",
                source,
            })?;
        batch.pfns.clear();
        batch.pfns.extend(bits::ones(words).skip(skip).take(BATCH_PAGES).map(|bit| first + bit as u64));
        Ok(rank)
    }
}
