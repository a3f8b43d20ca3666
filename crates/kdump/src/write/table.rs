//! The table of descriptors of a dump whose pages come in any order.

use std::ops::Range;

use pagehaul_output::{AlignedBuffer, Output, OutputFile, WriteError};
use pagehaul_physmem::file::ReadAt;
use zerocopy::{FromBytes, IntoBytes};

use super::{split_descriptors, write_descriptors};
use crate::format::{Layout, PageDesc};

/// Descriptors in memory: 768 KiB, a multiple of 4 KiB, for direct writes.
const SEGMENT: u64 = 1 << 15;

/// Writes start and end at multiples of this: blocks for direct writes, and whole descriptors.
const BLOCKS: usize = 4096 * PageDesc::SIZE / 8;

/// The bit of [`DescriptorTable::settled`] for the descriptor at byte `at` of a segment. A group starts and ends at a block, and
/// has one descriptor whose offset ends a block.
fn group(at: usize) -> u64 {
    const { assert!(SEGMENT as usize * PageDesc::SIZE <= 64 * BLOCKS) };
    1 << (at / BLOCKS)
}

/// The table in the file, of which one segment is in memory. Each pass over the pages ascends, so it reads every segment
/// at most once and writes every descriptor about once.
pub(super) struct DescriptorTable {
    layout: Layout,
    /// Descriptors in the table.
    entries: u64,
    /// The segment in `buffer`.
    segment: u64,
    buffer: AlignedBuffer,
    /// The bytes of the segment that are not in the file.
    dirty: Range<usize>,
    /// One bit for each group of descriptors in the segment: whether its last one in two blocks is in the file.
    settled: u64,
    /// Which segments were written in part. The others are zeros, and perhaps past the end of the file.
    written: Vec<bool>,
}

impl DescriptorTable {
    pub(super) fn new(layout: Layout, entries: u64) -> Self {
        Self {
            layout,
            entries,
            segment: 0,
            buffer: AlignedBuffer::new(SEGMENT as usize * PageDesc::SIZE),
            dirty: 0..0,
            settled: 0,
            written: vec![false; entries.div_ceil(SEGMENT) as usize],
        }
    }

    /// Returns the segment of a rank: the table is flushed when the next rank is in another.
    pub(super) fn segment_of(rank: u64) -> u64 {
        rank / SEGMENT
    }

    /// Sets the descriptor of the page with `rank` dumped pages before it.
    pub(super) fn set(
        &mut self,
        rank: u64,
        descriptor: &PageDesc,
        output: &mut OutputFile,
    ) -> Result<(), WriteError> {
        if rank / SEGMENT != self.segment {
            self.flush(output)?;
            self.load(rank / SEGMENT, output)?;
        }
        let at = (rank % SEGMENT) as usize * PageDesc::SIZE;
        self.buffer.bytes_mut()[at..at + PageDesc::SIZE].copy_from_slice(descriptor.as_bytes());
        self.mark(at);
        Ok(())
    }

    /// Records that the descriptor at byte `at` of the segment changed.
    fn mark(&mut self, at: usize) {
        let end = at + PageDesc::SIZE;
        self.dirty =
            if self.dirty.is_empty() { at..end } else { self.dirty.start.min(at)..self.dirty.end.max(end) };
    }

    /// Writes what changed of the segment in memory, once the data is on the disk: a disk that loses power may have kept later
    /// writes and lost earlier ones.
    pub(super) fn flush(&mut self, output: &mut OutputFile) -> Result<(), WriteError> {
        if self.dirty.is_empty() {
            return Ok(());
        }
        output.sync()?;
        let (offset, length) = self.location(self.segment);
        let start = self.dirty.start / BLOCKS * BLOCKS;
        let end = self.dirty.end.next_multiple_of(BLOCKS).min(length);
        let settled = self.settled;
        let is_new = |at: usize| settled & group(start + at) == 0;
        write_descriptors(output, offset + start as u64, &mut self.buffer.bytes_mut()[start..end], is_new)?;
        self.settle();
        if let Some(written) = self.written.get_mut(self.segment as usize) {
            *written = true;
        }
        self.dirty = 0..0;
        Ok(())
    }

    /// Clears every descriptor that points past file offset `end`.
    pub(super) fn clear_past(&mut self, end: u64, output: &mut OutputFile) -> Result<(), WriteError> {
        for segment in 0..self.written.len() as u64 {
            if segment != self.segment {
                if !self.written[segment as usize] {
                    continue;
                }
                self.flush(output)?;
                self.load(segment, output)?;
            }
            for at in (0..self.location(segment).1).step_by(PageDesc::SIZE) {
                let bytes = &mut self.buffer.bytes_mut()[at..at + PageDesc::SIZE];
                let Ok(descriptor) = PageDesc::read_from_bytes(bytes) else { continue };
                if descriptor.end() > end {
                    bytes.fill(0);
                    self.mark(at);
                }
            }
        }
        self.flush(output)
    }

    /// Reads `count` descriptors from `rank` in the file. Those past its end are zeros.
    pub(super) fn read(
        &self,
        rank: u64,
        count: u64,
        out: &mut Vec<u8>,
        output: &OutputFile,
    ) -> Result<(), WriteError> {
        let size = PageDesc::SIZE as u64;
        out.clear();
        out.resize((count * size) as usize, 0);
        let start = self.layout.descriptor_offset(rank);
        let present = output.size().saturating_sub(start).min(count * size) as usize;
        output.read_exact_at(start, &mut out[..present]).map_err(WriteError::read_back("descriptors"))
    }

    fn load(&mut self, segment: u64, output: &OutputFile) -> Result<(), WriteError> {
        let (offset, length) = self.location(segment);
        let buffer = self.buffer.bytes_mut();
        if self.written.get(segment as usize) == Some(&true) {
            let read = output.read_exact_at(offset, &mut buffer[..length]);
            read.map_err(WriteError::read_back("descriptors"))?;
        } else {
            buffer.fill(0);
        }
        self.segment = segment;
        self.settle();
        Ok(())
    }

    /// Records which descriptors in two blocks the file has: all that the segment in memory has.
    fn settle(&mut self) {
        let (offset, length) = self.location(self.segment);
        let segment = &self.buffer.bytes()[..length];
        let in_file = |start: &usize| segment[*start..start + PageDesc::SIZE].iter().any(|&byte| byte != 0);
        self.settled =
            split_descriptors(offset, length).filter(in_file).fold(0, |bits, start| bits | group(start));
    }

    /// File offset and length in bytes of a segment.
    fn location(&self, segment: u64) -> (u64, usize) {
        let first = segment * SEGMENT;
        let count = self.entries.saturating_sub(first).min(SEGMENT);
        (self.layout.descriptor_offset(first), count as usize * PageDesc::SIZE)
    }
}
