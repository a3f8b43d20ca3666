//! One part of a split set.
//!
//! The range of PFNs of a part is known only at the end. Until then its header says that it holds every page of the
//! machine, and a descriptor is at its page's rank among all dumped pages: if the machine dies, the file is a dump in
//! which the other parts' pages are missing. [`SplitPartWriter::seal`] then moves the descriptors to the part's own
//! ranks. Range and table cannot change in one write, so in between the header says that the part has no pages.

use std::collections::VecDeque;
use std::ops::Range;

use pagehaul_output::{
    AlignedBuffer, ChunkWriter, FinishBound, Output, OutputFile, PageBatch, StoredBitmap, WriteError,
};
use pagehaul_physmem::file::ReadAt;
use zerocopy::IntoBytes;

use super::{MAX_PENDING, descriptor, write_descriptors};
use crate::format::{Header, Layout, LayoutError, PageDesc, STATUS_OFFSET};

/// Syncs at the end of a part: of its pages, its range twice, its table and its status.
const SYNCS_AT_END: u64 = 5;
/// Bytes moved at a time when the table moves.
const MOVE_CHUNK: usize = 1 << 20;

/// Writes the pages of one part of a split set, after its header and bitmaps. Pages come in units: ranges of PFNs that
/// are wholly in one part.
pub struct SplitPartWriter<'a> {
    output: OutputFile,
    header: Header<'a>,
    layout: Layout,
    data: ChunkWriter,
    zero_page: u64,
    /// Units that are not wholly in the file, oldest first.
    pending: VecDeque<PendingUnit>,
    /// Descriptors in `pending`.
    pending_descriptors: usize,
    /// End of the data of the units that are wholly in the file.
    recorded_end: u64,
    /// Pages that have their descriptors.
    recorded: u64,
}

/// A unit of pages.
#[derive(Debug, Clone, Copy)]
pub struct SplitUnit {
    /// Dumped pages of the machine before it.
    pub rank: u64,
    /// Its dumped pages.
    pub pages: u64,
}

struct PendingUnit {
    unit: SplitUnit,
    descriptors: Vec<PageDesc>,
    data_end: u64,
}

impl PendingUnit {
    fn is_whole(&self) -> bool {
        self.descriptors.len() as u64 == self.unit.pages
    }
}

impl<'a> SplitPartWriter<'a> {
    /// Starts after the bitmaps of a machine with `pages` dumped pages, and writes `chunk` bytes at a time.
    pub fn new(
        output: OutputFile,
        header: Header<'a>,
        layout: Layout,
        pages: u64,
        chunk: usize,
    ) -> Result<Self, LayoutError> {
        // Checks the number of pages.
        layout.data_offset(pages)?;
        // Directly behind the table, not at the next block: there, `makedumpfile --reassemble` takes it for the shared
        // page, not for a new page each time.
        let zero_page = layout.descriptor_offset(pages);
        Ok(Self {
            output,
            header,
            layout,
            data: ChunkWriter::new(zero_page, chunk),
            zero_page,
            pending: VecDeque::new(),
            pending_descriptors: 0,
            recorded_end: zero_page,
            recorded: 0,
        })
    }

    /// The file.
    pub fn output(&self) -> &OutputFile {
        &self.output
    }

    /// Bitmap 2 of the file, for reading back.
    pub fn bitmap2(&self) -> StoredBitmap {
        StoredBitmap::new(self.output.reader(), self.layout.bitmap2_offset(), self.layout.bitmap_len())
    }

    /// Writes what precedes the pages.
    pub fn begin(&mut self) -> Result<(), WriteError> {
        self.data.push(&vec![0; self.layout.page_size().bytes()], &mut self.output)
    }

    /// Adds the next batch of a unit. Returns the number of units that are now wholly in the file.
    pub fn write_batch(&mut self, unit: SplitUnit, batch: PageBatch<'_>) -> Result<usize, WriteError> {
        if self.pending.back().is_none_or(|pending| pending.unit.rank != unit.rank) {
            self.reserve(unit)?;
            let descriptors = Vec::with_capacity(unit.pages as usize);
            self.pending.push_back(PendingUnit { unit, descriptors, data_end: self.data.end() });
        }
        let base = self.data.end();
        self.data.push(batch.data, &mut self.output)?;
        self.pending_descriptors += batch.len();
        if let Some(pending) = self.pending.back_mut() {
            let descriptor = |(page, range): (_, Range<usize>)| {
                descriptor(page, batch.page_size, base + range.start as u64, self.zero_page)
            };
            pending.descriptors.extend(batch.stored().map(descriptor));
            pending.data_end = self.data.end();
        }
        if self.pending_descriptors > MAX_PENDING {
            return self.flush();
        }
        self.write_pending()
    }

    /// Writes everything gathered. Returns the number of units that are now wholly in the file.
    pub fn flush(&mut self) -> Result<usize, WriteError> {
        self.data.flush(&mut self.output)?;
        self.write_pending()
    }

    /// Writes the descriptors of units whose data is in the file.
    fn write_pending(&mut self) -> Result<usize, WriteError> {
        let flushed = self.data.flushed();
        let mut units = 0;
        while let Some(pending) =
            self.pending.pop_front_if(|unit| unit.is_whole() && unit.data_end <= flushed)
        {
            let pages = self.write_unit(pending)?;
            self.pending_descriptors -= pages as usize;
            units += 1;
        }
        Ok(units)
    }

