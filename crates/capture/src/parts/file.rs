//! The file of one part, while pages are put into it.

use std::collections::VecDeque;

use pagehaul_kdump::{Header, Layout, PageDesc};
use pagehaul_physmem::PAGE_SIZE;
use pagehaul_run::Progress;
use zerocopy::IntoBytes;

use crate::batch::Bitmap;
use crate::dump::descriptor;
use crate::pack::Batch;
use crate::place::Placed;
use crate::sink::{FileSink, Sink, WriteError};
use crate::stream::Stream;
use crate::{CaptureError, Ended};

/// Descriptors that wait for their pages' data to be in the file. Pages of zeros have no data to fill a chunk with.
const MOST_PENDING: usize = 1 << 16;

/// A part's file whose header and bitmaps are written.
///
/// Until it is known where the part begins, the header says that it holds every page of the machine, and a descriptor
/// stands at its page's place among all kept pages: the file is a dump in which the pages of others are missing, whenever
/// the machine dies. [`seal`](Self::seal) then moves the descriptors to where the part's own place is.
pub(super) struct PartFile<'a> {
    pub(super) sink: FileSink,
    pub(super) header: Header<'a>,
    pub(super) layout: Layout,
    progress: &'a Progress,
    data: Stream,
    /// Where the data starts: with the page all pages of zeros share.
    pub(super) zero_page: u64,
    /// Units of which not all is in the file, in the order they come in.
    pending: VecDeque<Pending>,
    waiting: usize,
    /// Behind the data of the units that are wholly in the file.
    settled_end: u64,
    /// What is on record.
    pub(super) placed: Placed,
}

/// A unit some of whose pages wait to be in the file.
struct Pending {
    /// The rank of its first kept page among all of the machine's.
    rank: u64,
    pages: u64,
    descriptors: Vec<PageDesc>,
    data_end: u64,
    placed: Placed,
}

impl Pending {
    fn is_whole(&self) -> bool {
        self.descriptors.len() as u64 == self.pages
    }
}

/// A unit that a batch belongs to: the rank of its first kept page, and how many it has.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnitPages {
    pub(super) rank: u64,
    pub(super) pages: u64,
}

impl<'a> PartFile<'a> {
    /// Goes on after the bitmaps of a machine of which `pages` pages are kept, and writes `chunk` bytes at a time.
    pub(super) fn new(
        sink: FileSink,
        header: Header<'a>,
        layout: Layout,
        pages: u64,
        chunk: usize,
        progress: &'a Progress,
    ) -> Result<Self, CaptureError> {
        // Held against the size of the machine.
        layout.data_offset(pages)?;
        // Where makedumpfile --reassemble takes it for what it is, not for a page of its own each time.
        let zero_page = layout.descriptor_offset(pages);
        Ok(Self {
            sink,
            header,
            layout,
            progress,
            data: Stream::new(zero_page, chunk),
            zero_page,
            pending: VecDeque::new(),
            waiting: 0,
            settled_end: zero_page,
            placed: Placed::nothing(Ended::Complete),
        })
    }

    /// Bitmap 2, to be read back.
    pub(super) fn bitmap(&self) -> Bitmap {
        Bitmap {
            file: self.sink.reader(),
            offset: self.layout.bitmap2_offset(),
            length: self.layout.bitmap_len(),
        }
    }

    /// Writes what stands before the pages.
    pub(super) fn begin(&mut self) -> Result<(), WriteError> {
        self.data.push(&[0; PAGE_SIZE], &mut self.sink, self.progress)
    }

