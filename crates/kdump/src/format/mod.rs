//! The kdump-compressed and flattened formats on disk, as 64-bit little-endian machines write them.
//!
//! A kdump-compressed file is a sequence of blocks as large as a page of the machine:
//!
//! | block | contents |
//! |---|---|
//! | 0 | [`DiskDumpHeader`] |
//! | 1 | [`KdumpSubHeader`], directly followed by the ELF notes; [`DiskDumpHeader::sub_hdr_size`] blocks in all |
//! | 1 + sub | bitmap 1: bit *n* says that PFN *n* is memory of the machine |
//! | … | bitmap 2: bit *n* says that PFN *n* is in the dump; as long as bitmap 1 |
//! | 1 + sub + bitmaps | one [`PageDesc`] per bit set in bitmap 2, in PFN order |
//! | behind them | the pages, at any offset and in any order: descriptors may share one offset |
//!
//! Within a bitmap PFN *n* is bit *n* % 8 of byte *n* / 8. Integers are in the byte order of the machine that
//! writes; the structs mirror its C structs, including padding. The flattened container ([`FlatHeader`],
//! [`FlatRecord`], [`FlatIndex`]) is big-endian on every machine.
//!
//! # The index of a flattened file
//! A flattened file is read by jumping from one record's header to the next, a request to a server each. So pagehaul appends an
//! index, behind the terminator:
//!
//! | bytes | contents |
//! |---|---|
//! | 4096 | [`FlatHeader`] |
//! | 16 + size, for each record | [`FlatRecord`], and the bytes |
//! | 16 | the terminator |
//! | 16 for each record | a copy of its [`FlatRecord`], in the order of the file |
//! | 40 | [`FlatIndex`], at the end of the file |
//!
//! Other readers stop at the terminator: `makedumpfile -R` and `makedumpfile-R.pl` (1.7.9, `rearrange_dumpdata`), crash (August 2026,
//! `store_flat_data_array`), libkdumpfile (0.5.4, `flatmap_file_init`), and drgn, which uses it. A record behind the end of the file would
//! do no harm to readers, but `makedumpfile -R` would write it to the file. A stream without an index is complete.

pub(crate) mod byte_layout;
pub(crate) mod encoding;
mod header;
mod layout;
mod utsname;

use core::mem::{offset_of, size_of};

use twox_hash::XxHash3_64;
use zerocopy::byteorder::{big_endian, little_endian as le};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use header::{Header, STATUS_OFFSET, SUB_BLOCKS_OFFSET};
pub use layout::{Layout, LayoutError};
pub use utsname::UtsName;

/// Bytes of a flattened file's header, and of the smallest block.
pub const FLAT_HEADER_SIZE: usize = 4096;

/// First bytes of a kdump-compressed file.
pub const SIGNATURE: [u8; 8] = *b"KDUMP   ";
/// First bytes of the older "diskdump" format, which has another sub header.
pub const DISKDUMP_SIGNATURE: [u8; 8] = *b"DISKDUMP";

/// The version written: the first with 64-bit PFNs.
pub const VERSION: i32 = 6;

/// PFNs at most: x86_64 has at most 52 physical address bits
/// (`MAX_PHYSMEM_BITS`, `arch/x86/include/asm/sparsemem.h`).
pub const MAX_PFNS: u64 = 1 << (52 - 12);

/// Bytes of notes at most; more are damage. 8,192 CPUs leave 12 MiB.
pub const MAX_NOTES: u64 = 256 << 20;

/// Flags of [`PageDesc::flags`] and of [`DiskDumpHeader::status`]. In a descriptor they say how the page is stored: none
/// means uncompressed. In the header the codec bits are only a hint, and the others describe the dump.
pub mod flags {
    /// zlib stream (RFC 1950).
    pub const ZLIB: u32 = 0x1;
    /// LZO1X without any header.
    pub const LZO: u32 = 0x2;
    /// Raw snappy, without framing.
    pub const SNAPPY: u32 = 0x4;
    /// Header only: the writer did not finish; pages may be missing (their descriptors have offset 0, or lie past the
    /// end of the file).
    pub const INCOMPLETE: u32 = 0x8;
    /// Header only: pages of the memmap that describe only excluded pages are excluded too.
    pub const EXCLUDED_VMEMMAP: u32 = 0x10;
    /// One zstd frame. Known to readers since 2021.
    pub const ZSTD: u32 = 0x20;
    /// All codec bits.
    pub const CODECS: u32 = ZLIB | LZO | SNAPPY | ZSTD;
}

