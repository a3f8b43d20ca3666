//! The program headers of an ELF dump: which memory is where in the file, and which was left out.

use std::ops::Range;

use pagehaul_physmem::{KernelMapping, PAGE_SHIFT, PAGE_SIZE, PhysMemory};

use pagehaul_output::{StoredBitmap, WriteError};
use pagehaul_physmem::elf::encode::{self as elf_header, ProgramHeader};

const PAGE: u64 = PAGE_SIZE as u64;

/// A stretch of memory: the first `stored` bytes of it are in the file, the rest was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    paddr: u64,
    size: u64,
    stored: u64,
    /// Dumped pages before the one `paddr` is in.
    rank: u64,
}

/// What an ELF dump's headers are made from.
#[derive(Clone)]
pub(crate) struct Segments<'a> {
    pub(crate) memory: &'a dyn PhysMemory,
    pub(crate) kept: StoredBitmap,
    /// The virtual address of physical address 0, where it is known.
    pub(crate) direct_map: Option<u64>,
    /// Whether the dump stays marked incomplete whatever is written.
    pub(crate) lossy: bool,
}

impl Segments<'_> {
    /// How many program headers there are when the first `pages` of the kept pages are in the file.
    pub(crate) fn count(&self, pages: u64) -> Result<u64, WriteError> {
        let mut count = 1;
        let text = self.memory.kernel_mapping();
        self.for_each(pages, |segment| {
            count += 1 + u64::from(text.is_some_and(|text| alias(&segment, text).is_some()));
            Ok(())
        })?;
        Ok(count)
    }

    /// File offset of the first page, when there is room for `room` program headers: headers and notes start on a
    /// page boundary each, and so does the memory.
    pub(crate) fn data_offset(&self, room: u64) -> u64 {
        notes_offset(room) + (self.memory.notes().len() as u64).next_multiple_of(PAGE)
    }

    /// Gives `put` the headers and notes of a dump that holds the first `pages` of the kept pages, with room for
    /// `room` program headers, piece by piece from offset 0 on.
    pub(crate) fn encode(
        &self,
        room: u64,
        pages: u64,
        incomplete: bool,
        mut put: impl FnMut(&[u8]) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let notes = self.memory.notes();
        let count = self.count(pages)?;
        put(&elf_header::file_header(count, room, incomplete || self.lossy))?;
        put(&ProgramHeader::note(notes_offset(room), notes.len() as u64).encode())?;
        let text = self.memory.kernel_mapping();
        let data = self.data_offset(room);
        let header = |segment: &Segment, vaddr: u64| ProgramHeader {
            offset: data + segment.rank * PAGE + segment.paddr % PAGE,
            vaddr,
            paddr: segment.paddr,
            file_size: segment.stored,
            size: segment.size,
            ..ProgramHeader::LOAD
        };
        self.for_each(pages, |segment| {
            // The kernel image is mapped twice; both headers point at the same bytes.
            if let Some(text) = text
                && let Some(segment) = alias(&segment, text)
            {
                put(&header(&segment, text.vaddr + (segment.paddr - text.paddr)).encode())?;
            }
            put(&header(&segment, self.direct_map.map_or(0, |start| start.wrapping_add(segment.paddr)))
                .encode())
        })?;
        let mut end = elf_header::table_end(count);
        while end < elf_header::table_end(room) {
            put(&[0; elf_header::PROGRAM_HEADER as usize])?;
            end += elf_header::PROGRAM_HEADER;
        }
        put(&elf_header::count_section(count))?;
        let end = end + elf_header::SECTION_HEADER;
        put(&ZEROS[..(notes_offset(room) - end) as usize])?;
        put(notes)?;
        let end = notes.len() as u64;
        put(&ZEROS[..(end.next_multiple_of(PAGE) - end) as usize])
    }

    /// Calls `each` for every stretch of memory, in ascending order. Of the kept pages only the first `pages` count.
    fn for_each(
        &self,
        pages: u64,
        mut each: impl FnMut(Segment) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        let mut bits = BitCursor::new(&self.kept);
        let mut rank = 0;
        // The last page of the extent before, and whether it is in the file.
        let mut previous = (u64::MAX, false);
        for extent in extents(self.memory) {
            let last = (extent.end - 1) >> PAGE_SHIFT;
            let mut page = extent.start >> PAGE_SHIFT;
            // Two extents may share a page; it is in the file once.
            if previous == (page, true) {
                rank -= 1;
            }
            let mut open: Option<Segment> = None;
            while page <= last {
                let (set, run_end) = bits.run(page, last + 1)?;
                let room = pages.saturating_sub(rank);
                let kept = set && room > 0;
                // A run that goes past the last page written is kept up to there.
                let end = if kept { run_end.min(page.saturating_add(room)) } else { run_end };
                let start = (page << PAGE_SHIFT).max(extent.start);
                let stop = (end << PAGE_SHIFT).min(extent.end);
                match &mut open {
                    Some(segment) if !kept => segment.size = stop - segment.paddr,
                    _ => {
                        if let Some(done) = open.take() {
                            each(done)?;
                        }
                        let stored = if kept { stop - start } else { 0 };
                        open = Some(Segment { paddr: start, size: stop - start, stored, rank });
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

static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// The machine's memory without the seams between neighbouring segments of the source.
fn extents(memory: &dyn PhysMemory) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut pieces = memory.ranges().pieces().iter().peekable();
    std::iter::from_fn(move || {
        let first = pieces.next()?;
        let mut end = first.end;
        while let Some(next) = pieces.next_if(|next| next.start == end) {
            end = next.end;
        }
        Some(first.start..end)
    })
}

/// The part of `segment` that is mapped with the kernel image.
fn alias(segment: &Segment, text: KernelMapping) -> Option<Segment> {
    let start = segment.paddr.max(text.paddr);
    let end = (segment.paddr + segment.size).min(text.paddr.saturating_add(text.size));
    if start >= end {
        return None;
    }
    let stored_end = (segment.paddr + segment.stored).clamp(start, end);
    let rank = segment.rank + (start / PAGE - segment.paddr / PAGE);
    Some(Segment { paddr: start, size: end - start, stored: stored_end - start, rank })
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

    /// Whether page `page` is set, and where the run of pages like it ends, at `end` at the latest.
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
            let value = *value.get_or_insert_with(|| pagehaul_physmem::bits::get(&self.words, index));
            match pagehaul_physmem::bits::next(&self.words, index, !value) {
                Some(change) => return Ok((value, (first + change as u64).min(end))),
                None => at = first + bits,
            }
        }
        Ok((value.unwrap_or(false), end))
    }
}

fn notes_offset(room: u64) -> u64 {
    (elf_header::table_end(room) + elf_header::SECTION_HEADER).next_multiple_of(PAGE)
}
