//! ELF dumps: uncompressed pages, at offsets that depend only on the set of kept pages.

mod segments;

use std::time::Instant;

use pagehaul_output::{
    ChunkWriter, DumpWriter, FinishBound, Output, PageBatch, Recorded, StoredPage, WriteCosts, WriteError,
};

use crate::write::set_incomplete;

pub use segments::Segments;

/// Bytes per write.
const CHUNK: usize = 4 << 20;
/// Shorter runs of excluded pages stay in the file: every hole costs a program header, and crash searches them linearly.
/// makedumpfile has the same limit.
pub const SHORTEST_HOLE: usize = 256;

/// Bytes of the file header up to the end of `e_flags`, which has the incomplete mark; its size is 4.
const FLAGS_END: usize = 52;

/// Writes an ELF dump.
pub struct ElfDump<'a, S> {
    output: S,
    segments: Segments<'a>,
    /// Number of program headers that fit.
    room: u64,
    data: u64,
    pages: u64,
    stream: ChunkWriter,
    /// Unreadable pages: zeros are in their place.
    unreadable: u64,
    /// The start of the file header, in a stream: its mark is the last record.
    head: Vec<u8>,
}

impl<'a, S: Output> ElfDump<'a, S> {
    /// Starts a dump of the `pages` pages that are kept in `segments`.
    pub fn new(output: S, segments: Segments<'a>, pages: u64) -> Result<Self, WriteError> {
        let room = segments.count(u64::MAX)?;
        let data = segments.data_offset(room);
        let stream = ChunkWriter::new(data, CHUNK);
        Ok(Self { output, segments, room, data, pages, stream, unreadable: 0, head: Vec::new() })
    }

    /// Returns the output.
    pub fn into_output(self) -> S {
        self.output
    }

    fn write_headers(&mut self, pages: u64, incomplete: bool) -> Result<(), WriteError> {
        let mut stream = ChunkWriter::new(0, CHUNK);
        let output = &mut self.output;
        self.segments.encode(self.room, pages, incomplete, |bytes| stream.push(bytes, output))?;
        stream.flush(output)
    }

    /// Writes the headers of a stream, except for the mark: no byte of a stream is written twice.
    fn stream_headers(&mut self) -> Result<(), WriteError> {
        let mut stream = ChunkWriter::new(FLAGS_END as u64, CHUNK);
        let (output, head) = (&mut self.output, &mut self.head);
        self.segments.encode(self.room, u64::MAX, true, |bytes| {
            let (start, rest) = bytes.split_at(bytes.len().min(FLAGS_END - head.len()));
            if !start.is_empty() {
                head.extend(start);
                if let Some((before_flags, _)) =
                    head.split_last_chunk::<4>().filter(|_| head.len() == FLAGS_END)
                {
                    output.write(0, before_flags)?;
                }
            }
            stream.push(rest, output)
        })?;
        stream.flush(output)
    }

    /// Writes the final headers of a dump that holds the first `pages` of the kept pages.
    fn finish_headers(&mut self, pages: u64, incomplete: bool) -> Result<(), WriteError> {
        if self.output.can_rewrite() {
            return self.write_headers(pages, incomplete);
        }
        set_incomplete(&mut self.head, incomplete);
        match self.head.split_last_chunk::<4>() {
            Some((before, mark)) => self.output.write(before.len() as u64, mark),
            None => Ok(()),
        }
    }

    fn bytes_of(&self, pages: u64) -> u64 {
        self.segments.page_size.bytes_of(pages)
    }

    fn end(&self) -> u64 {
        self.data + self.bytes_of(self.pages)
    }
}

impl<S: Output> DumpWriter for ElfDump<'_, S> {
    fn begin(&mut self) -> Result<(), WriteError> {
        if self.output.can_rewrite() { self.write_headers(u64::MAX, true) } else { self.stream_headers() }
    }

    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError> {
        let data = batch.data;
        // Consecutive pages are pushed together.
        let mut run = 0..0;
        for (stored, place) in batch.stored() {
            self.unreadable += u64::from(stored == StoredPage::Unreadable);
            match stored {
                StoredPage::Zero | StoredPage::Unreadable => {
                    self.stream.push(&data[run.clone()], &mut self.output)?;
                    self.stream.push_zeros(self.segments.page_size.bytes() as u64, &mut self.output)?;
                    run = place.end..place.end;
                }
                StoredPage::Raw | StoredPage::Compressed(..) => run.end = place.end,
            }
        }
        self.stream.push(&data[run], &mut self.output)
    }

    fn finish(&mut self, complete: bool) -> Result<(), WriteError> {
        self.stream.flush(&mut self.output)?;
        // Zero pages at the end are a hole, which must be within the file.
        self.output.set_size(self.end())?;
        self.output.sync()?;
        self.finish_headers(u64::MAX, !complete)?;
        self.output.sync()
    }

    fn abandon(&mut self, _until: Option<Instant>) -> Recorded {
        let _ = self.stream.flush(&mut self.output);
        let (data, page) = (self.data, self.segments.page_size);
        let pages_until = |end: u64| end.saturating_sub(data) >> page.shift();
        let mut pages = pages_until(self.stream.flushed());
        // Zero pages at the end are a hole: the file must grow to include it.
        if self.output.set_size(data + page.bytes_of(pages)).is_err() {
            pages = pages.min(pages_until(self.output.end()));
        }
        let _ = self.finish_headers(pages, true);
        let _ = self.output.sync();
        // A lower bound: some of the unreadable pages may come after these.
        Recorded::pages(pages.saturating_sub(self.unreadable))
    }

    fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        self.stream.end() + self.bytes_of(batch.len() as u64)
    }

    fn save(&mut self) -> Result<(), WriteError> {
        self.output.sync()
    }

    fn finish_bound(&self) -> FinishBound {
        FinishBound { bytes: self.data + (self.stream.end() - self.stream.flushed()), syncs: 2 }
    }

    fn costs(&self) -> WriteCosts {
        self.output.costs()
    }

    fn size(&self) -> u64 {
        self.end()
    }
}
