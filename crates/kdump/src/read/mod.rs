//! Reading kdump-compressed files, versions 1 to 6, of machines of any word size, byte order and page size.

mod bitmap;
mod census;
mod check;
mod flattened;
mod notes;
mod parse;
mod record_index;
mod records;
mod set;
mod set_view;
mod slots;
mod streams;
mod truncated;
mod view;
mod walk;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pagehaul_machine::{KernelMapping, PhysAddr, Platform};
use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{OpenError, PAGE_SHIFT, PageState, PhysMemory, RangeMap, ReadError, View};

use crate::format::PageDesc;
use crate::format::byte_layout::ByteLayout;
use crate::format::encoding::{Encoding, Places};
use bitmap::BitmapIndex;
pub use census::Census;
pub use flattened::{Flattened, TRUNCATED_STREAM};
pub use parse::Info;
pub use set::{SplitError, SplitSet};
pub use walk::Structure;

/// A kdump-compressed file as a source of physical memory.
///
/// It takes 264 bytes of memory per GiB of memory with pages in the dump, for finding descriptors, plus the map of RAM and
/// the notes. Each view adds at most 3 MiB.
pub struct KdumpFile {
    file: Box<dyn ReadAt>,
    info: Info,
    platform: Platform,
    byte_layout: ByteLayout,
    sections: Sections,
    index: BitmapIndex,
    notes: Vec<u8>,
    /// What is wrong with headers, notes and bitmaps, one sentence each.
    faults: Vec<String>,
    /// Why no page can be told from its neighbours, if that is so.
    doubt: Option<String>,
    cut_stream: Option<CutStream>,
    /// Whether a page that was read is missing or damaged.
    met_damage: AtomicBool,
}

/// A flattened stream that has no end record.
#[derive(Debug, Clone, Copy)]
struct CutStream {
    /// Pages whose bits did not arrive, at most.
    unknown_pages: u64,
}

/// What leads to the pages.
struct Tables {
    parsed: parse::Parsed,
    sections: Sections,
    index: BitmapIndex,
}

impl Tables {
    fn read(file: &dyn ReadAt, parsed: parse::Parsed) -> Result<Self, OpenError> {
        let mut sections = Sections {
            headers_end: parsed.headers_end,
            bitmap1: parsed.bitmap1,
            bitmap2: parsed.bitmap2,
            descriptors: parsed.descriptors,
            foreign: 0,
            count: 0,
            eraseinfo: parsed.eraseinfo,
        };
        let info = &parsed.info;
        let index = BitmapIndex::build(file, &sections, info.max_mapnr, info.block_size.trailing_zeros())?;
        (sections.foreign, sections.count) = match &info.split {
            Some(part) => {
                let before = index.rank(file, &sections, part.start)?;
                (before, index.rank(file, &sections, part.end)?.saturating_sub(before))
            }
            None => (0, index.dumped()),
        };
        Ok(Self { parsed, sections, index })
    }
}

/// The sections of the file.
#[derive(Debug, Clone, Copy)]
struct Sections {
    /// Where page data may begin if the tables are behind it; else the offset of bitmap 1.
    headers_end: u64,
    bitmap1: u64,
    bitmap2: u64,
    descriptors: u64,
    /// Set bits of bitmap 2 before this part's own, whose descriptors are in other parts of the split set.
    foreign: u64,
    /// Descriptors in this file.
    count: u64,
    eraseinfo: Option<(u64, u64)>,
}

impl KdumpFile {
    /// Opens a dump by reading its headers, notes and both bitmaps. Pages are read on demand, so a dump that is truncated
    /// behind its bitmaps opens.
    pub fn open(file: Box<dyn ReadAt>) -> Result<Self, OpenError> {
        let tables = Tables::read(&*file, parse::parse(&*file)?)?;
        Ok(Self::with_tables(file, tables, None))
    }

