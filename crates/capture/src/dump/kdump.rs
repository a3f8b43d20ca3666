//! kdump-compressed files. Pages may come in any order; the table of descriptors is in that of PFNs.

use std::collections::VecDeque;

use pagehaul_kdump::{Header, Layout, PageDesc, STATUS_OFFSET};
use pagehaul_physmem::PAGE_SIZE;
use pagehaul_run::Progress;

use super::ranks::Ranks;
use super::relocate;
use super::table::DescriptorTable;
use super::{DumpWriter, Recorded, descriptor};
use crate::CaptureError;
use crate::batch::{Bitmap, Pass};
use crate::behind::Behind;
use crate::pack::{Batch, Stored};
use crate::sink::{FileSink, Sink, WriteError};

/// Bytes per write of page data.
const DATA_CHUNK: usize = 2 << 20;
/// Descriptors that wait for their pages' data to be in the file. Pages of zeros have no data to fill a chunk with.
const MOST_PENDING: usize = 1 << 16;

/// Descriptors that may be written once so much of the data stream is.
struct Pending {
    data_end: u64,
    /// Rank and descriptor.
    descriptors: Vec<(u64, PageDesc)>,
}

/// A kdump-compressed file whose header and bitmaps are written.
pub(crate) struct KdumpDump<'a> {
    pub(super) sink: &'a mut FileSink,
    header: &'a Header<'a>,
    pub(super) layout: Layout,
    /// Bitmap 2.
    pub(super) kept: Bitmap,
    pub(super) passes: Vec<Pass>,
    ranks: Ranks,
    pub(super) table: DescriptorTable,
    data: Behind<'a>,
    pending: VecDeque<Pending>,
    waiting: usize,
    placed: u64,
    pub(super) zero_page: u64,
    /// Where the file ended once its tables were behind the data.
    pub(super) end: Option<u64>,
    /// Whether a page could not be read.
    lost: bool,
}

impl<'a> KdumpDump<'a> {
    /// Goes on after the bitmaps: `pages` pages are set in `kept`, bitmap 2 of the file, and come in `passes`.
    pub(crate) fn new(
        sink: &'a mut FileSink,
        header: &'a Header<'a>,
        layout: Layout,
        (kept, passes): (Bitmap, Vec<Pass>),
        pages: u64,
        progress: &'a Progress,
    ) -> Result<Self, CaptureError> {
        let zero_page = layout.zero_page_offset(pages)?;
        let data = Behind::new(sink.clone(), zero_page, DATA_CHUNK, progress).map_err(|source| {
            CaptureError::Output {
                path: sink.path().to_owned(),
                action: "start a thread that writes to",
                source,
            }
        })?;
        Ok(Self {
            ranks: Ranks::new(kept.clone(), layout.max_mapnr())?,
            table: DescriptorTable::new(layout, pages),
            data,
            pending: VecDeque::new(),
            waiting: 0,
            placed: 0,
            lost: false,
            end: None,
            sink,
            header,
            layout,
            kept,
            passes,
            zero_page,
        })
    }

    /// Puts the descriptors into the table whose pages are in the file. Never before: readers take a descriptor that
    /// points past the end for another page, or crash.
    fn settle(&mut self) -> Result<(), WriteError> {
        let flushed = self.data.flushed();
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.data_end <= flushed) {
            self.waiting -= pending.descriptors.len();
            for (rank, descriptor) in &pending.descriptors {
                self.table.put(*rank, descriptor, self.sink)?;
            }
        }
        Ok(())
    }

    /// File offset behind the page data that is in the file.
    pub(super) fn data_end(&self) -> u64 {
        self.data.flushed()
    }

    /// Descriptors that were or will be written.
    pub(super) fn placed(&self) -> u64 {
        self.placed
    }
}

impl DumpWriter for KdumpDump<'_> {
    // Makes room for the descriptors, so that a disk that fills up later can still say what it holds, and writes the
    // page all pages of zeros share. On a disk the header comes only now: an older dump's descriptors would have pointed
    // anywhere.
    fn begin(&mut self) -> Result<(), WriteError> {
        let table = self.layout.descriptors_offset();
        self.sink.reserve(table, self.zero_page - table)?;
        if !self.sink.is_sparse() {
            self.sink.sync()?;
            let header = self.header.encode(&self.layout, true).map_err(CaptureError::from)?;
            self.sink.write(0, &header)?;
            self.sink.sync()?;
        }
        self.data.push(&[0; PAGE_SIZE])
    }

    fn place(&mut self, batch: &Batch) -> Result<(), WriteError> {
        let base = self.data.end();
        let mut descriptors = Vec::with_capacity(batch.pfns.len());
        for (&pfn, (stored, place)) in batch.pfns.iter().zip(batch.places()) {
            let rank = self.ranks.rank(pfn)?;
            let at = base + place.start as u64;
            self.lost |= stored == Stored::Unreadable;
            descriptors.push((rank, descriptor(stored, at, self.zero_page)));
        }
        self.data.push(batch.data())?;
        self.placed += descriptors.len() as u64;
        self.waiting += descriptors.len();
        self.pending.push_back(Pending { data_end: self.data.end(), descriptors });
        if self.waiting > MOST_PENDING {
            self.data.flush()?;
        }
        self.settle()
    }

    fn finish(&mut self) -> Result<(), WriteError> {
        self.data.flush()?;
        self.settle()?;
        self.table.flush(self.sink)?;
        // All else must be on the disk before the file says that it is.
        self.sink.sync()?;
        self.sink.write(STATUS_OFFSET, &self.header.status(self.lost))?;
        self.sink.sync()
    }

    // Errors change nothing here: the file is marked incomplete, and a page that has no descriptor is missing.
    fn abandon(&mut self) -> Recorded {
        let _ = self.data.flush();
        let _ = self.settle();
        let _ = self.table.flush(self.sink);
        let recorded = relocate::relocate(self);
        let _ = self.sink.sync();
        recorded
    }

    fn size_with(&self, batch: &Batch) -> u64 {
        let pages = self.placed + batch.stored.len() as u64;
        // The first tables become a hole.
        let freed = if self.sink.is_regular() { self.zero_page - self.layout.bitmap1_offset() } else { 0 };
        self.data.end() + batch.data().len() as u64 + relocate::bytes(self, pages) - freed
    }

    fn finish_bytes(&self) -> u64 {
        relocate::bytes(self, self.placed) + (self.data.end() - self.data.flushed())
    }

    fn is_writing(&mut self) -> bool {
        self.data.is_busy()
    }

    fn size(&self) -> u64 {
        self.end.unwrap_or_else(|| self.data.end())
    }
}
