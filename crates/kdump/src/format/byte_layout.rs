//! The headers of machines other than x86_64: 4-byte `long`, big-endian integers.

use super::header::STATUS_OFFSET;
use super::{DiskDumpHeader, NewUtsname, PageDesc, UTS_LEN};

/// How a machine's C compiler lays out structs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ByteLayout {
    /// Whether `long` has 8 bytes.
    pub(crate) wide: bool,
    /// Whether integers are big-endian.
    pub(crate) big_endian: bool,
    /// Alignment of 64-bit integers in structs: 4 on i386, 8 elsewhere.
    pub(crate) align64: usize,
}

/// Page sizes that Linux has had.
const PAGE_SIZES: [u32; 5] = [4096, 8192, 16384, 32768, 65536];
/// `sizeof(struct kdump_sub_header)` at most.
pub(crate) const LARGEST_SUB_HEADER: usize = 104;

/// The used fields of [`DiskDumpHeader`], as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MainHeader {
    pub(crate) version: i32,
    pub(crate) tv_sec: i64,
    pub(crate) status: u32,
    pub(crate) block_size: i32,
    pub(crate) sub_hdr_size: i32,
    pub(crate) bitmap_blocks: u32,
    pub(crate) max_mapnr: u32,
    pub(crate) nr_cpus: i32,
}

/// [`KdumpSubHeader`](super::KdumpSubHeader) as numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SubHeader {
    pub(crate) phys_base: u64,
    pub(crate) dump_level: i32,
    pub(crate) split: i32,
    pub(crate) start_pfn: u64,
    pub(crate) end_pfn: u64,
    pub(crate) vmcoreinfo: (i64, u64),
    pub(crate) notes: (i64, u64),
    pub(crate) eraseinfo: (i64, u64),
    pub(crate) start_pfn_64: u64,
    pub(crate) end_pfn_64: u64,
    pub(crate) max_mapnr_64: u64,
}

impl ByteLayout {
    /// The layout of x86_64, aarch64, and any other 64-bit little-endian machine.
    pub(crate) const NATIVE: Self = Self { wide: true, big_endian: false, align64: 8 };

    /// Returns the layout in which the header is valid, if there is one.
    pub(crate) fn of(header: &[u8; size_of::<DiskDumpHeader>()]) -> Option<Self> {
        let machine = header.get(12 + 4 * UTS_LEN..12 + 5 * UTS_LEN)?;
        let align64 = if machine.starts_with(b"i") { 4 } else { 8 };
        let layouts = [(true, false), (true, true), (false, false), (false, true)];
        layouts.map(|(wide, big_endian)| Self { wide, big_endian, align64 }).into_iter().find(|layout| {
            let header = layout.main_header(header);
            (1..=99).contains(&header.version)
                && u32::try_from(header.block_size).is_ok_and(|size| PAGE_SIZES.contains(&size))
                && header.sub_hdr_size >= 1
        })
    }

    /// Reads the first block.
    pub(crate) fn main_header(self, bytes: &[u8; size_of::<DiskDumpHeader>()]) -> MainHeader {
        let mut fields = Fields { layout: self, bytes, at: 8 };
        let version = fields.int();
        fields.at += size_of::<NewUtsname>();
        let tv_sec = fields.long();
        let _tv_usec = fields.long();
        let status = fields.unsigned();
        let block_size = fields.int();
        let sub_hdr_size = fields.int();
        let bitmap_blocks = fields.unsigned();
        let max_mapnr = fields.unsigned();
        // total_ram_blocks, device_blocks, written_blocks, current_cpu.
        fields.at += 16;
        let nr_cpus = fields.int();
        MainHeader { version, tv_sec, status, block_size, sub_hdr_size, bitmap_blocks, max_mapnr, nr_cpus }
    }

    /// File offset of the status word.
    pub(crate) fn status_offset(self) -> usize {
        if self.wide { STATUS_OFFSET as usize } else { 412 }
    }

    /// Reads the start of the second block.
    pub(crate) fn sub_header(self, bytes: &[u8; LARGEST_SUB_HEADER]) -> SubHeader {
        let mut fields = Fields { layout: self, bytes, at: 0 };
        SubHeader {
            phys_base: fields.long() as u64,
            dump_level: fields.int(),
            split: fields.int(),
            start_pfn: fields.unsigned_long(),
            end_pfn: fields.unsigned_long(),
            vmcoreinfo: (fields.long_long(), fields.unsigned_long()),
            notes: (fields.long_long(), fields.unsigned_long()),
            eraseinfo: (fields.long_long(), fields.unsigned_long()),
            start_pfn_64: fields.long_long() as u64,
            end_pfn_64: fields.long_long() as u64,
            max_mapnr_64: fields.long_long() as u64,
        }
    }