    fn write_unit(&mut self, mut pending: PendingUnit) -> Result<u64, WriteError> {
        let at = self.layout.descriptor_offset(pending.unit.rank);
        // A disk that loses power may have kept later writes and lost earlier ones.
        self.output.sync()?;
        write_descriptors(&mut self.output, at, pending.descriptors.as_mut_bytes(), |_| true)?;
        self.recorded_end = pending.data_end;
        let pages = pending.descriptors.len() as u64;
        self.recorded += pages;
        Ok(pages)
    }

    /// Reserves room for the descriptors at their current and their final place, so that a disk that fills up later
    /// still has it.
    fn reserve(&mut self, unit: SplitUnit) -> Result<(), WriteError> {
        let size = PageDesc::SIZE as u64;
        let own = self.recorded + self.pending_descriptors as u64 + unit.pages;
        self.output.reserve(self.layout.descriptor_offset(unit.rank), unit.pages * size)?;
        self.output.reserve(self.layout.descriptors_offset(), own * size)
    }

    /// Drops the units that are not wholly in the file, and frees their blocks.
    pub fn drop_pending(&mut self) -> Result<(), WriteError> {
        self.pending.clear();
        self.pending_descriptors = 0;
        let end = self.recorded_end.max(self.zero_page + self.layout.block());
        self.data = ChunkWriter::new(end, self.layout.page_size().bytes());
        self.output.set_size(end).map_err(WriteError::from)
    }

    /// Records the pages of the oldest unit that are in the file although the rest is not, when a capture ends early.
    /// Returns their number.
    pub fn record_begun(&mut self) -> Result<u64, WriteError> {
        let Some(pending) = self.pending.pop_front() else { return Ok(0) };
        self.write_unit(pending)
    }

    /// Returns whether a unit is begun that is not wholly in the file.
    pub fn has_begun(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Pages that have their descriptors.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Bytes of disk that the part would take, were it to end after `batch`.
    pub fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        self.size() + batch.data.len() as u64 + (batch.len() * PageDesc::SIZE) as u64
    }

    /// Returns what has to be written, were the part to end now: the descriptors are moved.
    pub fn finish_bound(&self) -> FinishBound {
        let gathered = self.data.end() - self.data.flushed();
        FinishBound { bytes: self.table_bytes() + gathered, syncs: self.pending.len() as u64 + SYNCS_AT_END }
    }

    /// Bytes of descriptors.
    fn table_bytes(&self) -> u64 {
        (self.recorded + self.pending_descriptors as u64) * PageDesc::SIZE as u64
    }

    /// Bytes of disk that the part takes once it is finished.
    pub fn size(&self) -> u64 {
        self.layout.descriptors_offset() + self.table_bytes() + (self.data.end() - self.zero_page)
    }

    /// Makes the file the part of the PFNs in `range`, whose `pages` dumped pages have `rank` others before them. It
    /// stays marked incomplete. Everything is on the disk afterwards.
    pub fn seal(&mut self, range: Range<u64>, rank: u64, pages: u64) -> Result<(), WriteError> {
        self.output.sync()?;
        if rank > 0 && pages > 0 {
            self.write_range(range.start..range.start)?;
            self.move_table(rank, pages)?;
        }
        self.clear_behind(pages)?;
        self.output.sync()?;
        self.write_range(range)
    }

    /// Writes the part's PFNs into the header, again if they changed.
    pub fn write_range(&mut self, range: Range<u64>) -> Result<(), WriteError> {
        // A set whose other parts hold nothing is an ordinary dump.
        self.header.split = Some(range).filter(|range| *range != (0..self.layout.max_mapnr()));
        // Without the notes behind it, the sub header is within one sector.
        let sub_header = self.header.sub_header(&self.layout);
        self.output.write(self.layout.sub_header_offset(), sub_header.as_bytes())?;
        self.output.sync()
    }

    /// Clears the INCOMPLETE bit if the set is `complete`, else sets it.
    pub fn write_status(&mut self, complete: bool) -> Result<(), WriteError> {
        self.output.write(STATUS_OFFSET, &self.header.status(!complete))?;
        self.output.sync()
    }

    /// Moves the descriptors from `rank` to the start of the table. Every byte is read before it is overwritten.
    fn move_table(&mut self, rank: u64, pages: u64) -> Result<(), WriteError> {
        let mut buffer = AlignedBuffer::new(MOVE_CHUNK);
        let bytes = pages * PageDesc::SIZE as u64;
        let (from, to) = (self.layout.descriptor_offset(rank), self.layout.descriptors_offset());
        let mut done = 0;
        while done < bytes {
            let length = (bytes - done).min(MOVE_CHUNK as u64) as usize;
            let chunk = &mut buffer.bytes_mut()[..length];
            self.output.read_exact_at(from + done, chunk).map_err(WriteError::read_back("descriptors"))?;
            self.output.write(to + done, chunk)?;
            done += length as u64;
        }
        Ok(())
    }

    /// Frees the rest of the table.
    fn clear_behind(&mut self, pages: u64) -> Result<(), WriteError> {
        let start = self.layout.descriptor_offset(pages);
        // Where files have no holes, at least no descriptor follows the last.
        let next = (start + PageDesc::SIZE as u64).min(self.zero_page);
        self.output.write(start, &[0; PageDesc::SIZE][..(next - start) as usize])?;
        let _ = self.output.free(start, self.zero_page - start);
        Ok(())
    }
}
