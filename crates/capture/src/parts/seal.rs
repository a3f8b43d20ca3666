//! A part's end: its descriptors to the place that is their own, its range into the header, the mark away.

use std::ops::Range;

use pagehaul_kdump::format::BLOCK_SIZE;
use pagehaul_kdump::{PageDesc, STATUS_OFFSET};
use pagehaul_physmem::file::ReadAt;

use super::file::PartFile;
use crate::aligned::Aligned;
use crate::sink::{Sink, WriteError};

/// Bytes moved at a time.
const CHUNK: usize = 1 << 20;

impl PartFile<'_> {
    /// Makes the file a part of the PFNs in `range`, whose `pages` kept pages have `rank` others before them. It stays
    /// marked incomplete. Everything is on the disk afterwards.
    ///
    /// A page's descriptor is found by counting from the first page of the part, so range and table have to change
    /// together. They cannot in one write: in between the header says that the part has no pages.
    pub(super) fn seal(&mut self, range: Range<u64>, rank: u64, pages: u64) -> Result<(), WriteError> {
        self.sink.sync()?;
        if rank > 0 && pages > 0 {
            self.write_range(range.start..range.start)?;
            self.move_table(rank, pages)?;
        }
        self.clear_behind(pages)?;
        self.sink.sync()?;
        self.write_range(range)
    }

    /// Writes the part's PFNs into the header, once more if they changed.
    pub(super) fn write_range(&mut self, range: Range<u64>) -> Result<(), WriteError> {
        // What is left of a set whose other parts hold nothing is a dump like any other.
        self.header.split = Some(range).filter(|range| *range != (0..self.layout.max_mapnr()));
        let header = self
            .header
            .encode(&self.layout, true)
            .map_err(|error| WriteError::from(std::io::Error::other(error)))?;
        // The sub header without the notes behind it lies in one sector.
        let sub = BLOCK_SIZE..pagehaul_kdump::NOTES_OFFSET as usize;
        self.sink.write(sub.start as u64, header.get(sub).unwrap_or_default())?;
        self.sink.sync()
    }

    /// Takes the incomplete mark away, unless pages were `lost` for good.
    pub(super) fn write_status(&mut self, lost: bool) -> Result<(), WriteError> {
        self.sink.write(STATUS_OFFSET, &self.header.status(lost))?;
        self.sink.sync()
    }

    /// Moves the descriptors from `rank` on to the start of the table. No byte is overwritten before it was read.
    fn move_table(&mut self, rank: u64, pages: u64) -> Result<(), WriteError> {
        let mut buffer = Aligned::new(CHUNK);
        let bytes = pages * PageDesc::SIZE as u64;
        let (from, to) = (self.layout.descriptor_offset(rank), self.layout.descriptors_offset());
        let mut done = 0;
        while done < bytes {
            let length = (bytes - done).min(CHUNK as u64) as usize;
            let chunk = &mut buffer.bytes_mut()[..length];
            self.sink.read_exact_at(from + done, chunk)?;
            self.sink.write(to + done, chunk)?;
            done += length as u64;
        }
        Ok(())
    }

    /// Gives the rest of the table's room back.
    fn clear_behind(&mut self, pages: u64) -> Result<(), WriteError> {
        let start = self.layout.descriptor_offset(pages);
        // Where files have no holes, at least no descriptor follows the last.
        let next = (start + PageDesc::SIZE as u64).min(self.zero_page);
        self.sink.write(start, &[0; PageDesc::SIZE][..(next - start) as usize])?;
        let _ = self.sink.free(start, self.zero_page - start);
        Ok(())
    }
}
