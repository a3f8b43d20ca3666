//! Dumps of machines that are not x86_64: other word sizes, byte orders and page sizes.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Codec;

/// Struct layout and page size of an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Whether `long` has 8 bytes.
    pub wide: bool,
    /// Whether integers have their highest byte first.
    pub big_endian: bool,
    /// Whether structs align 64-bit integers to 4 bytes, as on i386.
    pub packed: bool,
    /// Bytes of a page.
    pub page_size: usize,
    /// `uname -m`.
    pub machine: &'static str,
    /// `e_machine` of ELF files.
    pub elf_machine: u16,
}

impl Foreign {
    /// One architecture of each layout.
    pub const ALL: [Self; 7] = {
        const fn machine(
            (machine, elf_machine): (&'static str, u16),
            (wide, big_endian, packed): (bool, bool, bool),
            page_size: usize,
        ) -> Foreign {
            Foreign { wide, big_endian, packed, page_size, machine, elf_machine }
        }
        [
            machine(("i686", 3), (false, false, true), 4096),
            machine(("armv7l", 40), (false, false, false), 4096),
            machine(("ppc", 20), (false, true, false), 4096),
            machine(("s390x", 22), (true, true, false), 4096),
            machine(("ppc64", 21), (true, true, false), 65536),
            machine(("ppc64le", 21), (true, false, false), 65536),
            machine(("aarch64", 183), (true, false, false), 16384),
        ]
    };

    /// Returns the contents of a page: equal seeds give equal pages.
    pub fn page(&self, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut step = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        // Every fifth page does not compress.
        (0..self.page_size)
            .map(|at| if seed.is_multiple_of(5) || at % 16 == 0 { step() } else { seed as u8 })
            .collect()
    }

    /// A kdump-compressed file, version 6: `ram` and the keys of `pages` count pages of
    /// [`page_size`](Self::page_size).
    pub fn kdump(&self, ram: &[Range<u64>], pages: &BTreeMap<u64, Vec<u8>>, notes: &[u8]) -> Vec<u8> {
        let block = self.page_size;
        let end = ram.iter().map(|range| range.end).max().unwrap_or(0);
        let sub_header = self.sub_header(0, 0, 0).len();
        let sub_blocks = (sub_header + notes.len()).div_ceil(block);
        let bitmap_bytes = (end as usize).div_ceil(8).next_multiple_of(block);
        let mut out = self.header(sub_blocks as u32, (2 * bitmap_bytes / block) as u32, end as u32);
        out.resize(block, 0);
        out.extend(self.sub_header(end, (block + sub_header) as u64, notes.len() as u64));
        out.extend(notes);
        out.resize((1 + sub_blocks) * block, 0);
        let bits = |pfns: &mut dyn Iterator<Item = u64>| {
            let mut bits = vec![0u8; bitmap_bytes];
            pfns.for_each(|pfn| bits[(pfn / 8) as usize] |= 1 << (pfn % 8));
            bits
        };
        out.extend(bits(&mut ram.iter().cloned().flatten()));
        out.extend(bits(&mut pages.keys().copied()));
        let mut data = Vec::new();
        let start = out.len() + 24 * pages.len();
        for (index, page) in pages.values().enumerate() {
            let codec = Codec::ALL[index % Codec::ALL.len()];
            let at = (start + data.len()) as u64;
            let (flag, bytes) = match codec.compress(page) {
                Some(bytes) => (codec.flag(), bytes),
                None => (0, page.clone()),
            };
            out.extend(self.u64(at));
            out.extend(self.u32(bytes.len() as u32));
            out.extend(self.u32(flag));
            out.extend([0; 8]);
            data.extend(bytes);
        }
        out.extend(data);
        out
    }

    /// An ELF core of the machine: a PT_NOTE, and a PT_LOAD for each of `segments`, given by physical
    /// address.
    pub fn elf(&self, segments: &[(u64, Vec<u8>)], notes: &[u8]) -> Vec<u8> {
        let (header, entry) = if self.wide { (64, 56) } else { (52, 32) };
        let mut at = (header + entry * (segments.len() + 1)) as u64;
        let mut out = b"\x7fELF".to_vec();
        out.extend([1 + u8::from(self.wide), 1 + u8::from(self.big_endian), 1]);
        out.resize(16, 0);
        out.extend(self.u16(4));
        out.extend(self.u16(self.elf_machine));
        out.extend(self.u32(1));
        for value in [0, header as u64, 0] {
            out.extend(self.long(value));
        }
        out.extend(self.u32(0));
        for value in [header, entry, segments.len() + 1, 0, 0, 0] {
            out.extend(self.u16(value as u16));
        }
        let mut put = |kind: u32, paddr: u64, size: u64| {
            out.extend(self.u32(kind));
            if self.wide {
                out.extend(self.u32(7));
            }
            for value in [at, 0, paddr, size, size] {
                out.extend(self.long(value));
            }
            if !self.wide {
                out.extend(self.u32(7));
            }
            out.extend(self.long(0));
            at += size;
        };
        put(4, 0, notes.len() as u64);
        segments.iter().for_each(|(paddr, bytes)| put(1, *paddr, bytes.len() as u64));
        out.extend(notes);
        segments.iter().for_each(|(_, bytes)| out.extend(bytes));
        out
    }

    /// A note with VMCOREINFO.
    pub fn vmcoreinfo(&self, text: &str) -> Vec<u8> {
        let mut out: Vec<u8> =
            [11, text.len() as u32, 0].into_iter().flat_map(|word| self.u32(word)).collect();
        out.extend(b"VMCOREINFO\0\0");
        out.extend(text.as_bytes());
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn header(&self, sub_blocks: u32, bitmap_blocks: u32, max_mapnr: u32) -> Vec<u8> {
        let mut out = b"KDUMP   ".to_vec();
        out.extend(self.u32(6));
        for name in ["Linux", "foreign", "6.1.0", "#1 SMP", self.machine, "(none)"] {
            let mut field = [0; 65];
            field[..name.len()].copy_from_slice(name.as_bytes());
            out.extend(field);
        }
        out.resize(out.len().next_multiple_of(if self.wide { 8 } else { 4 }), 0);
        out.extend(self.long(1_700_000_000));
        out.extend(self.long(0));
        for word in [0, self.page_size as u32, sub_blocks, bitmap_blocks, max_mapnr, 0, 0, 0, 0, 3] {
            out.extend(self.u32(word));
        }
        out
    }

    fn sub_header(&self, max_mapnr: u64, notes_at: u64, notes_size: u64) -> Vec<u8> {
        let mut out = self.long(0);
        out.extend(self.u32(31));
        out.extend(self.u32(0));
        for value in [0, 0] {
            out.extend(self.long(value));
        }
        let align = |out: &mut Vec<u8>| {
            if !self.packed {
                out.resize(out.len().next_multiple_of(8), 0);
            }
        };
        for (offset, size) in [(0, 0), (notes_at, notes_size), (0, 0)] {
            align(&mut out);
            out.extend(self.u64(offset));
            out.extend(self.long(size));
        }
        align(&mut out);
        for value in [0, 0, max_mapnr] {
            out.extend(self.u64(value));
        }
        out
    }

    fn u16(&self, value: u16) -> [u8; 2] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(&self, value: u32) -> [u8; 4] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u64(&self, value: u64) -> [u8; 8] {
        if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn long(&self, value: u64) -> Vec<u8> {
        if self.wide { self.u64(value).to_vec() } else { self.u32(value as u32).to_vec() }
    }
}
