//! Copying pages into the container while the process runs, compressed, where memory for their copies is short.
//!
//! What is written to afterwards is copied again, and what was spilled before stays in the file, unused.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagehaul_codec::FrameCompressor;
use pagehaul_pool::{Ticket, Work, ordered};
use pagehaul_run::Progress;

use super::store::PageStore;
use super::tracked::{length, push_joined, read};
use crate::checkpoint::container::{BLOCK, Block, checksum};
use crate::checkpoint::writer::Writer;
use crate::copy::Memory;
use crate::error::ProcessError;
use crate::populated::Run;

/// Where copies are spilled to.
pub(crate) struct Spill<'a> {
    pub(crate) writer: &'a mut Writer,
    pub(crate) level: i32,
    pub(crate) threads: usize,
    /// Why the container could not be written.
    pub(crate) failed: Option<std::io::Error>,
}

impl Spill<'_> {
    /// Copies these pages of a process. Those that cannot be read are not held afterwards.
    pub(super) fn copy(
        &mut self,
        store: &mut PageStore,
        memory: &Memory,
        ranges: &[Range<u64>],
        progress: &Progress,
    ) -> Result<(), String> {
        if length(ranges) > store.spillable() {
            return Err("it has more pages than can be written while it runs".into());
        }
        let work =
            Spilling { memory, level: self.level, batches: batches(ranges), next: AtomicUsize::new(0) };
        let buffers = (0..3 * self.threads.max(1) + 2).map(|_| Spilled::default());
        ordered(&work, "spill", self.threads, buffers, |results| {
            while let Some(spilled) = results.recv().filter(|_| !progress.is_cancelled()) {
                let Spilled { batch, content, frame, unreadable } =
                    spilled.map_err(|error: ProcessError| error.to_string())?;
                let Some(ranges) = work.batches.get(*batch) else { continue };
                let offset = self.writer.append(frame).map_err(|error| {
                    let said = error.to_string();
                    self.failed = Some(error);
                    said
                })?;
                let (stored, bytes) = (frame.len() as u32, content.len() as u32);
                store.add_spilled(Block { offset, stored, bytes, checksum: checksum(frame) }, ranges);
                unreadable.iter().for_each(|range| store.set_held(range, false));
            }
            Ok(())
        })
    }
}

/// Cuts ranges into lists of ranges, each of which is the content of a block.
fn batches(ranges: &[Range<u64>]) -> Vec<Vec<Range<u64>>> {
    let (mut all, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let part = start..range.end.min(start + BLOCK as u64 - bytes);
            (bytes, start) = (bytes + part.end - part.start, part.end);
            push_joined(&mut batch, part);
            if bytes == BLOCK as u64 {
                all.push(std::mem::take(&mut batch));
                bytes = 0;
            }
        }
    }
    all.extend(Some(batch).filter(|batch| !batch.is_empty()));
    all
}

struct Spilling<'a> {
    memory: &'a Memory,
    level: i32,
    batches: Vec<Vec<Range<u64>>>,
    next: AtomicUsize,
}

/// A batch, before and after it is compressed.
#[derive(Default)]
struct Spilled {
    batch: usize,
    content: Vec<u8>,
    frame: Vec<u8>,
    unreadable: Vec<Range<u64>>,
}

impl Work for Spilling<'_> {
    type Buffer = Spilled;
    type Worker = Option<FrameCompressor>;
    type Error = ProcessError;

    fn next(&self, spilled: &mut Spilled) -> Option<Ticket> {
        spilled.batch = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes = length(self.batches.get(spilled.batch)?);
        spilled.content.resize(bytes as usize, 0);
        Some(Ticket::number(spilled.batch as u64))
    }

    fn run(&self, worker: &mut Option<FrameCompressor>, spilled: &mut Spilled) -> Result<(), ProcessError> {
        let Spilled { batch, content, frame, unreadable } = spilled;
        let ranges = self.batches.get(*batch).map_or(&[][..], Vec::as_slice);
        let runs: Vec<Run> = ranges
            .iter()
            .map(|range| Run { range: 0..range.end - range.start, address: range.start })
            .collect();
        unreadable.clear();
        if !self.memory.copy(&runs, content).is_ok_and(|missing| missing.pages == 0) {
            let mut rest = content.as_mut_slice();
            for range in ranges {
                let (buffer, after) = rest.split_at_mut((range.end - range.start) as usize);
                read(self.memory, range, buffer, unreadable);
                rest = after;
            }
        }
        let compressor = match worker {
            Some(compressor) => compressor,
            None => worker.insert(FrameCompressor::new(self.level)?),
        };
        Ok(compressor.compress(content, frame)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::PAGE;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn batches_are_full_and_have_all_pages_in_order(
            gaps in proptest::collection::vec((0u64..300, 1u64..700), 0..20),
        ) {
            let (mut ranges, mut at) = (Vec::new(), 0);
            for (gap, pages) in gaps {
                push_joined(&mut ranges, (at + gap) * PAGE..(at + gap + pages) * PAGE);
                at += gap + pages;
            }
            let batches = batches(&ranges);
            let mut all = Vec::new();
            batches.iter().flatten().for_each(|range| push_joined(&mut all, range.clone()));
            prop_assert_eq!(all, ranges);
            for (number, batch) in batches.iter().enumerate() {
                let is_last = number + 1 == batches.len();
                prop_assert!(length(batch) == BLOCK as u64 || is_last && length(batch) < BLOCK as u64);
            }
        }
    }
}
