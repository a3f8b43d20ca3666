//! Dumps as flattened streams, in PFN order: a stream cannot be read back.

use std::collections::VecDeque;
use std::time::Instant;

use pagehaul_output::{
    ChunkWriter, DumpWriter, FinishBound, Output, PageBatch, Recorded, StoredPage, WriteCosts, WriteError,
};
use zerocopy::IntoBytes;

use super::{MAX_PENDING, descriptor};
use crate::format::{Header, Layout, LayoutError, PageDesc, STATUS_OFFSET};

/// Bytes per write of page data.
const DATA_CHUNK: usize = 4 << 20;
/// Bytes per write of descriptors at most: pages of zeros have no data between them.
const DESCRIPTOR_CHUNK: usize = 256 << 10;

/// Descriptors that may be written once the data up to `data_end` is.
struct Pending {
    data_end: u64,
    descriptors: Vec<PageDesc>,
}

/// Writes the pages of a flattened dump, after its header and bitmaps.
pub struct FlattenedWriter<'a> {
    output: &'a mut dyn Output,
    header: &'a Header<'a>,
    layout: Layout,
    /// Pages that bitmap 2 announces.
    announced: u64,
    /// Unreadable pages so far, whose descriptors are zeros.
    unreadable: u64,
    pending: VecDeque<Pending>,
    /// Descriptors in `pending`.
    pending_descriptors: usize,
    /// Gathered descriptors. None is in two records: readers would take an offset without a size for a page.
    descriptors: Vec<u8>,
    /// Descriptors that are in the stream.
    recorded: u64,
    data: ChunkWriter,
    zero_page: u64,
}

impl<'a> FlattenedWriter<'a> {
    /// Starts after the bitmaps. `announced` pages are set in bitmap 2.
    pub fn new(
        output: &'a mut dyn Output,
        header: &'a Header<'a>,
        layout: Layout,
        announced: u64,
    ) -> Result<Self, LayoutError> {
        Self::with_chunk(output, header, layout, announced, DATA_CHUNK)
    }

    /// As [`new`](Self::new), with `chunk` bytes of page data in a record. Of a part of a split set, `announced` pages are in its range.
    pub fn with_chunk(
        output: &'a mut dyn Output,
        header: &'a Header<'a>,
        layout: Layout,
        announced: u64,
        chunk: usize,
    ) -> Result<Self, LayoutError> {
        let zero_page = layout.zero_page_offset(announced)?;
        Ok(Self {
            descriptors: Vec::new(),
            recorded: 0,
            data: ChunkWriter::new(zero_page, chunk),
            pending: VecDeque::new(),
            pending_descriptors: 0,
            unreadable: 0,
            output,
            header,
            layout,
            announced,
            zero_page,
        })
    }

    /// Writes the sub header, which [`BitmapWriter::begin_part`](super::BitmapWriter::begin_part) omits: it has the range of a part, known
    /// once pages are counted.
    pub fn write_sub_header(&mut self) -> Result<(), WriteError> {
        let sub_header = self.header.sub_header(&self.layout);
        self.output.write(self.layout.sub_header_offset(), sub_header.as_bytes())
    }

    /// Writes everything but the status word, and waits for the disk.
    pub fn settle(&mut self) -> Result<(), WriteError> {
        self.data.flush(self.output)?;
        self.gather_descriptors()?;
        self.write_descriptors()?;
        self.output.sync()
    }

    /// Gathers the descriptors whose pages' data is in the stream.
    fn gather_descriptors(&mut self) -> Result<(), WriteError> {
        let flushed = self.data.flushed();
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.data_end <= flushed) {
            self.pending_descriptors -= pending.descriptors.len();
            self.descriptors.extend_from_slice(pending.descriptors.as_bytes());
            if self.descriptors.len() >= DESCRIPTOR_CHUNK {
                self.write_descriptors()?;
            }
        }
        Ok(())
    }

    /// Writes the gathered descriptors as a record.
    fn write_descriptors(&mut self) -> Result<(), WriteError> {
        self.output.write(self.layout.descriptor_offset(self.recorded), &self.descriptors)?;
        self.recorded += (self.descriptors.len() / PageDesc::SIZE) as u64;
        self.descriptors.clear();
        Ok(())
    }

    fn write_status(&mut self, incomplete: bool) -> Result<(), WriteError> {
        self.output.write(STATUS_OFFSET, &self.header.status(incomplete))
    }

    /// Writes descriptors of zeros for the announced pages that are missing: a stream cannot correct its bitmap.
    fn fill_descriptors(&mut self) -> Result<(), WriteError> {
        let mut missing = ChunkWriter::new(self.layout.descriptor_offset(self.recorded), DESCRIPTOR_CHUNK);
        missing.finish(self.layout.descriptor_offset(self.announced), self.output)
    }
}

impl DumpWriter for FlattenedWriter<'_> {
    fn begin(&mut self) -> Result<(), WriteError> {
        self.data.push(&vec![0; self.layout.page_size().bytes()], self.output)
    }

    // Each chunk of data is followed by its descriptors: wherever the stream ends, its pages are there.
    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError> {
        let (base, flushed) = (self.data.end(), self.data.flushed());
        let mut descriptors = Vec::with_capacity(batch.len());
        for (page, range) in batch.stored() {
            self.unreadable += u64::from(page == StoredPage::Unreadable);
            descriptors.push(descriptor(page, batch.page_size, base + range.start as u64, self.zero_page));
        }
        self.data.push(batch.data, self.output)?;
        self.pending_descriptors += descriptors.len();
        self.pending.push_back(Pending { data_end: self.data.end(), descriptors });
        if self.pending_descriptors > MAX_PENDING {
            self.data.flush(self.output)?;
        }
        self.gather_descriptors()?;
        if self.data.flushed() > flushed { self.write_descriptors() } else { Ok(()) }
    }

    fn finish(&mut self, complete: bool) -> Result<(), WriteError> {
        self.settle()?;
        // On the disk once the stream's terminator is.
        self.write_status(!complete)
    }

    fn abandon(&mut self, _until: Option<Instant>) -> Recorded {
        let _ = self.data.flush(self.output);
        let _ = self.gather_descriptors().and_then(|()| self.write_descriptors());
        let _ = self.fill_descriptors();
        let _ = self.write_status(true);
        let _ = self.output.sync();
        // A lower bound: some of the unreadable pages may come after these.
        Recorded::pages(self.recorded.saturating_sub(self.unreadable))
    }

    fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        self.data.end() + batch.data.len() as u64
    }

    fn save(&mut self) -> Result<(), WriteError> {
        self.output.sync()
    }

    fn finish_bound(&self) -> FinishBound {
        let descriptors = (self.announced - self.recorded.min(self.announced)) * PageDesc::SIZE as u64;
        // The pages, the terminator, the index.
        FinishBound { bytes: descriptors + (self.data.end() - self.data.flushed()), syncs: 3 }
    }

    fn costs(&self) -> WriteCosts {
        self.output.costs()
    }

    fn size(&self) -> u64 {
        self.data.end()
    }
}
