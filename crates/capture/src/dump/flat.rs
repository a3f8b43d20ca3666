//! kdump-compressed dumps as flattened streams, in the order of PFNs: what was written cannot be read back.

use std::collections::VecDeque;

use pagehaul_kdump::{Header, Layout, PageDesc, STATUS_OFFSET};
use pagehaul_physmem::PAGE_SIZE;
use pagehaul_run::Progress;
use zerocopy::IntoBytes;

use super::{DumpWriter, Recorded, descriptor};
use crate::CaptureError;
use crate::batch::BATCH_PAGES;
use crate::pack::{Batch, Stored};
use crate::sink::{Sink, WriteError};
use crate::stream::Stream;

/// Bytes per write of page data.
const DATA_CHUNK: usize = 4 << 20;
/// Bytes per write of descriptors: 24 bytes a page, so these go out far less often.
const DESCRIPTOR_CHUNK: usize = 256 << 10;

/// Pages that are in the file for good once so much of the data stream is.
struct Pending {
    pages: u64,
    data_end: u64,
}

/// A flattened dump whose header and bitmaps are written.
pub(crate) struct FlatDump<'a> {
    sink: &'a mut dyn Sink,
    progress: &'a Progress,
    header: &'a Header<'a>,
    layout: Layout,
    pages: u64,
    placed: u64,
    safe: u64,
    pending: VecDeque<Pending>,
    descriptors: Stream,
    data: Stream,
    zero_page: u64,
    encoded: Vec<u8>,
    /// Whether a page could not be read.
    lost: bool,
}

impl<'a> FlatDump<'a> {
    /// Goes on after the bitmaps: `pages` pages will be placed.
    pub(crate) fn new(
        sink: &'a mut dyn Sink,
        header: &'a Header<'a>,
        layout: Layout,
        pages: u64,
        progress: &'a Progress,
    ) -> Result<Self, CaptureError> {
        let zero_page = layout.zero_page_offset(pages)?;
        let table = layout.descriptors_offset();
        Ok(Self {
            descriptors: Stream::new(table, DESCRIPTOR_CHUNK),
            data: Stream::new(zero_page, DATA_CHUNK),
            encoded: Vec::with_capacity(BATCH_PAGES * PageDesc::SIZE),
            pending: VecDeque::new(),
            placed: 0,
            safe: 0,
            lost: false,
            sink,
            progress,
            header,
            layout,
            pages,
            zero_page,
        })
    }

    /// Notes which pages are in the file for good.
    fn settle(&mut self) {
        let flushed = self.data.flushed();
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.data_end <= flushed) {
            self.safe = pending.pages;
        }
    }

    fn write_status(&mut self, incomplete: bool) -> Result<(), WriteError> {
        self.sink.write(STATUS_OFFSET, &self.header.status(incomplete))
    }

    /// A stream cannot take back the bits of its bitmap: the pages that are not there get descriptors that say so.
    fn fill_descriptors(&mut self) -> Result<(), WriteError> {
        let missing = (self.pages - self.safe) * PageDesc::SIZE as u64;
        self.descriptors.push_zeros(missing, self.sink, self.progress)?;
        self.descriptors.flush(self.sink, self.progress)?;
        self.write_status(true)
    }
}

impl DumpWriter for FlatDump<'_> {
    // Writes the page all pages of zeros share.
    fn begin(&mut self) -> Result<(), WriteError> {
        self.data.push(&[0; PAGE_SIZE], self.sink, self.progress)
    }

    fn place(&mut self, batch: &Batch) -> Result<(), WriteError> {
        let base = self.data.end();
        self.encoded.clear();
        for (stored, place) in batch.places() {
            self.lost |= stored == Stored::Unreadable;
            let descriptor = descriptor(stored, base + place.start as u64, self.zero_page);
            self.encoded.extend_from_slice(descriptor.as_bytes());
        }
        self.data.push(batch.data(), self.sink, self.progress)?;
        self.descriptors.push(&self.encoded, self.sink, self.progress)?;
        self.placed += batch.stored.len() as u64;
        self.pending.push_back(Pending { pages: self.placed, data_end: self.data.end() });
        self.settle();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.data.flush(self.sink, self.progress)?;
        self.descriptors.flush(self.sink, self.progress)?;
        // All else must be on the disk before the file says that it is.
        self.sink.sync()?;
        self.write_status(self.lost)?;
        self.sink.sync()
    }

    fn abandon(&mut self) -> Recorded {
        // Errors from here on change nothing: the file is marked incomplete, and what cannot be written isn't counted.
        let _ = self.data.flush(self.sink, self.progress);
        self.settle();
        self.descriptors.cut(self.layout.descriptor_offset(self.safe));
        if self.descriptors.flush(self.sink, self.progress).is_err() {
            let there = self.descriptors.flushed() - self.layout.descriptors_offset();
            self.safe = self.safe.min(there / PageDesc::SIZE as u64);
        }
        let _ = self.fill_descriptors();
        let _ = self.sink.sync();
        Recorded::pages(self.safe)
    }

    fn size_with(&self, batch: &Batch) -> u64 {
        self.data.end() + batch.data().len() as u64
    }

    fn finish_bytes(&self) -> u64 {
        (self.pages - self.safe) * PageDesc::SIZE as u64
    }

    fn size(&self) -> u64 {
        self.data.end()
    }
}