    /// Opens a flattened dump. A truncated one lacks the rest of its tables, which are written together with the pages: pages
    /// without a descriptor are missing, as in a dump whose writer did not finish.
    pub fn open_flattened(mut file: Flattened) -> Result<Self, OpenError> {
        let parsed = parse::parse(&file)?;
        if file.is_complete() {
            let tables = Tables::read(&file, parsed)?;
            return Ok(Self::with_tables(Box::new(file), tables, None));
        }
        let (bitmap1, bitmap2, descriptors) = (parsed.bitmap1, parsed.bitmap2, parsed.descriptors);
        let bits = parsed.info.max_mapnr.div_ceil(8);
        // makedumpfile writes bitmap 2 in pieces, each before its pages, if its buffer is smaller (--cyclic-buffer).
        let unknown =
            file.missing_bytes(bitmap2..bitmap2 + bits).max(file.missing_bytes(bitmap1..bitmap1 + bits));
        file.read_missing_as_zeros(bitmap1..descriptors, 1);
        let tables = Tables::read(&file, parsed)?;
        let size = tables.sections.count * PageDesc::SIZE as u64;
        file.read_missing_as_zeros(descriptors..descriptors + size, PageDesc::SIZE as u64);
        let cut = CutStream { unknown_pages: unknown.saturating_mul(8) };
        Ok(Self::with_tables(Box::new(file), tables, Some(cut)))
    }

    fn with_tables(file: Box<dyn ReadAt>, tables: Tables, cut_stream: Option<CutStream>) -> Self {
        let Tables { parsed, sections, index } = tables;
        let (notes, mut faults) = notes::load(&*file, &parsed);
        let mut info = parsed.info;
        info.ram_pages = index.ranges().bytes() >> info.block_size.trailing_zeros();
        info.dumped_pages = sections.count;
        if index.contradictions > 0 {
            faults.push(format!(
                "{} pages are in the dump, but in no memory of the machine: a bitmap is damaged",
                index.contradictions
            ));
        }
        let (platform, byte_layout) = (parsed.platform, parsed.byte_layout);
        let mut dump = Self {
            file,
            info,
            platform,
            byte_layout,
            sections,
            index,
            notes,
            faults,
            doubt: None,
            cut_stream,
            met_damage: AtomicBool::new(false),
        };
        dump.doubt = check::descriptors_do_not_fit_bitmap(&dump);
        dump
    }

    /// The contents of the headers.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The dump level: the sum of 1 zero, 2 cache, 4 private cache, 8 user, 16 free.
    pub fn dump_level(&self) -> u32 {
        self.info.dump_level
    }

    /// Returns whether the dump is marked incomplete, or its stream lacks the terminator. A file that was truncated later
    /// is not marked: see [`is_truncated`](Self::is_truncated).
    pub fn is_incomplete(&self) -> bool {
        self.info.incomplete() || self.cut_stream.is_some()
    }

    /// Returns whether a page that was read so far, by any view, is missing, damaged or cannot be read.
    pub fn met_damage(&self) -> bool {
        self.met_damage.load(Ordering::Relaxed)
    }

