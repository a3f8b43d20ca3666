//! Copying pages into the container while the process runs, compressed: sooner done than copies in memory, which have to be compressed
//! as well, and no memory is needed for them.
//!
//! What is written to afterwards is copied again, and what was spilled before stays in the file, unused.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagehaul_codec::FrameCompressor;
use pagehaul_pool::{Ticket, Work, ordered};
use pagehaul_run::Progress;

use super::store::PageStore;
use super::tracked::{exclude, length, push_joined, read};
use crate::checkpoint::base::Base;
use crate::checkpoint::chain::Reader;
use crate::checkpoint::container::{BLOCK, Block, checksum};
use crate::checkpoint::writer::Writer;
use crate::copy::Memory;
use crate::error::ProcessError;
use crate::populated::Run;

/// Where copies are spilled to.
pub(crate) struct Spill<'a> {
    pub(crate) writer: &'a mut Writer,
    /// What it has is not written again.
    pub(crate) base: Option<&'a Base>,
    pub(crate) level: i32,
    pub(crate) threads: usize,
    /// Why the container could not be written.
    pub(crate) failed: Option<std::io::Error>,
}

impl Spill<'_> {
    /// Copies these pages of a process, but those that are the same in this `list` of the base. Those that cannot be read are not held
    /// afterwards. Returns the bytes that were written.
    pub(super) fn copy(
        &mut self,
        store: &mut PageStore,
        memory: &Memory,
        list: Option<&str>,
        ranges: &[Range<u64>],
        progress: &Progress,
    ) -> Result<u64, String> {
        if length(ranges) > store.spillable() {
            return Err("it has more pages than can be written while it runs".into());
        }
        let (level, base) = (self.level, self.base.zip(list));
        let work = Spilling { memory, base, level, batches: batches(ranges), next: AtomicUsize::new(0) };
        let buffers = (0..3 * self.threads.max(1) + 2).map(|_| Batch::default());
        let mut bytes = 0;
        ordered(&work, "spill", self.threads, buffers, |results| {
            while let Some(batch) = results.recv().filter(|_| !progress.is_cancelled()) {
                let Batch { ranges, unchanged, unreadable, content, frame, .. } =
                    batch.map_err(|error: ProcessError| error.to_string())?;
                if !content.is_empty() {
                    let offset = self.writer.append(frame).map_err(|error| {
                        let said = error.to_string();
                        self.failed = Some(error);
                        said
                    })?;
                    let (stored, length) = (frame.len() as u32, content.len() as u32);
                    let block = Block { offset, stored, bytes: length, checksum: checksum(frame) };
                    store.add_spilled(block, ranges);
                    bytes += u64::from(length);
                }
                unchanged.iter().for_each(|range| store.add_in_base(range));
                unreadable.iter().for_each(|range| store.set_held(range, false));
            }
            Ok::<_, String>(())
        })?;
        Ok(bytes)
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
    /// What the pages are compared with.
    base: Option<(&'a Base, &'a str)>,
    level: i32,
    batches: Vec<Vec<Range<u64>>>,
    next: AtomicUsize,
}

/// A batch, before and after it is compressed.
#[derive(Default)]
struct Batch {
    number: usize,
    /// Its pages, but those that are in the base.
    ranges: Vec<Range<u64>>,
    unchanged: Vec<Range<u64>>,
    unreadable: Vec<Range<u64>>,
    content: Vec<u8>,
    frame: Vec<u8>,
}

#[derive(Default)]
struct Spiller<'a> {
    compressor: Option<FrameCompressor>,
    reader: Option<Reader<'a>>,
}

impl<'a> Work for Spilling<'a> {
    type Buffer = Batch;
    type Worker = Spiller<'a>;
    type Error = ProcessError;

    fn next(&self, batch: &mut Batch) -> Option<Ticket> {
        batch.number = self.next.fetch_add(1, Ordering::Relaxed);
        batch.ranges.clone_from(self.batches.get(batch.number)?);
        Some(Ticket::number(batch.number as u64))
    }

    fn run(
        &self,
        Spiller { compressor, reader }: &mut Spiller<'a>,
        batch: &mut Batch,
    ) -> Result<(), ProcessError> {
        let Batch { ranges, unchanged, unreadable, content, frame, .. } = batch;
        content.resize(length(ranges) as usize, 0);
        unreadable.clear();
        unchanged.clear();
        let run = |range: &Range<u64>| Run { range: 0..range.end - range.start, address: range.start };
        let runs: Vec<Run> = ranges.iter().map(run).collect();
        if !self.memory.copy(&runs, content).is_ok_and(|missing| missing.pages == 0) {
            let mut rest = content.as_mut_slice();
            for range in &*ranges {
                let (buffer, after) = rest.split_at_mut((range.end - range.start) as usize);
                read(self.memory, range, buffer, unreadable);
                rest = after;
            }
        }
        if let Some((base, list)) = self.base {
            let reader = match reader {
                Some(reader) => reader,
                None => reader.insert(base.reader()?),
            };
            *unchanged = base.unchanged(list, reader, ranges, content)?;
            leave_out(unchanged, ranges, content);
        }
        let compressor = match compressor {
            Some(compressor) => compressor,
            None => compressor.insert(FrameCompressor::new(self.level)?),
        };
        Ok(compressor.compress(content, frame)?)
    }
}

/// Leaves pages out of ranges, and of their content.
fn leave_out(pages: &[Range<u64>], ranges: &mut Vec<Range<u64>>, content: &mut Vec<u8>) {
    let (mut kept, mut from, mut to) = (Vec::new(), 0, 0);
    for range in &*ranges {
        exclude(range.clone(), pages, &mut |part| {
            let (at, bytes) = (from + (part.start - range.start) as usize, (part.end - part.start) as usize);
            content.copy_within(at..at + bytes, to);
            to += bytes;
            kept.push(part);
        });
        from += (range.end - range.start) as usize;
    }
    content.truncate(to);
    *ranges = kept;
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

    #[test]
    fn what_the_base_has_is_left_out() {
        let pages = |first: u64, count: u64| first * PAGE..(first + count) * PAGE;
        let mut content: Vec<u8> = (0..6).flat_map(|page| vec![page; PAGE as usize]).collect();
        let mut ranges = vec![pages(10, 4), pages(20, 2)];
        leave_out(&[pages(11, 2), pages(20, 1)], &mut ranges, &mut content);
        assert_eq!(ranges, [pages(10, 1), pages(13, 1), pages(21, 1)]);
        assert_eq!(content.chunks(PAGE as usize).map(|page| page[0]).collect::<Vec<_>>(), [0, 3, 5]);
        assert_eq!(content.len() as u64, 3 * PAGE);
    }
}
