//! The table of descriptors while pages come in the order of their worth, not of their PFNs.

use pagehaul_kdump::{Layout, PageDesc};
use pagehaul_physmem::file::ReadAt;
use zerocopy::IntoBytes;

use crate::aligned::Aligned;
use crate::sink::{FileSink, Sink, WriteError};

/// Descriptors held at a time: 768 KiB, which is whole 4 KiB blocks, for direct writes.
const CHUNK: u64 = 1 << 15;

/// One stretch of the table in memory, the rest in the file. Each pass goes through the table once from front to back,
/// so that every stretch is read and written once a pass, whatever the pages in between are worth.
pub(super) struct DescriptorTable {
    layout: Layout,
    /// Descriptors in the table.
    entries: u64,
    /// Which stretch is in `buffer`.
    chunk: u64,
    buffer: Aligned,
    dirty: bool,
    /// Stretches that were written: the others are zeros, and perhaps past the end of the file.
    written: Vec<bool>,
}

impl DescriptorTable {
    pub(super) fn new(layout: Layout, entries: u64) -> Self {
        Self {
            layout,
            entries,
            chunk: 0,
            buffer: Aligned::new(CHUNK as usize * PageDesc::SIZE),
            dirty: false,
            written: vec![false; entries.div_ceil(CHUNK) as usize],
        }
    }

    /// Sets the descriptor of the page with `rank` kept pages before it.
    pub(super) fn put(
        &mut self,
        rank: u64,
        descriptor: &PageDesc,
        sink: &mut FileSink,
    ) -> Result<(), WriteError> {
        if rank / CHUNK != self.chunk {
            self.flush(sink)?;
            self.load(rank / CHUNK, sink)?;
        }
        let at = (rank % CHUNK) as usize * PageDesc::SIZE;
        self.buffer.bytes_mut()[at..at + PageDesc::SIZE].copy_from_slice(descriptor.as_bytes());
        self.dirty = true;
        Ok(())
    }

    /// Writes what changed.
    pub(super) fn flush(&mut self, sink: &mut FileSink) -> Result<(), WriteError> {
        if !self.dirty {
            return Ok(());
        }
        let (offset, length) = self.place(self.chunk);
        sink.write(offset, &self.buffer.bytes()[..length])?;
        if let Some(written) = self.written.get_mut(self.chunk as usize) {
            *written = true;
        }
        self.dirty = false;
        Ok(())
    }

    /// Forgets every descriptor that points past file offset `end`.
    pub(super) fn forget_past(&mut self, end: u64, sink: &mut FileSink) -> Result<(), WriteError> {
        for chunk in 0..self.written.len() as u64 {
            if chunk != self.chunk {
                if !self.written[chunk as usize] {
                    continue;
                }
                self.flush(sink)?;
                self.load(chunk, sink)?;
            }
            for bytes in self.buffer.bytes_mut().as_chunks_mut::<{ PageDesc::SIZE }>().0 {
                let Ok(descriptor) = <PageDesc as zerocopy::FromBytes>::read_from_bytes(bytes) else {
                    continue;
                };
                if descriptor.end() > end {
                    bytes.fill(0);
                    self.dirty = true;
                }
            }
        }
        self.flush(sink)
    }

    /// Reads `count` descriptors from `rank` on into `out`, as they are in the file.
    pub(super) fn read(
        &self,
        rank: u64,
        count: u64,
        out: &mut Vec<u8>,
        sink: &FileSink,
    ) -> Result<(), WriteError> {
        let size = PageDesc::SIZE as u64;
        out.clear();
        out.resize((count * size) as usize, 0);
        let start = self.layout.descriptor_offset(rank);
        let there = sink.size().saturating_sub(start).min(count * size) as usize;
        sink.read_exact_at(start, &mut out[..there]).map_err(WriteError::from)
    }

    fn load(&mut self, chunk: u64, sink: &FileSink) -> Result<(), WriteError> {
        let (offset, length) = self.place(chunk);
        if self.written.get(chunk as usize) == Some(&true) {
            sink.read_exact_at(offset, &mut self.buffer.bytes_mut()[..length])?;
        } else {
            self.buffer.bytes_mut().fill(0);
        }
        self.chunk = chunk;
        Ok(())
    }

    /// File offset and bytes of a stretch.
    fn place(&self, chunk: u64) -> (u64, usize) {
        let first = chunk * CHUNK;
        let count = self.entries.saturating_sub(first).min(CHUNK);
        (self.layout.descriptor_offset(first), count as usize * PageDesc::SIZE)
    }
}