    /// Notes what a read met.
    fn note<T>(&self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        // The file can fail, too: a bad sector, a damaged chunk of an encrypted one.
        if let Err(ReadError::Missing { .. } | ReadError::Damaged { .. } | ReadError::Io { .. }) = &read {
            self.met_damage.store(true, Ordering::Relaxed);
        }
        read
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The bytes of the file that a flattened stream describes, or of the file itself.
    pub fn file(&self) -> &dyn ReadAt {
        &*self.file
    }

    /// Returns the record of data erased from the dump: lines of text, empty if there are none.
    pub fn eraseinfo(&self) -> Result<Vec<u8>, OpenError> {
        notes::eraseinfo(&*self.file, self.sections.eraseinfo)
    }

    /// Counts pages by how they are stored, by reading all descriptors.
    pub fn census(&self) -> Result<Census, ReadError> {
        census::take(self)
    }

    /// Bytes of the file that can be page data.
    pub fn data_bytes(&self) -> u64 {
        let tables = self.data_start() - self.sections.bitmap1;
        self.file.size().saturating_sub(self.sections.headers_end).saturating_sub(tables)
    }

    /// The end of the tables: page data begins here, or between the headers and the tables.
    fn data_start(&self) -> u64 {
        self.sections.descriptors + self.sections.count * PageDesc::SIZE as u64
    }

    fn encoding(&self, desc: &PageDesc) -> Encoding {
        let places = Places {
            headers_end: self.sections.headers_end,
            tables: self.sections.bitmap1..self.data_start(),
            file_size: self.file.size(),
        };
        Encoding::of(desc, &places, self.info.block_size)
    }

    /// log2 of the dump's own page size, and of how many pages of 4 KiB that is.
    fn shifts(&self) -> (u32, u32) {
        let shift = self.info.block_size.trailing_zeros();
        (shift, shift.saturating_sub(PAGE_SHIFT))
    }

    fn read_error(&self, offset: u64, source: std::io::Error) -> ReadError {
        ReadError::Io { path: self.file.path().to_owned(), offset, source }
    }

    /// Reads bits of bitmap 2, including those of other parts.
    fn mark_dumped(&self, first_pfn: u64, bits: &mut [u64]) -> Result<(), ReadError> {
        let (_, larger) = self.shifts();
        let load = |first: u64, words: &mut [u64]| {
            bitmap::load_bits(&*self.file, self.sections.bitmap2, first, self.info.max_mapnr, words)
                .map_err(|source| self.read_error(self.sections.bitmap2 + first / 8, source))
        };
        if larger == 0 {
            return load(first_pfn, bits);
        }
        let first = first_pfn >> larger;
        let mut own = vec![0; (bits.len() >> larger) + 2];
        load(first, &mut own)?;
        bits.fill(0);
        for at in 0..bits.len() * 64 {
            let page = ((first_pfn + at as u64) >> larger) - first;
            if pagehaul_physmem::bits::get(&own, page as usize) {
                pagehaul_physmem::bits::set_range(bits, at, at + 1);
            }
        }
        Ok(())
    }

    /// The 4 KiB pages that this file covers: all, or those of its part.
    fn part(&self) -> std::ops::Range<u64> {
        let (_, larger) = self.shifts();
        let part = self.info.split.clone().unwrap_or(0..self.info.max_mapnr);
        part.start << larger..part.end << larger
    }
}

impl PhysMemory for KdumpFile {
    fn ranges(&self) -> &RangeMap {
        self.index.ranges()
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        let first_pfn = from.get() >> PAGE_SHIFT;
        self.mark_dumped(first_pfn, bits)?;
        let part = self.part();
        let end = bits.len() * 64;
        let place = |pfn: u64| usize::try_from(pfn.saturating_sub(first_pfn)).unwrap_or(usize::MAX).min(end);
        pagehaul_physmem::bits::clear_range(bits, 0, place(part.start));
        pagehaul_physmem::bits::clear_range(bits, place(part.end), end);
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        // Pages may share their data, but not their descriptors.
        let room = self.file.size().saturating_sub(self.sections.descriptors) / PageDesc::SIZE as u64;
        self.sections.count.min(room).saturating_mul(self.info.block_size.into())
    }

    fn known_state(&self, paddr: u64) -> (Option<PageState>, u64) {
        let (shift, _) = self.shifts();
        let group = (paddr >> shift) / bitmap::GROUP_PAGES;
        match self.index.next_group(group) {
            Some(next) if next == group => (None, ((group + 1) * bitmap::GROUP_PAGES) << shift),
            Some(next) => (Some(PageState::Excluded), (next * bitmap::GROUP_PAGES) << shift),
            None => (Some(PageState::Excluded), u64::MAX),
        }
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(view::KdumpView::new(self))
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn platform(&self) -> Platform {
        self.platform
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        if let Some(cut) = self.cut_stream {
            // Its mark may be in the part that did not arrive.
            faults.push(TRUNCATED_STREAM.into());
            if cut.unknown_pages > 0 {
                faults.push(format!(
                    "a part of its bitmaps did not arrive: up to {} pages count as excluded or as no memory that may have been \
                     in the dump",
                    cut.unknown_pages
                ));
            }
        } else if self.info.incomplete() {
            faults.push("it is marked incomplete: its writer did not finish".into());
        }
        faults.extend(self.doubt.clone());
        if let Some(part) = &self.info.split {
            faults.push(format!(
                "it is one part of a split set, PFNs {:#x} to {:#x}: name the other parts, too",
                part.start,
                part.end.saturating_sub(1)
            ));
        }
        faults
    }

    fn files(&self) -> Vec<(u64, u64)> {
        vec![self.file.identity()]
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.platform.arch()?.image_by_header(self.info.phys_base)
    }
}