    /// Adds the next batch of a unit. Gives the number of units of which all is in the file now.
    pub(super) fn place(&mut self, unit: UnitPages, batch: &Batch) -> Result<usize, WriteError> {
        if self.pending.back().is_none_or(|pending| pending.rank != unit.rank) {
            self.reserve(unit)?;
            self.pending.push_back(Pending {
                rank: unit.rank,
                pages: unit.pages,
                descriptors: Vec::with_capacity(unit.pages as usize),
                data_end: self.data.end(),
                placed: Placed::nothing(Ended::Complete),
            });
        }
        let base = self.data.end();
        self.data.push(batch.data(), &mut self.sink, self.progress)?;
        self.waiting += batch.stored.len();
        if let Some(pending) = self.pending.back_mut() {
            let stored = |(stored, place): (_, std::ops::Range<usize>)| {
                descriptor(stored, base + place.start as u64, self.zero_page)
            };
            pending.descriptors.extend(batch.places().map(stored));
            pending.data_end = self.data.end();
            pending.placed.add(batch);
        }
        if self.waiting > MOST_PENDING {
            return self.flush();
        }
        self.settle()
    }

    /// Writes all that was gathered. Gives the number of units of which all is in the file now.
    pub(super) fn flush(&mut self) -> Result<usize, WriteError> {
        self.data.flush(&mut self.sink, self.progress)?;
        self.settle()
    }

    /// Writes the descriptors of units whose data is in the file. Never before: readers take a descriptor that points past
    /// the end for another page, or crash.
    fn settle(&mut self) -> Result<usize, WriteError> {
        let flushed = self.data.flushed();
        let mut units = 0;
        while let Some(pending) =
            self.pending.front().filter(|unit| unit.is_whole() && unit.data_end <= flushed)
        {
            let at = self.layout.descriptor_offset(pending.rank);
            self.sink.write(at, pending.descriptors.as_bytes())?;
            self.settled_end = pending.data_end;
            self.waiting -= pending.descriptors.len();
            if let Some(pending) = self.pending.pop_front() {
                self.placed.add_all(pending.placed, pending.pages);
            }
            units += 1;
        }
        Ok(units)
    }

    /// Makes sure that a disk which fills up later has room for the descriptors, where they are now and where they will be.
    fn reserve(&mut self, unit: UnitPages) -> Result<(), WriteError> {
        let size = PageDesc::SIZE as u64;
        let own = self.placed.written + self.waiting as u64 + unit.pages;
        self.sink.reserve(self.layout.descriptor_offset(unit.rank), unit.pages * size)?;
        self.sink.reserve(self.layout.descriptors_offset(), own * size)
    }

    /// Forgets the units that are not wholly in the file, and gives their room back.
    pub(super) fn cut(&mut self) -> Result<(), WriteError> {
        self.pending.clear();
        self.waiting = 0;
        let end = self.settled_end.max(self.zero_page + PAGE_SIZE as u64);
        self.data = Stream::new(end, PAGE_SIZE);
        self.sink.set_size(end).map_err(WriteError::from)
    }

    /// Puts on record what there is of the unit that was begun, when a capture ends early. Gives its pages.
    pub(super) fn settle_begun(&mut self) -> Result<(), WriteError> {
        let Some(pending) = self.pending.pop_front() else { return Ok(()) };
        self.sink.write(self.layout.descriptor_offset(pending.rank), pending.descriptors.as_bytes())?;
        let pages = pending.descriptors.len() as u64;
        self.settled_end = pending.data_end;
        self.placed.add_all(pending.placed, pages);
        Ok(())
    }

    /// Whether a unit is begun of which not all is in the file.
    pub(super) fn has_begun(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Bytes of disk that the part would take, were it to end after `batch`.
    pub(super) fn size_with(&self, batch: &Batch) -> u64 {
        self.size() + batch.data().len() as u64 + (batch.stored.len() * PageDesc::SIZE) as u64
    }

    /// Bytes of page data that are in the file.
    pub(super) fn written_bytes(&self) -> u64 {
        self.data.flushed() - self.zero_page
    }

    /// Bytes of descriptors, which are written once more at the end.
    pub(super) fn table_bytes(&self) -> u64 {
        (self.placed.written + self.waiting as u64) * PageDesc::SIZE as u64
    }

    /// Bytes of disk that the part takes once it is finished.
    pub(super) fn size(&self) -> u64 {
        self.layout.descriptors_offset() + self.table_bytes() + (self.data.end() - self.zero_page)
    }
}