    /// Converts a descriptor to little-endian fields. Its layout is the same on every machine.
    pub(crate) fn descriptor(self, desc: &mut PageDesc) {
        if self.big_endian {
            desc.offset = desc.offset.get().swap_bytes().into();
            desc.size = desc.size.get().swap_bytes().into();
            desc.flags = desc.flags.get().swap_bytes().into();
            desc.page_flags = desc.page_flags.get().swap_bytes().into();
        }
    }
}

/// Reads the fields of a struct in order. Fields past the end are zero.
struct Fields<'a> {
    layout: ByteLayout,
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self, alignment: usize) -> [u8; N] {
        self.at = self.at.next_multiple_of(alignment);
        let mut out = [0; N];
        if let Some(bytes) = self.bytes.get(self.at..self.at + N) {
            out.copy_from_slice(bytes);
        }
        self.at += N;
        if self.layout.big_endian {
            out.reverse();
        }
        out
    }

    fn unsigned(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4))
    }

    fn int(&mut self) -> i32 {
        self.unsigned() as i32
    }

    fn long_long(&mut self) -> i64 {
        i64::from_le_bytes(self.take(self.layout.align64))
    }

    fn long(&mut self) -> i64 {
        if self.layout.wide { i64::from_le_bytes(self.take(8)) } else { self.int().into() }
    }

    fn unsigned_long(&mut self) -> u64 {
        if self.layout.wide { u64::from_le_bytes(self.take(8)) } else { self.unsigned().into() }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use zerocopy::IntoBytes;

    use super::super::KdumpSubHeader;
    use super::*;

    #[test]
    fn the_native_layout_is_that_of_the_structs() {
        let header = DiskDumpHeader {
            header_version: 6.into(),
            tv_sec: 5.into(),
            status: 7.into(),
            block_size: 4096.into(),
            sub_hdr_size: 2.into(),
            bitmap_blocks: 3.into(),
            max_mapnr: 4.into(),
            nr_cpus: 9.into(),
            ..Default::default()
        };
        let bytes = zerocopy::transmute!(header);
        assert_eq!(ByteLayout::of(&bytes), Some(ByteLayout::NATIVE));
        let read = ByteLayout::NATIVE.main_header(&bytes);
        let fields = (read.version, read.tv_sec, read.status, read.block_size, read.sub_hdr_size);
        assert_eq!(fields, (6, 5, 7, 4096, 2));
        assert_eq!((read.bitmap_blocks, read.max_mapnr, read.nr_cpus), (3, 4, 9));
        let sub = KdumpSubHeader {
            offset_note: 11.into(),
            size_note: 12.into(),
            max_mapnr_64: 13.into(),
            ..Default::default()
        };
        let mut bytes = [0; LARGEST_SUB_HEADER];
        bytes.copy_from_slice(sub.as_bytes());
        let read = ByteLayout::NATIVE.sub_header(&bytes);
        assert_eq!((read.notes, read.max_mapnr_64), ((11, 12), 13));
        assert_eq!(ByteLayout::NATIVE.status_offset(), offset_of!(DiskDumpHeader, status));
    }

    /// The offsets that C compilers for i386 and 32-bit ARM use.
    #[test]
    fn narrow_layouts_have_their_fields_where_c_has_them() {
        for (align64, notes, last) in [(4, 32, 72), (8, 40, 88)] {
            for big_endian in [false, true] {
                let layout = ByteLayout { wide: false, big_endian, align64 };
                let put = |bytes: &mut [u8], at: usize, value: u32| {
                    let value = if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
                    bytes[at..at + 4].copy_from_slice(&value);
                };
                let low = |at| if big_endian { at + 4 } else { at };
                let mut bytes = [0; LARGEST_SUB_HEADER];
                put(&mut bytes, low(notes), 21);
                put(&mut bytes, notes + 8, 22);
                put(&mut bytes, low(last), 23);
                let read = layout.sub_header(&bytes);
                assert_eq!((read.notes, read.max_mapnr_64), ((21, 22), 23), "{layout:?}");
                let mut bytes = [0; size_of::<DiskDumpHeader>()];
                bytes[272..276].copy_from_slice(if align64 == 4 { b"i686" } else { b"armv" });
                for (at, value) in [(8, 6), (404, 1), (412, 8), (416, 4096), (420, 1), (428, 99), (448, 3)] {
                    put(&mut bytes, at, value);
                }
                assert_eq!(ByteLayout::of(&bytes), Some(layout));
                let read = layout.main_header(&bytes);
                assert_eq!((read.tv_sec, read.status, read.max_mapnr, read.nr_cpus), (1, 8, 99, 3));
            }
        }
    }
}
