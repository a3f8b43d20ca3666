//! Memory whose bytes lie in one file as they are: an ELF vmcore's segments, the ranges of an image.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use pagehaul_machine::{PageSize, PhysAddr};
use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{MappedFile, PageState, Piece, RangeMap, ReadError, View, Window};

/// A file and the memory in it.
pub(crate) struct FileMemory {
    file: MappedFile,
    ranges: RangeMap,
    has_failed: AtomicBool,
}

impl FileMemory {
    /// Takes the location of each range in the file from `ranges`.
    pub(crate) fn new(file: MappedFile, ranges: RangeMap) -> Self {
        Self { file, ranges, has_failed: AtomicBool::new(false) }
    }

    /// Whether the file could not be read where it was, by any view.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn file(&self) -> &dyn ReadAt {
        self.file.file()
    }

    pub(crate) fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    /// Bytes of memory that lie past the end of the file: not 0 if the file is truncated.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let size = self.file().size();
        let stored = self.ranges.pieces().iter().filter(|piece| piece.stored > 0);
        stored
            .map(|piece| piece.offset.saturating_add(piece.stored).saturating_sub(size).min(piece.stored))
            .sum()
    }

    pub(crate) fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) {
        self.ranges.mark_pages(from.pfn(PageSize::KIB_4), PageSize::KIB_4, true, bits);
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        let stored: u64 = self.ranges.pieces().iter().map(|piece| piece.stored).sum();
        stored.min(self.file().size())
    }

    pub(crate) fn known_state(&self, paddr: u64) -> (Option<PageState>, u64) {
        let Some(piece) = self.ranges.find(paddr) else { return (None, self.ranges.next_start(paddr)) };
        if piece.stored == 0 {
            return (Some(PageState::Excluded), piece.end);
        }
        let file = self.file();
        let offset = piece.offset + (paddr - piece.start);
        let place = |offset: u64| piece.start.saturating_add(offset - piece.offset).min(piece.end);
        if offset >= file.size() {
            return (Some(PageState::Missing), piece.end);
        }
        let data = file.next_data(offset);
        match data.start > offset {
            true => (Some(PageState::Present), place(data.start)),
            false => (None, place(data.end)),
        }
    }

    pub(crate) fn view(&self) -> Box<dyn View + '_> {
        let nowhere = Piece { start: 0, end: 0, stored: 0, offset: 0 };
        Box::new(FileView { memory: self, window: self.file.window(), piece: nowhere, seen_faults: 0 })
    }

    pub(crate) fn identity(&self) -> (u64, u64) {
        self.file().identity()
    }
}

struct FileView<'a> {
    memory: &'a FileMemory,
    window: Window<'a>,
    /// The last piece: the next address is nearly always in it.
    piece: Piece,
    seen_faults: u64,
}

impl Drop for FileView<'_> {
    fn drop(&mut self) {
        // What was mapped read as zeros there.
        if self.window.faults() > 0 {
            self.memory.has_failed.store(true, Ordering::Relaxed);
        }
    }
}

impl View for FileView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        if !(self.piece.start..self.piece.end).contains(&paddr) {
            self.piece = *self.memory.ranges.find(paddr).ok_or(ReadError::NotPresent { paddr })?;
        }
        if self.piece.stored == 0 {
            return Err(ReadError::NotInDump { paddr });
        }
        let offset = self.piece.offset + (paddr - self.piece.start);
        let most = (self.piece.end - paddr).min(len as u64) as usize;
        let file = self.memory.file();
        match self.window.bytes(offset, most) {
            Ok([]) => Err(ReadError::Missing {
                paddr,
                reason: format!(
                    "it should be at offset {offset:#x}, but the file ends at {:#x}",
                    file.size()
                ),
            }),
            Ok(bytes) => Ok(bytes),
            Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => {
                Err(ReadError::Missing { paddr, reason: source.to_string() })
            }
            Err(source) => {
                self.memory.has_failed.store(true, Ordering::Relaxed);
                Err(ReadError::Io { path: file.path().to_owned(), offset, source })
            }
        }
    }

    fn is_remote(&self) -> bool {
        self.memory.file().is_remote()
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        if !self.is_remote() {
            return;
        }
        let in_file = |range: &Range<u64>| {
            let piece = self.memory.ranges.find(range.start)?;
            let start = range.start - piece.start;
            let end = (range.end.max(range.start) - piece.start).min(piece.stored);
            (start < end).then(|| piece.offset + start..piece.offset + end)
        };
        self.memory.file().will_need(&ranges.iter().filter_map(in_file).collect::<Vec<_>>());
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        let ranges = self.memory.ranges();
        ranges.find(paddr).map_or_else(|| ranges.next_start(paddr), |excluded| excluded.end)
    }

    fn take_fault(&mut self) -> bool {
        let faults = self.window.faults();
        std::mem::replace(&mut self.seen_faults, faults) != faults
    }
}