/// `struct new_utsname`: `uname` of the crashed machine. Each field ends with a zero byte. Readers ignore the struct, and
/// thus the architecture, if `release`, `version` or `machine` is empty or `sysname` is not "Linux".
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NewUtsname {
    /// "Linux".
    pub sysname: [u8; UTS_LEN],
    /// Host name.
    pub nodename: [u8; UTS_LEN],
    /// Kernel release: "6.12.0-1-amd64".
    pub release: [u8; UTS_LEN],
    /// Build number, options and date: "#1 SMP PREEMPT_DYNAMIC …".
    pub version: [u8; UTS_LEN],
    /// "x86_64". Readers choose the architecture by it: without it drgn refuses the dump.
    pub machine: [u8; UTS_LEN],
    /// NIS domain, mostly "(none)".
    pub domainname: [u8; UTS_LEN],
}

/// Bytes of each field of [`NewUtsname`], the closing zero included.
pub const UTS_LEN: usize = 65;

/// `struct disk_dump_header`, at offset 0, zero-padded to a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiskDumpHeader {
    /// [`SIGNATURE`].
    pub signature: [u8; 8],
    /// 1 to 6: which fields of [`KdumpSubHeader`] count.
    pub header_version: le::I32,
    /// The crashed machine.
    pub utsname: NewUtsname,
    /// Padding before the 8-byte aligned time.
    pub padding: [u8; 6],
    /// When the machine crashed: seconds since 1970, UTC.
    pub tv_sec: le::I64,
    /// Microseconds on top of [`tv_sec`](Self::tv_sec); written as 0.
    pub tv_usec: le::I64,
    /// [`flags`].
    pub status: le::U32,
    /// Bytes per block; also the page size of the machine.
    pub block_size: le::I32,
    /// Blocks of the sub header with the notes behind it.
    pub sub_hdr_size: le::I32,
    /// Blocks of **both** bitmaps together.
    pub bitmap_blocks: le::U32,
    /// One more than the highest PFN, or `u32::MAX` where that does not fit: then see
    /// [`KdumpSubHeader::max_mapnr_64`].
    pub max_mapnr: le::U32,
    /// Pages of RAM. Unused, written as 0.
    pub total_ram_blocks: le::U32,
    /// Blocks of the dump device. Unused, written as 0.
    pub device_blocks: le::U32,
    /// Blocks written. Unused, written as 0.
    pub written_blocks: le::U32,
    /// CPU that handled the dump. Unused, written as 0.
    pub current_cpu: le::U32,
    /// How many CPUs left their registers in the notes.
    pub nr_cpus: le::I32,
}

/// `struct kdump_sub_header`, at block 1. File offsets are from the start of the file; an offset of 0 means "none".
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct KdumpSubHeader {
    /// Physical address of the kernel image minus its link address (two's complement).
    pub phys_base: le::U64,
    /// The dump level: the sum of 1 zero, 2 cache, 4 private cache, 8 user, 16 free. Since version 1.
    pub dump_level: le::I32,
    /// 1 if the file is one part of a split dump, else 0. Since version 2.
    pub split: le::I32,
    /// First PFN of the part, clamped to 32 bits' worth in version 6. Since version 2.
    pub start_pfn: le::U64,
    /// One more than the last PFN of the part. Since version 2.
    pub end_pfn: le::U64,
    /// File offset of the text of VMCOREINFO, mostly within the notes. Since version 3.
    pub offset_vmcoreinfo: le::I64,
    /// Bytes of that text. Since version 3.
    pub size_vmcoreinfo: le::U64,
    /// File offset of the ELF notes: the whole PT_NOTE of the vmcore. Since version 4.
    pub offset_note: le::I64,
    /// Bytes of the notes. Since version 4.
    pub size_note: le::U64,
    /// File offset of the record of erased data: lines of text. Since version 5.
    pub offset_eraseinfo: le::I64,
    /// Bytes of that record. Since version 5.
    pub size_eraseinfo: le::U64,
    /// [`start_pfn`](Self::start_pfn), exact. Since version 6.
    pub start_pfn_64: le::U64,
    /// [`end_pfn`](Self::end_pfn), exact. Since version 6.
    pub end_pfn_64: le::U64,
    /// One more than the highest PFN, exact. Since version 6.
    pub max_mapnr_64: le::U64,
}

/// `struct page_desc`: the file offset of a page, and how it is stored.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct PageDesc {
    /// File offset of the page's bytes. 0: the page is missing (the writer ended before it).
    pub offset: le::I64,
    /// Bytes stored: those of a page for an uncompressed one, else less.
    pub size: le::U32,
    /// How the bytes are encoded: [`flags`].
    pub flags: le::U32,
    /// Flags of the page in the crashed kernel. Unused, written as 0.
    pub page_flags: le::U64,
}

