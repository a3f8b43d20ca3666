//! kdump-compressed dumps, versions 1 to 6.

use std::io;
use std::ops::Range;
use std::path::Path;

use crate::codec::Codec;
use crate::content::PAGE;
use crate::image::Image;
use crate::info::CRASH_TIME;
use crate::sparse_file::{self, Target};

/// Status bit of an incomplete dump.
const INCOMPLETE: u32 = 0x8;
const DESC: u64 = 24;
const SUB_HEADER: u64 = 104;

/// Options of a kdump-compressed dump. Default: version 6, level 31, zlib.
#[derive(Clone, Debug)]
pub struct Kdump<'a> {
    image: &'a Image,
    version: i32,
    level: u32,
    codecs: Vec<Codec>,
    block_size: u64,
    stop_after: Option<usize>,
    backwards: bool,
    only: Option<Range<u64>>,
}

impl Image {
    /// Returns a kdump-compressed dump.
    pub fn kdump(&self) -> Kdump<'_> {
        Kdump::new(self)
    }
}

impl<'a> Kdump<'a> {
    pub(crate) fn new(image: &'a Image) -> Self {
        Self {
            image,
            version: 6,
            level: 31,
            codecs: vec![Codec::Zlib],
            block_size: PAGE as u64,
            stop_after: None,
            backwards: false,
            only: None,
        }
    }

    /// Sets the header version, 1 to 6: later fields stay zero.
    pub fn version(&mut self, version: i32) -> &mut Self {
        self.version = version;
        self
    }

    /// Sets the dump level; bit 1 stores one zero page for all.
    pub fn level(&mut self, level: u32) -> &mut Self {
        self.level = level;
        self
    }

    /// Compresses every page with `codec` where that makes it smaller.
    pub fn codec(&mut self, codec: Codec) -> &mut Self {
        self.codecs = vec![codec];
        self
    }

    /// Uses every codec in turn.
    pub fn mixed(&mut self) -> &mut Self {
        self.codecs = Codec::ALL.to_vec();
        self
    }

    /// Stops after `pages` pages, as on a full disk: the other descriptors are zero, and the status is
    /// incomplete.
    pub fn incomplete(&mut self, pages: usize) -> &mut Self {
        self.stop_after = Some(pages);
        self
    }

    /// Stores page data from the last page to the first: readers must follow the descriptors.
    pub fn backwards(&mut self) -> &mut Self {
        self.backwards = true;
        self
    }

    /// Keeps only pages of `pfns`, for small dumps.
    pub fn only(&mut self, pfns: Range<u64>) -> &mut Self {
        self.only = Some(pfns);
        self
    }

    /// Returns the PFNs in the dump, ascending.
    pub fn pfns(&self) -> Vec<u64> {
        let mut pfns = self.image.expected(self.level);
        if let Some(only) = &self.only {
            pfns.retain(|pfn| only.contains(pfn));
        }
        pfns
    }

