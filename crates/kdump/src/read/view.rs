use std::io;
use std::ops::Range;

use pagehaul_codec::{Codec, Decompressor};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PageBuf, ReadError, View, bits};
use zerocopy::{FromZeros, IntoBytes};

use super::KdumpFile;
use super::bitmap::{GROUP_PAGES, GROUP_WORDS, load_bits};
use super::slots::{Direct, Slots};
use super::streams::Streams;
use crate::format::PageDesc;
use crate::format::encoding::Encoding;

/// Decompressed pages cached: page tables are read again and again between other pages.
const PAGES: usize = 32;
/// Groups of bitmap 2 cached, of 512 bytes each: they cover 8 GiB.
const GROUPS: usize = 512;
/// Blocks of descriptors cached.
const DESC_BLOCKS: usize = 64;
/// Descriptors read at once: few, so that random access reads little in vain.
const DESCS: u64 = 64;
/// Descriptors that are announced at once: those of pages near by are likely to be needed next.
const ANNOUNCED_DESCS: u64 = 2048;
/// Pages that are announced at a time: more than what a file of a server keeps.
const MAX_ANNOUNCED: usize = 1 << 14;
/// Bytes of a table of descriptors that is announced whole: those of 1.3 GiB of pages. Of a larger one, parts are fetched as pages are read.
const MAX_ANNOUNCED_TABLE: u64 = 8 << 20;

/// One thread's view of a dump.
pub(super) struct KdumpView<'a> {
    dump: &'a KdumpFile,
    shift: u32,
    groups: Direct<[u64; GROUP_WORDS]>,
    descs: Direct<Vec<PageDesc>>,
    pages: Slots<PageDesc, Box<[u8]>>,
    streams: Streams,
    codec: Decompressor,
    /// The last page and its slot: [`View::page`] requests it twice.
    last: Option<(u64, usize)>,
}

impl<'a> KdumpView<'a> {
    pub(super) fn new(dump: &'a KdumpFile) -> Self {
        Self {
            dump,
            shift: dump.shifts().0,
            groups: Direct::new(GROUPS),
            descs: Direct::new(DESC_BLOCKS),
            pages: Slots::new(PAGES),
            streams: Streams::new(),
            codec: Decompressor::new(),
            last: None,
        }
    }

    /// Returns the slot of the page in `pages`.
    fn load(&mut self, pfn: u64) -> Result<usize, ReadError> {
        let index = self.descriptor_index(pfn)?;
        let desc = self.descriptor(pfn, index)?;
        // Keyed by descriptor: all zero pages are one.
        if let Some(at) = self.pages.find(desc) {
            return Ok(at);
        }
        let at = self.pages.spare(|| vec![0; self.dump.info.block_size as usize].into());
        decode(self.dump, &mut self.streams, &mut self.codec, pfn, desc, self.pages.get_mut(at))?;
        self.pages.keep(at, desc);
        Ok(at)
    }

    /// Returns the index of the page's descriptor.
    fn descriptor_index(&mut self, pfn: u64) -> Result<u64, ReadError> {
        let dump = self.dump;
        let paddr = pfn << self.shift;
        if pfn < dump.info.max_mapnr {
            let number = pfn / GROUP_PAGES;
            let within = (pfn % GROUP_PAGES) as usize;
            let words = self.groups.get_or_load(number, |words: &mut [u64; GROUP_WORDS]| {
                let (bitmap, first) = (dump.sections.bitmap2, number * GROUP_PAGES);
                load_bits(&*dump.file, bitmap, first, dump.info.max_mapnr, words)
                    .map_err(|source| dump.read_error(bitmap + first / 8, source))
            })?;
            if bits::get(words, within) {
                if let Some(part) = dump.info.split.as_ref().filter(|part| !part.contains(&pfn)) {
                    let (start, end) = (part.start, part.end.saturating_sub(1));
                    let reason = format!(
                        "it is in another part of the split set; this one has PFNs {start:#x} to {end:#x}"
                    );
                    return Err(ReadError::Missing { paddr, reason });
                }
                if let Some(doubt) = &dump.doubt {
                    return Err(ReadError::Damaged { paddr, reason: doubt.clone() });
                }
                let below = words[within / 64] & ((1 << (within % 64)) - 1);
                let rank = bits::count(&words[..within / 64]) + u64::from(below.count_ones());
                let rank = dump.index.before_group(number) + rank;
                return rank.checked_sub(dump.sections.foreign).ok_or_else(|| changed(paddr));
            }
        }
        Err(match dump.index.ranges().find(paddr) {
            Some(_) => ReadError::NotInDump { paddr },
            None => ReadError::NotPresent { paddr },
        })
    }

