use std::io;

use pagehaul_codec::Decompressor;
use pagehaul_memory::{PAGE_SHIFT, PAGE_SIZE, PageBuf, ReadError, View, bits};
use zerocopy::{FromZeros, IntoBytes};

use super::KdumpFile;
use super::bitmap::{CHUNK_PAGES, CHUNK_WORDS, load_bits};
use super::slots::Slots;
use super::streams::Streams;
use crate::encoding::Encoding;
use crate::format::PageDesc;

/// Pages kept decompressed: page tables are asked for again and again between other pages.
const PAGES: usize = 32;
/// Chunks of bitmap 2 kept, of 33 KiB each.
const CHUNKS: usize = 8;
/// Blocks of descriptors kept, of 6 KiB each.
const DESC_BLOCKS: usize = 8;
/// Descriptors read at once.
const DESCS: u64 = 256;
/// Words between two stored counts within a chunk.
const RANK_WORDS: usize = 16;

/// One thread's way into a dump.
pub(super) struct KdumpView<'a> {
    dump: &'a KdumpFile,
    chunks: Slots<u64, Chunk>,
    descs: Slots<u64, Vec<PageDesc>>,
    pages: Slots<PageDesc, Box<PageBuf>>,
    streams: Streams,
    codec: Decompressor,
    /// The page asked for last and where it is: [`View::page`] asks twice.
    last: Option<(u64, usize)>,
}

/// A piece of bitmap 2.
struct Chunk {
    words: [u64; CHUNK_WORDS],
    /// Set bits before every [`RANK_WORDS`]th word.
    ranks: [u32; CHUNK_WORDS / RANK_WORDS],
}

impl<'a> KdumpView<'a> {
    pub(super) fn new(dump: &'a KdumpFile) -> Self {
        Self {
            dump,
            chunks: Slots::new(CHUNKS),
            descs: Slots::new(DESC_BLOCKS),
            pages: Slots::new(PAGES),
            streams: Streams::new(),
            codec: Decompressor::new(),
            last: None,
        }
    }

    /// Where in `pages` the page is.
    fn load(&mut self, pfn: u64) -> Result<usize, ReadError> {
        let index = self.descriptor_index(pfn)?;
        let desc = self.descriptor(pfn, index)?;
        // Filed by where it is: all pages of zeros are one.
        if let Some(at) = self.pages.find(desc) {
            return Ok(at);
        }
        let at = self.pages.spare(|| Box::new([0; PAGE_SIZE]));
        self.decode(pfn, desc, at)?;
        self.pages.keep(at, desc);
        Ok(at)
    }

    /// How many descriptors stand before that of the page.
    fn descriptor_index(&mut self, pfn: u64) -> Result<u64, ReadError> {
        let dump = self.dump;
        let paddr = pfn << PAGE_SHIFT;
        let here = dump.info.split.as_ref().is_none_or(|part| part.contains(&pfn));
        if pfn < dump.info.max_mapnr && here {
            let key = pfn / CHUNK_PAGES;
            let at = match self.chunks.find(key) {
                Some(at) => at,
                None => self.load_chunk(key)?,
            };
            let within = (pfn % CHUNK_PAGES) as usize;
            if let Some(rank) = self.chunks.get(at).rank(within) {
                let rank = dump.index.before_chunk(key) + rank;
                return rank.checked_sub(dump.sections.foreign).ok_or_else(|| changed(paddr));
            }
        }
        Err(match dump.index.ranges().find(paddr) {
            Some(_) => ReadError::NotInDump { paddr },
            None => ReadError::NotPresent { paddr },
        })
    }

    fn load_chunk(&mut self, key: u64) -> Result<usize, ReadError> {
        let dump = self.dump;
        let at = self.chunks.spare(Chunk::new);
        let chunk = self.chunks.get_mut(at);
        let (bitmap, first) = (dump.sections.bitmap2, key * CHUNK_PAGES);
        load_bits(&*dump.file, bitmap, first, dump.info.max_mapnr, &mut chunk.words)
            .map_err(|source| dump.read_error(bitmap + first / 8, source))?;
        chunk.count();
        self.chunks.keep(at, key);
        Ok(at)
    }

