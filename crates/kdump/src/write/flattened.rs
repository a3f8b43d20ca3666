//! Dumps as flattened streams, in PFN order: a stream cannot be read back.

use std::collections::VecDeque;

use pagehaul_output::{ChunkWriter, DumpWriter, Output, PageBatch, Recorded, StoredPage, WriteError};
use pagehaul_physmem::PAGE_SIZE;
use zerocopy::IntoBytes;

use super::descriptor;
use crate::format::{Header, Layout, LayoutError, PageDesc, STATUS_OFFSET};

/// Bytes per write of page data.
const DATA_CHUNK: usize = 4 << 20;
/// Bytes per write of descriptors: at 24 bytes a page, they are written far less often.
const DESCRIPTOR_CHUNK: usize = 256 << 10;

/// Pages that are in the stream for good once the data up to `data_end` is.
struct Pending {
    pages: u64,
    /// The unreadable ones among them.
    unreadable: u64,
    data_end: u64,
}

/// Writes the pages of a flattened dump, after its header and bitmaps.
pub struct FlattenedWriter<'a> {
    output: &'a mut dyn Output,
    header: &'a Header<'a>,
    layout: Layout,
    /// Pages that bitmap 2 announces.
    announced: u64,
    pages: u64,
    /// The unreadable ones among them, whose descriptors are zeros.
    unreadable: u64,
    /// Pages whose data is in the stream.
    recorded: u64,
    /// The unreadable ones among them.
    recorded_unreadable: u64,
    pending: VecDeque<Pending>,
    descriptors: ChunkWriter,
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
        let zero_page = layout.zero_page_offset(announced)?;
        Ok(Self {
            descriptors: ChunkWriter::new(layout.descriptors_offset(), DESCRIPTOR_CHUNK),
            data: ChunkWriter::new(zero_page, DATA_CHUNK),
            pending: VecDeque::new(),
            pages: 0,
            unreadable: 0,
            recorded: 0,
            recorded_unreadable: 0,
            output,
            header,
            layout,
            announced,
            zero_page,
        })
    }

    fn record_pending(&mut self) {
        let flushed = self.data.flushed();
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.data_end <= flushed) {
            (self.recorded, self.recorded_unreadable) = (pending.pages, pending.unreadable);
        }
    }

    fn write_status(&mut self, incomplete: bool) -> Result<(), WriteError> {
        self.output.write(STATUS_OFFSET, &self.header.status(incomplete))
    }

    /// Writes descriptors of zeros for the announced pages that are missing: a stream cannot correct its bitmap.
    fn fill_descriptors(&mut self) -> Result<(), WriteError> {
        let missing = (self.announced - self.recorded) * PageDesc::SIZE as u64;
        self.descriptors.push_zeros(missing, self.output)?;
        self.descriptors.flush(self.output)?;
        self.write_status(true)
    }
}

impl DumpWriter for FlattenedWriter<'_> {
    fn begin(&mut self) -> Result<(), WriteError> {
        self.data.push(&[0; PAGE_SIZE], self.output)
    }

    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError> {
        let base = self.data.end();
        self.data.push(batch.data, self.output)?;
        for (page, range) in batch.stored() {
            self.unreadable += u64::from(page == StoredPage::Unreadable);
            let descriptor = descriptor(page, base + range.start as u64, self.zero_page);
            self.descriptors.push(descriptor.as_bytes(), self.output)?;
        }
        self.pages += batch.len() as u64;
        let (pages, unreadable) = (self.pages, self.unreadable);
        self.pending.push_back(Pending { pages, unreadable, data_end: self.data.end() });
        self.record_pending();
        Ok(())
    }

    fn finish(&mut self, complete: bool) -> Result<(), WriteError> {
        self.data.flush(self.output)?;
        self.descriptors.flush(self.output)?;
        self.output.sync()?;
        self.write_status(!complete)?;
        self.output.sync()
    }

    fn abandon(&mut self) -> Recorded {
        let _ = self.data.flush(self.output);
        self.record_pending();
        self.descriptors.truncate(self.layout.descriptor_offset(self.recorded));
        if self.descriptors.flush(self.output).is_err() {
            let written = self.descriptors.flushed() - self.layout.descriptors_offset();
            self.recorded = self.recorded.min(written / PageDesc::SIZE as u64);
        }
        let _ = self.fill_descriptors();
        let _ = self.output.sync();
        Recorded::pages(self.recorded.saturating_sub(self.recorded_unreadable))
    }

    fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        self.data.end() + batch.data.len() as u64
    }

    fn finish_bytes(&self) -> u64 {
        (self.announced - self.recorded) * PageDesc::SIZE as u64
    }

    fn size(&self) -> u64 {
        self.data.end()
    }
}