    fn descriptor(&mut self, pfn: u64, index: u64) -> Result<PageDesc, ReadError> {
        let dump = self.dump;
        let number = index / DESCS;
        let block = self.descs.get_or_load(number, |block| load_descriptors(dump, number, block))?;
        block.get((index % DESCS) as usize).copied().ok_or_else(|| ReadError::Missing {
            paddr: pfn << self.shift,
            reason: format!("the file ends at {:#x}, before its descriptor", dump.file.size()),
        })
    }
}

impl KdumpView<'_> {
    /// Announces what leads to the pages of these ranges, one kind after the other, then the pages.
    fn announce(&mut self, ranges: &[Range<u64>]) {
        let dump = self.dump;
        let pfns = |range: &Range<u64>| range.start >> self.shift..range.end.div_ceil(1 << self.shift);
        let mut pfns: Vec<u64> = ranges.iter().flat_map(pfns).take(MAX_ANNOUNCED).collect();
        pfns.sort_unstable();
        pfns.dedup();
        let mut bitmap: Vec<u64> = pfns.iter().map(|pfn| pfn / GROUP_PAGES).collect();
        bitmap.dedup();
        let group = |number: &u64| {
            let start = dump.sections.bitmap2 + number * (GROUP_PAGES / 8);
            start..start + GROUP_PAGES / 8
        };
        dump.file.will_need(&bitmap.iter().map(group).collect::<Vec<_>>());
        let indices: Vec<(u64, u64)> =
            pfns.into_iter().filter_map(|pfn| Some((pfn, self.descriptor_index(pfn).ok()?))).collect();
        let mut blocks: Vec<u64> = indices.iter().map(|(_, index)| index / ANNOUNCED_DESCS).collect();
        blocks.dedup();
        let block = |number: &u64| {
            let first = number * ANNOUNCED_DESCS;
            let end = dump.sections.count.min(first + ANNOUNCED_DESCS);
            let place = |index: u64| dump.sections.descriptors + index * PageDesc::SIZE as u64;
            place(first)..place(end)
        };
        dump.file.will_need(&blocks.iter().map(block).collect::<Vec<_>>());
        let page = |(pfn, index)| {
            let desc: PageDesc = self.descriptor(pfn, index).ok()?;
            if !matches!(dump.encoding(&desc), Encoding::Stored(_)) || self.pages.find(desc).is_some() {
                return None;
            }
            let start = desc.offset.get() as u64;
            Some(start..start.saturating_add(desc.size.get().into()))
        };
        dump.file.will_need(&indices.into_iter().filter_map(page).collect::<Vec<_>>());
    }
}

/// Reads and decompresses the page of a descriptor.
fn decode(
    dump: &KdumpFile,
    streams: &mut Streams,
    decompressor: &mut Decompressor,
    pfn: u64,
    desc: PageDesc,
    page: &mut [u8],
) -> Result<(), ReadError> {
    let paddr = pfn << dump.shifts().0;
    let damaged = |reason: String| ReadError::Damaged { paddr, reason };
    let missing = |reason: String| ReadError::Missing { paddr, reason };
    let codec = match dump.encoding(&desc) {
        Encoding::Stored(codec) => codec,
        Encoding::Missing if dump.cut_stream.is_some() => {
            return Err(missing("the flattened stream ends before its descriptor".into()));
        }
        Encoding::Missing if dump.is_incomplete() => {
            return Err(missing("the writer of the dump stopped before it".into()));
        }
        other @ Encoding::Truncated => return Err(missing(other.complaint(&desc, dump.file.size()))),
        other => return Err(damaged(other.complaint(&desc, dump.file.size()))),
    };
    let offset = desc.offset.get() as u64;
    let data =
        streams.get(&*dump.file, offset, desc.size.get() as usize).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => {
                missing(format!("the file ends before its bytes at offset {offset:#x}"))
            }
            _ => dump.read_error(offset, source),
        })?;
    decompressor.decompress(codec, data, page).map_err(|error| damaged(error.to_string()))
}

