//! The program headers of an ELF dump: the file offset of each range of memory, and which ranges are excluded.

use pagehaul_machine::PageSize;
use pagehaul_output::{StoredBitmap, WriteError};
use pagehaul_physmem::{PhysMemory, bits};

use crate::program_header::ProgramHeader;
use crate::vmcore_head::VmcoreHead;

/// The segments of an ELF dump.
#[derive(Clone)]
pub struct Segments<'a> {
    /// The memory that is dumped.
    pub memory: &'a dyn PhysMemory,
    /// The size of its pages.
    pub page_size: PageSize,
    /// The pages of it that the dump holds.
    pub kept: StoredBitmap,
    /// The virtual address of physical address 0, if known.
    pub direct_map: Option<u64>,
}

impl Segments<'_> {
    /// Counts the program headers of a dump that holds the first `pages` of the kept pages.
    pub(super) fn count(&self, pages: u64) -> Result<u64, WriteError> {
        let mut count = 1;
        self.for_each(0, pages, |segment| {
            count += self.mappings(segment).count() as u64;
            Ok(())
        })?;
        Ok(count)
    }

    fn head(&self, room: u64) -> VmcoreHead<'_> {
        VmcoreHead { machine: self.memory.platform().machine, room, notes: self.memory.notes() }
    }

    /// File offset of the first page, with room for `room` program headers.
    pub(super) fn data_offset(&self, room: u64) -> u64 {
        self.head(room).data_offset()
    }

    /// Passes the headers and notes of a dump that holds the first `pages` of the kept pages to `put`, piece by piece from
    /// offset 0, with room for `room` program headers.
    pub(super) fn encode(
        &self,
        room: u64,
        pages: u64,
        incomplete: bool,
        mut put: impl FnMut(&[u8]) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let head = self.head(room);
        let count = self.count(pages)?;
        head.start(count, incomplete, &mut put)?;
        self.for_each(head.data_offset(), pages, |segment| {
            self.mappings(segment).try_for_each(|header| put(&header.encode()))
        })?;
        head.end(count, &mut put)
    }

    /// The program headers of a segment. The kernel image has two, which point at the same bytes.
    fn mappings(&self, segment: ProgramHeader) -> impl Iterator<Item = ProgramHeader> + use<> {
        let text = self.memory.kernel_mapping();
        let image = text.and_then(|text| segment.mapped_at(&text));
        let vaddr = self.direct_map.map_or(0, |start| start.wrapping_add(segment.paddr));
        image.into_iter().chain([ProgramHeader { vaddr, ..segment }])
    }

    /// Calls `each` for every segment, in ascending order: pages that are in a file whose pages start at offset `data`,
    /// followed by pages that are not. Of the kept pages only the first `pages` count.
    fn for_each(
        &self,
        data: u64,
        pages: u64,
        mut each: impl FnMut(ProgramHeader) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut kept_pages = BitCursor::new(&self.kept);
        let (page_bytes, shift) = (self.page_size.bytes() as u64, self.page_size.shift());
        let mut rank = 0;
        // The last page of the extent before, and whether it is in the file.
        let mut previous = (u64::MAX, false);
        for extent in self.memory.ranges().extents() {
            let last = (extent.end - 1) >> shift;
            let mut page = extent.start >> shift;
            // Two extents may share a page; it is in the file once.
            if previous == (page, true) {
                rank -= 1;
            }
            let mut open: Option<ProgramHeader> = None;
            while page <= last {
                let (set, run_end) = kept_pages.run(page, last + 1)?;
                let room = pages.saturating_sub(rank);
                let kept = set && room > 0;
                // A run that extends past the last page written is kept up to that page.
                let end = if kept { run_end.min(page.saturating_add(room)) } else { run_end };
                let start = (page << shift).max(extent.start);
                let stop = (end << shift).min(extent.end);
                match &mut open {
                    Some(segment) if !kept => segment.memory_size = stop - segment.paddr,
                    _ => {
                        if let Some(done) = open.take() {
                            each(done)?;
                        }
                        let (size, offset) = (stop - start, data + rank * page_bytes + start % page_bytes);
                        open = Some(ProgramHeader::load(start, size, offset, if kept { size } else { 0 }));
                    }
                }
                if kept {
                    rank += end - page;
                }
                previous = (last, kept);
                page = end;
            }
            if let Some(done) = open {
                each(done)?;
            }
        }
        Ok(())
    }
}

/// Runs of equal bits in a bitmap that is read as it goes.
struct BitCursor<'a> {
    bitmap: &'a StoredBitmap,
    first: u64,
    words: Vec<u64>,
}

impl<'a> BitCursor<'a> {
    const WORDS: usize = 8192;

    fn new(bitmap: &'a StoredBitmap) -> Self {
        Self { bitmap, first: u64::MAX, words: vec![0; Self::WORDS] }
    }

    /// Returns whether page `page` is set, and the end of the run of equal bits, at most `end`.
    fn run(&mut self, page: u64, end: u64) -> Result<(bool, u64), WriteError> {
        let bits = Self::WORDS as u64 * 64;
        let mut at = page;
        let mut value = None;
        while at < end {
            let first = at - at % bits;
            if self.first != first {
                self.bitmap
                    .load(first, &mut self.words)
                    .map_err(WriteError::read_back("the set of kept pages"))?;
                self.first = first;
            }
            let index = (at - first) as usize;
            let value = *value.get_or_insert_with(|| bits::get(&self.words, index));
            match bits::next(&self.words, index, !value) {
                Some(change) => return Ok((value, (first + change as u64).min(end))),
                None => at = first + bits,
            }
        }
        Ok((value.unwrap_or(false), end))
    }
}