    /// Returns the file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.part(None)
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_sparse(path, &self.bytes())
    }

    /// Returns a split set of `count` parts: each has the whole header and bitmaps, and the pages of its PFN
    /// range.
    pub fn parts(&self, count: usize) -> Vec<Vec<u8>> {
        let pfns = self.pfns();
        let per_part = pfns.len().div_ceil(count).max(1);
        let end = self.image.max_mapnr();
        let bound = |index: usize| match index {
            0 => 0,
            index if index == count => end,
            index => pfns.get(index * per_part).copied().unwrap_or(end),
        };
        (0..count).map(|index| self.part(Some((bound(index), bound(index + 1))))).collect()
    }

    fn blocks(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.block_size)
    }

    fn part(&self, split: Option<(u64, u64)>) -> Vec<u8> {
        let notes = self.image.notes();
        let with_notes = if self.version >= 4 { notes.len() as u64 } else { self.info().1 };
        let sub_blocks = self.blocks(SUB_HEADER + with_notes);
        let bitmap_blocks = self.blocks(self.image.max_mapnr().div_ceil(8)) * 2;
        let bitmaps = (1 + sub_blocks) * self.block_size;
        let descs = bitmaps + bitmap_blocks * self.block_size;

        let mut out = self.header(sub_blocks as u32, bitmap_blocks as u32);
        out.resize(self.block_size as usize, 0);
        out.extend(self.sub_header(split));
        out.extend(if self.version >= 4 { notes } else { self.info().0 });
        out.resize(bitmaps as usize, 0);
        let pfns = self.pfns();
        out.extend(self.bitmap(&self.image.pfns(), bitmap_blocks / 2));
        out.extend(self.bitmap(&pfns, bitmap_blocks / 2));
        self.put_pages(&mut out, descs, &pfns, split);
        out
    }

    /// Writes descriptors and data. Data starts after the descriptors of the whole set, in parts too.
    fn put_pages(&self, out: &mut Vec<u8>, descs: u64, pfns: &[u64], split: Option<(u64, u64)>) {
        out.resize((descs + DESC * pfns.len() as u64) as usize, 0);
        let zero_at = (self.level & 1 != 0).then_some(out.len());
        if zero_at.is_some() {
            out.resize(out.len() + PAGE, 0);
        }
        let mine: Vec<u64> = match split {
            Some((start, end)) => pfns.iter().copied().filter(|pfn| (start..end).contains(pfn)).collect(),
            None => pfns.to_vec(),
        };
        let limit = self.stop_after.unwrap_or(usize::MAX);
        let mut indices: Vec<usize> = (0..mine.len().min(limit)).collect();
        if self.backwards {
            indices.reverse();
        }
        for index in indices {
            let pfn = mine[index];
            let (offset, size, flags) = match zero_at {
                Some(at) if self.image.is_zero(pfn) => (at, PAGE, 0),
                _ => {
                    let page = self.image.page(pfn);
                    let codec = self.codecs[index % self.codecs.len()];
                    let at = out.len();
                    match codec.compress(&page) {
                        Some(bytes) => {
                            out.extend(&bytes);
                            (at, bytes.len(), codec.flag())
                        }
                        None => {
                            out.extend(page);
                            (at, PAGE, 0)
                        }
                    }
                }
            };
            let desc = &mut out[(descs + DESC * index as u64) as usize..][..16];
            desc[..8].copy_from_slice(&(offset as u64).to_le_bytes());
            desc[8..12].copy_from_slice(&(size as u32).to_le_bytes());
            desc[12..].copy_from_slice(&flags.to_le_bytes());
        }
    }

    /// The text of VMCOREINFO as version 3 keeps it, and its size.
    fn info(&self) -> (&[u8], u64) {
        let text = if self.version >= 3 { self.image.vmcoreinfo().as_bytes() } else { &[] };
        (text, text.len() as u64)
    }

    fn header(&self, sub_blocks: u32, bitmap_blocks: u32) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(b"KDUMP   ");
        out.extend(self.version.to_le_bytes());
        let release = self.image.setup.era.release();
        let machine = self.image.setup.machine();
        for name in ["Linux", "synth", release, "#1 SMP PREEMPT_DYNAMIC synthetic", machine, "(none)"] {
            let mut field = [0; 65];
            field[..name.len()].copy_from_slice(name.as_bytes());
            out.extend(field);
        }
        out.resize(408, 0);
        out.extend(CRASH_TIME.to_le_bytes());
        out.extend(0_i64.to_le_bytes());
        let codecs = self.codecs.iter().fold(0, |bits, codec| bits | codec.flag());
        let status = codecs | if self.stop_after.is_some() { INCOMPLETE } else { 0 };
        let max_mapnr = self.image.max_mapnr().min(u64::from(u32::MAX)) as u32;
        let cpus = self.image.setup.cpus as u32;
        for word in [status, self.block_size as u32, sub_blocks, bitmap_blocks, max_mapnr, 0, 0, 0, 0, cpus] {
            out.extend(word.to_le_bytes());
        }
        assert_eq!(out.len(), 464, "the header's fields fill it");
        out
    }

    fn sub_header(&self, split: Option<(u64, u64)>) -> Vec<u8> {
        let after = self.block_size + SUB_HEADER;
        let clamp = |pfn: u64| pfn.min(u64::from(u32::MAX));
        let (start, end) = split.unwrap_or((0, 0));
        let (info_at, info_size, notes_at, notes_size) = {
            let text = self.image.vmcoreinfo().len() as u64;
            let notes = self.image.notes();
            // VMCOREINFO is the last note; its descriptor is padded to 4 bytes.
            let inside = notes.len() as u64 - text.next_multiple_of(4);
            match self.version {
                ..3 => (0, 0, 0, 0),
                3 => (after, text, 0, 0),
                _ => (after + inside, text, after, notes.len() as u64),
            }
        };
        let mut out = Vec::new();
        out.extend(self.image.setup.phys_base().to_le_bytes());
        out.extend((self.level as i32).to_le_bytes());
        out.extend((i32::from(split.is_some() && self.version >= 2)).to_le_bytes());
        let since = |version: i32, value: u64| if self.version >= version { value } else { 0 };
        for word in [
            since(2, clamp(start)),
            since(2, clamp(end)),
            info_at,
            info_size,
            notes_at,
            notes_size,
            0,
            0,
            since(6, start),
            since(6, end),
            since(6, self.image.max_mapnr()),
        ] {
            out.extend(word.to_le_bytes());
        }
        out
    }

    fn bitmap(&self, pfns: &[u64], blocks: u64) -> Vec<u8> {
        let mut bits = vec![0; (blocks * self.block_size) as usize];
        for &pfn in pfns {
            bits[(pfn / 8) as usize] |= 1 << (pfn % 8);
        }
        bits
    }
}

/// Writes `bytes`, with holes for pages of zeros.
pub(crate) fn write_sparse(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = sparse_file::create(path, bytes.len() as u64)?;
    for (index, block) in bytes.chunks(PAGE).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            file.put((index * PAGE) as u64, block)?;
        }
    }
    Ok(())
}