/// Reads a block of descriptors, as many as the file has.
fn load_descriptors(dump: &KdumpFile, number: u64, block: &mut Vec<PageDesc>) -> Result<(), ReadError> {
    let first = number * DESCS;
    let offset = dump.sections.descriptors + first * PageDesc::SIZE as u64;
    let held = dump.file.size().saturating_sub(offset) / PageDesc::SIZE as u64;
    let count = dump.sections.count.saturating_sub(first).min(DESCS).min(held);
    block.resize(count as usize, PageDesc::new_zeroed());
    match dump.file.read_exact_at(offset, block.as_mut_bytes()) {
        Ok(()) => {}
        // A flattened stream may end within them: those present are read one by one.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let read = |at: usize, desc: &mut PageDesc| {
                let offset = offset + (at * PageDesc::SIZE) as u64;
                dump.file.read_exact_at(offset, desc.as_mut_bytes()).is_ok()
            };
            let cut = block.iter_mut().enumerate().position(|(at, desc)| !read(at, desc));
            let whole = cut.unwrap_or(block.len());
            block.truncate(whole);
        }
        Err(source) => return Err(dump.read_error(offset, source)),
    }
    block.iter_mut().for_each(|desc| dump.byte_layout.descriptor(desc));
    Ok(())
}

impl View for KdumpView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let pfn = paddr >> self.shift;
        let at = match self.last {
            Some((last, at)) if last == pfn => at,
            _ => {
                // The slot may be overwritten even if loading fails.
                self.last = None;
                let loaded = self.load(pfn);
                let at = self.dump.note(loaded).map_err(|error| at_address(error, paddr))?;
                self.last = Some((pfn, at));
                at
            }
        };
        let page = self.pages.get(at);
        let from = (paddr % page.len() as u64) as usize;
        Ok(&page[from..from + len.min(page.len() - from)])
    }

    fn copy_page(&mut self, from: PhysAddr, page: &mut PageBuf) -> Result<(), ReadError> {
        if self.shift == PAGE_SHIFT {
            let pfn = from.get() >> PAGE_SHIFT;
            let found = self.descriptor_index(pfn).and_then(|index| self.descriptor(pfn, index));
            let desc = self.dump.note(found)?;
            if matches!(self.dump.encoding(&desc), Encoding::Stored(codec) if codec != Codec::None) {
                let decoded = decode(self.dump, &mut self.streams, &mut self.codec, pfn, desc, page);
                return self.dump.note(decoded);
            }
        }
        // A raw page may be the zero page, which is requested so often that it is cached; the next part of a larger page
        // is likely to be requested next.
        self.read(from.get(), page)
    }

    fn is_remote(&self) -> bool {
        self.dump.file.is_remote()
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        if self.is_remote() {
            self.announce(ranges);
        }
    }

    fn will_need_tables(&mut self) {
        let dump = self.dump;
        let bytes = dump.sections.count.saturating_mul(PageDesc::SIZE as u64);
        if self.is_remote() && bytes <= MAX_ANNOUNCED_TABLE {
            let start = dump.sections.descriptors;
            dump.file.will_need(&[start..start.saturating_add(bytes)]);
        }
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        // A page is present as a whole or not at all.
        (paddr | (PAGE_SIZE as u64 - 1)).saturating_add(1)
    }
}

/// Replaces the address of the page in an error by the requested one.
pub(super) fn at_address(error: ReadError, asked: u64) -> ReadError {
    match error {
        ReadError::NotPresent { .. } => ReadError::NotPresent { paddr: asked },
        ReadError::NotInDump { .. } => ReadError::NotInDump { paddr: asked },
        ReadError::Missing { reason, .. } => ReadError::Missing { paddr: asked, reason },
        ReadError::Damaged { reason, .. } => ReadError::Damaged { paddr: asked, reason },
        other => other,
    }
}

fn changed(paddr: u64) -> ReadError {
    ReadError::Damaged { paddr, reason: "the dump changed while it was read".into() }
}
