//! Reading kdump-compressed files, versions 1 to 6.

mod bitmap;
mod census;
mod notes;
mod parse;
mod slots;
mod streams;
mod view;

use std::path::Path;

use pagehaul_memory::file::ReadAt;
use pagehaul_memory::{KernelMapping, OpenError, PAGE_SIZE, PhysMemory, RangeMap, ReadError, View};

use crate::flat::Flattened;
use crate::format::PageDesc;
use bitmap::BitmapIndex;
pub use census::Census;
pub use parse::Info;

/// A kdump-compressed file as a source of physical memory.
///
/// What it keeps does not grow with the dump but by 8 bytes per GiB of the machine's address space, for finding
/// descriptors, plus the map of RAM and the notes. Each view adds at most 3 MiB.
pub struct KdumpFile {
    file: Box<dyn ReadAt>,
    info: Info,
    sections: Sections,
    index: BitmapIndex,
    notes: Vec<u8>,
    cut_stream: bool,
}

/// Where the parts of the file are.
#[derive(Debug, Clone, Copy)]
struct Sections {
    bitmap1: u64,
    bitmap2: u64,
    descriptors: u64,
    /// How many set bits of bitmap 2 stand for descriptors in other parts of a split dump, before this part's own.
    foreign: u64,
    /// How many descriptors this file has.
    count: u64,
    eraseinfo: Option<(u64, u64)>,
}

impl KdumpFile {
    /// Opens a dump by reading its headers, notes and both bitmaps. Pages are looked at when they are asked for, so a
    /// dump that was cut behind its bitmaps opens.
    pub fn open(file: Box<dyn ReadAt>) -> Result<Self, OpenError> {
        let parsed = parse::parse(&*file)?;
        let notes = notes::load(&*file, &parsed)?;
        let mut info = parsed.info;
        let mut sections = Sections {
            bitmap1: parsed.bitmap1,
            bitmap2: parsed.bitmap2,
            descriptors: parsed.descriptors,
            foreign: 0,
            count: 0,
            eraseinfo: parsed.eraseinfo,
        };
        let index = BitmapIndex::build(&*file, &sections, info.max_mapnr)?;
        (sections.foreign, sections.count) = match &info.split {
            Some(part) => {
                let before = index.rank(&*file, &sections, part.start)?;
                (before, index.rank(&*file, &sections, part.end)?.saturating_sub(before))
            }
            None => (0, index.dumped()),
        };
        info.ram_pages = index.ranges().bytes() / PAGE_SIZE as u64;
        info.dumped_pages = sections.count;
        Ok(Self { file, info, sections, index, notes, cut_stream: false })
    }

    /// Opens a dump in flattened form.
    pub fn open_flattened(file: Flattened) -> Result<Self, OpenError> {
        let cut_stream = !file.is_complete();
        Ok(Self { cut_stream, ..Self::open(Box::new(file))? })
    }

    /// What the headers say.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Which page classes were left out: the sum of 1 zero, 2 cache, 4 private cache, 8 user, 16 free.
    pub fn dump_level(&self) -> u32 {
        self.info.dump_level
    }

    /// Whether the dump says that its writer did not finish, or its stream lacks its end. A plain file that was cut
    /// afterwards does not say so: see [`Census::cut_off`].
    pub fn is_incomplete(&self) -> bool {
        self.info.incomplete() || self.cut_stream
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The record of data that was erased from the dump: lines of text, empty if there are none.
    pub fn eraseinfo(&self) -> Result<Vec<u8>, OpenError> {
        notes::eraseinfo(&*self.file, self.sections.eraseinfo)
    }

    /// Looks at every descriptor, of which a dump has one per page, and counts.
    pub fn census(&self) -> Result<Census, ReadError> {
        census::take(self)
    }

    /// The lowest file offset that page data can have.
    fn data_start(&self) -> u64 {
        self.sections.descriptors + self.sections.count * PageDesc::SIZE as u64
    }

    fn read_error(&self, offset: u64, source: std::io::Error) -> ReadError {
        ReadError::Io { path: self.file.path().to_owned(), offset, source }
    }
}

impl PhysMemory for KdumpFile {
    fn ranges(&self) -> &RangeMap {
        self.index.ranges()
    }

    fn mark_stored(&self, first_pfn: u64, bits: &mut [u64]) -> Result<(), ReadError> {
        bitmap::load_bits(&*self.file, self.sections.bitmap2, first_pfn, self.info.max_mapnr, bits)
            .map_err(|source| self.read_error(self.sections.bitmap2 + first_pfn / 8, source))?;
        if let Some(part) = &self.info.split {
            let place = |pfn: u64| usize::try_from(pfn.saturating_sub(first_pfn)).unwrap_or(usize::MAX);
            let end = bits.len() * 64;
            pagehaul_memory::bits::clear_range(bits, 0, place(part.start).min(end));
            pagehaul_memory::bits::clear_range(bits, place(part.end).min(end), end);
        }
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(view::KdumpView::new(self))
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn files(&self) -> Vec<(u64, u64)> {
        vec![self.file.identity()]
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        /// `__START_KERNEL_map`, and the room for the image from there with KASLR (`KERNEL_IMAGE_SIZE`).
        const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
        const KERNEL_IMAGE_SIZE: u64 = 1 << 30;
        if self.info.uts.machine != "x86_64" {
            return None;
        }
        // With KASLR phys_base may be negative: the image is then at a lower physical than virtual offset.
        let negative = (self.info.phys_base as i64) < 0;
        let skipped = if negative { self.info.phys_base.wrapping_neg() } else { 0 };
        Some(KernelMapping {
            vaddr: START_KERNEL_MAP.checked_add(skipped)?,
            paddr: if negative { 0 } else { self.info.phys_base },
            size: KERNEL_IMAGE_SIZE.checked_sub(skipped)?,
        })
    }
}