    fn descriptor(&mut self, pfn: u64, index: u64) -> Result<PageDesc, ReadError> {
        let key = index / DESCS;
        let at = match self.descs.find(key) {
            Some(at) => at,
            None => self.load_descriptors(key)?,
        };
        self.descs.get(at).get((index % DESCS) as usize).copied().ok_or_else(|| ReadError::Damaged {
            paddr: pfn << PAGE_SHIFT,
            reason: format!("the file was cut at {:#x}, before its descriptor", self.dump.file.size()),
        })
    }

    /// A block of descriptors, as many as the file holds.
    fn load_descriptors(&mut self, key: u64) -> Result<usize, ReadError> {
        let dump = self.dump;
        let at = self.descs.spare(Vec::new);
        let first = key * DESCS;
        let offset = dump.sections.descriptors + first * PageDesc::SIZE as u64;
        let held = dump.file.size().saturating_sub(offset) / PageDesc::SIZE as u64;
        let count = dump.sections.count.saturating_sub(first).min(DESCS).min(held);
        let block = self.descs.get_mut(at);
        block.resize(count as usize, PageDesc::new_zeroed());
        dump.file
            .read_exact_at(offset, block.as_mut_bytes())
            .map_err(|source| dump.read_error(offset, source))?;
        self.descs.keep(at, key);
        Ok(at)
    }

    fn decode(&mut self, pfn: u64, desc: PageDesc, at: usize) -> Result<(), ReadError> {
        let dump = self.dump;
        let paddr = pfn << PAGE_SHIFT;
        let damaged = |reason: String| ReadError::Damaged { paddr, reason };
        let codec = match Encoding::of(&desc, dump.data_start(), dump.file.size()) {
            Encoding::Stored(codec) => codec,
            Encoding::Missing if dump.is_incomplete() => {
                return Err(damaged("the writer of the dump stopped before it".into()));
            }
            other => return Err(damaged(other.complaint(&desc, dump.file.size()))),
        };
        let offset = desc.offset.get() as u64;
        let data =
            self.streams.get(&*dump.file, offset, desc.size.get() as usize).map_err(|source| match source
                .kind()
            {
                io::ErrorKind::UnexpectedEof => {
                    damaged(format!("its bytes at offset {offset:#x} are missing"))
                }
                _ => dump.read_error(offset, source),
            })?;
        let page = self.pages.get_mut(at);
        self.codec.decompress(codec, data, &mut page[..]).map_err(|error| damaged(error.to_string()))
    }
}

impl View for KdumpView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let pfn = paddr >> PAGE_SHIFT;
        let at = match self.last {
            Some((last, at)) if last == pfn => at,
            _ => {
                // The page that was there may be overwritten even if loading fails.
                self.last = None;
                let at = self.load(pfn).map_err(|error| at_address(error, paddr))?;
                self.last = Some((pfn, at));
                at
            }
        };
        let from = (paddr % PAGE_SIZE as u64) as usize;
        Ok(&self.pages.get(at)[from..from + len.min(PAGE_SIZE - from)])
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        // Pages are there whole or not at all.
        (paddr | (PAGE_SIZE as u64 - 1)).saturating_add(1)
    }
}

impl Chunk {
    fn new() -> Self {
        Self { words: [0; CHUNK_WORDS], ranks: [0; CHUNK_WORDS / RANK_WORDS] }
    }

    fn count(&mut self) {
        let mut total = 0;
        for (rank, words) in self.ranks.iter_mut().zip(self.words.chunks(RANK_WORDS)) {
            *rank = total;
            total += bits::count(words) as u32;
        }
    }

    /// How many bits are set before bit `at`; `None` if that one is not set.
    fn rank(&self, at: usize) -> Option<u64> {
        if !bits::get(&self.words, at) {
            return None;
        }
        let (word, group) = (at / 64, at / 64 / RANK_WORDS);
        let below = self.words[word] & ((1 << (at % 64)) - 1);
        let rest = bits::count(&self.words[group * RANK_WORDS..word]) + u64::from(below.count_ones());
        Some(u64::from(self.ranks[group]) + rest)
    }
}

/// The address asked for, in place of that of its page.
fn at_address(error: ReadError, asked: u64) -> ReadError {
    match error {
        ReadError::NotPresent { .. } => ReadError::NotPresent { paddr: asked },
        ReadError::NotInDump { .. } => ReadError::NotInDump { paddr: asked },
        ReadError::Damaged { reason, .. } => ReadError::Damaged { paddr: asked, reason },
        other => other,
    }
}

fn changed(paddr: u64) -> ReadError {
    ReadError::Damaged { paddr, reason: "the dump changed while it was read".into() }
}
