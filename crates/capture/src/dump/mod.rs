//! The kinds of files pages are put into.

mod elf;
mod elf_segments;
mod flat;
mod kdump;
mod ranks;
mod relocate;
mod table;

pub(crate) use elf::{ElfDump, SHORTEST_HOLE};
pub(crate) use elf_segments::Segments;
pub(crate) use flat::FlatDump;
pub(crate) use kdump::KdumpDump;

use pagehaul_codec::Codec;
use pagehaul_kdump::PageDesc;
use pagehaul_kdump::format::flags;
use pagehaul_physmem::PAGE_SIZE;

use crate::pack::{Batch, Stored};
use crate::sink::WriteError;
use crate::worth::Worth;

/// A dump whose pages are being written. Whatever happens, the file says what it is: incomplete, until
/// [`finish`](Self::finish) has put everything on the disk.
pub(crate) trait DumpWriter {
    /// Writes what stands before the pages.
    fn begin(&mut self) -> Result<(), WriteError>;

    /// Adds the next batch.
    fn place(&mut self, batch: &Batch) -> Result<(), WriteError>;

    /// Writes what is left, waits for the disk, and takes the incomplete mark away.
    fn finish(&mut self) -> Result<(), WriteError>;

    /// Makes the best of what could be written: whole pages that are on record, and the mark that it is not all.
    fn abandon(&mut self) -> Recorded;

    /// Bytes of disk the dump would take, were it to end after `batch`.
    fn size_with(&self, batch: &Batch) -> u64;

    /// Bytes that would be written, were it to end now.
    fn finish_bytes(&self) -> u64;

    /// Whether the disk is at work although no batch is being placed.
    fn is_writing(&mut self) -> bool {
        false
    }

    /// Bytes of the file.
    fn size(&self) -> u64;
}

/// The pages that an incomplete dump holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) pages: u64,
    /// The same by [`Worth`], where that is known.
    pub(crate) by_worth: Option<[u64; Worth::COUNT]>,
}

impl Recorded {
    pub(crate) fn pages(pages: u64) -> Self {
        Self { pages, by_worth: None }
    }
}

/// The descriptor bit of a codec.
pub(crate) fn codec_flag(codec: Codec) -> u32 {
    match codec {
        Codec::None => 0,
        Codec::Zlib => flags::ZLIB,
        Codec::Lzo => flags::LZO,
        Codec::Snappy => flags::SNAPPY,
        Codec::Zstd => flags::ZSTD,
    }
}

/// The descriptor of a page whose bytes, if it has any of its own, are at file offset `at`.
pub(crate) fn descriptor(stored: Stored, at: u64, zero_page: u64) -> PageDesc {
    match stored {
        Stored::Zero => PageDesc::new(zero_page, PAGE_SIZE as u32, 0),
        Stored::Raw => PageDesc::new(at, PAGE_SIZE as u32, 0),
        Stored::Packed(method, size) => PageDesc::new(at, size.into(), codec_flag(method.codec())),
        Stored::Unreadable => PageDesc::new(0, 0, 0),
    }
}