impl PageDesc {
    /// Bytes of a descriptor in the file.
    pub const SIZE: usize = size_of::<Self>();

    /// Describes a page with `size` stored bytes at file offset `offset`, encoded according to `flags`.
    pub fn new(offset: u64, size: u32, flags: u32) -> Self {
        Self { offset: (offset as i64).into(), size: size.into(), flags: flags.into(), page_flags: 0.into() }
    }

    /// Returns whether the page is missing.
    pub(crate) fn is_missing(&self) -> bool {
        self.offset.get() == 0
    }

    /// Returns the file offset of the end of the page's bytes.
    pub fn end(&self) -> u64 {
        (self.offset.get() as u64).saturating_add(self.size.get().into())
    }
}

/// First 4096 bytes of a flattened file.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FlatHeader {
    /// [`FLAT_SIGNATURE`].
    pub signature: [u8; 16],
    /// 1.
    pub kind: big_endian::I64,
    /// 1.
    pub version: big_endian::I64,
    /// Zeros.
    pub padding: [u8; 4064],
}

/// First bytes of a flattened file.
pub const FLAT_SIGNATURE: [u8; 16] = *b"makedumpfile\0\0\0\0";

/// The header of each record of a flattened file. A record may overwrite bytes of earlier ones.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FlatRecord {
    /// Offset of the bytes in the file that the stream describes; -1 in the terminator.
    pub offset: big_endian::I64,
    /// How many bytes follow; -1 in the terminator.
    pub size: big_endian::I64,
}

impl FlatRecord {
    /// Bytes of a record's header.
    pub const SIZE: usize = size_of::<Self>();
    /// Both fields of the terminator.
    pub const END: i64 = -1;
}

/// The last bytes of a flattened file with an index.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FlatIndex {
    /// [`FLAT_INDEX_SIGNATURE`].
    pub signature: [u8; 16],
    /// 1.
    pub version: big_endian::U64,
    /// How many records the file has, and so how many headers precede this.
    pub count: big_endian::U64,
    /// XXH3-64 of these headers.
    pub checksum: big_endian::U64,
}

impl FlatIndex {
    /// Bytes at the end of the file.
    pub const SIZE: usize = size_of::<Self>();
    /// Headers at most, 4 MiB, which a capture keeps in memory: 256 GiB in records of 1 MiB. A stream of more has no index.
    pub const MOST: usize = 1 << 18;

    /// Returns the end of a file with these headers.
    pub fn new(headers: &[u8]) -> Self {
        Self {
            signature: FLAT_INDEX_SIGNATURE,
            version: 1.into(),
            count: ((headers.len() / FlatRecord::SIZE) as u64).into(),
            checksum: XxHash3_64::oneshot(headers).into(),
        }
    }
}

/// First bytes of [`FlatIndex`].
pub const FLAT_INDEX_SIGNATURE: [u8; 16] = *b"pagehaul-index\0\0";

impl Default for DiskDumpHeader {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl Default for KdumpSubHeader {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

// The layout of the original structs in C for LP64.
const _: () = {
    assert!(size_of::<NewUtsname>() == 390);
    assert!(size_of::<DiskDumpHeader>() == 464);
    assert!(offset_of!(DiskDumpHeader, utsname) == 12);
    assert!(offset_of!(DiskDumpHeader, tv_sec) == 408);
    assert!(offset_of!(DiskDumpHeader, status) == 424);
    assert!(offset_of!(DiskDumpHeader, block_size) == 428);
    assert!(offset_of!(DiskDumpHeader, sub_hdr_size) == 432);
    assert!(offset_of!(DiskDumpHeader, bitmap_blocks) == 436);
    assert!(offset_of!(DiskDumpHeader, max_mapnr) == 440);
    assert!(offset_of!(DiskDumpHeader, nr_cpus) == 460);
    assert!(size_of::<KdumpSubHeader>() == 104);
    assert!(offset_of!(KdumpSubHeader, split) == 12);
    assert!(offset_of!(KdumpSubHeader, start_pfn) == 16);
    assert!(offset_of!(KdumpSubHeader, offset_vmcoreinfo) == 32);
    assert!(offset_of!(KdumpSubHeader, offset_note) == 48);
    assert!(offset_of!(KdumpSubHeader, offset_eraseinfo) == 64);
    assert!(offset_of!(KdumpSubHeader, start_pfn_64) == 80);
    assert!(offset_of!(KdumpSubHeader, max_mapnr_64) == 96);
    assert!(size_of::<PageDesc>() == 24);
    assert!(offset_of!(PageDesc, flags) == 12);
    assert!(size_of::<FlatHeader>() == FLAT_HEADER_SIZE);
    assert!(size_of::<FlatRecord>() == 16);
};
