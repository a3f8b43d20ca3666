//! RAM, kernel placement and memory model of a machine.

use std::collections::BTreeMap;

use crate::Era;
use crate::arm64::{self, Arm64};
use crate::image_offset;
use crate::riscv64::{self, Riscv64};

/// Layout of `mem_section`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// SPARSEMEM_EXTREME: roots of one page each, allocated where needed, as in every distribution.
    Extreme,
    /// Without SPARSEMEM_EXTREME: one array of all sections in the kernel's data.
    Static,
}

/// Place of struct pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memmap {
    /// One virtual array, mapped by 2 MiB pages.
    VmemmapLarge,
    /// One virtual array, mapped by 4 KiB pages scattered in memory.
    VmemmapSmall,
    /// An array per section in the direct map: no vmemmap.
    PerSection,
}

/// A machine without the contents of its pages.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub era: Era,
    pub arm64: Option<Arm64>,
    pub riscv64: Option<Riscv64>,
    pub ram: Vec<(u64, u64)>,
    pub five_level: bool,
    pub kaslr: Option<u64>,
    pub load: u64,
    pub sme_mask: u64,
    pub sparse: Sparse,
    pub memmap: Memmap,
    pub section_bits: u32,
    pub max_physmem_bits: Option<u32>,
    pub section_entry: u64,
    pub struct_page: u64,
    pub cpus: usize,
    pub stale_sections: Vec<u64>,
    pub info_edits: Vec<(String, Option<String>)>,
    /// Offsets in the kernel's image, and what is there.
    pub image_contents: Vec<(u64, Vec<u8>)>,
    /// Words of memory sections that say what is kept of their pages.
    pub page_ext: BTreeMap<u64, u64>,
    /// Bits in the flags of struct pages, besides those of their kind.
    pub page_flags: BTreeMap<u64, u64>,
}

/// Offset of the kernel's text from `__START_KERNEL_map` without KASLR.
const TEXT_OFFSET: u64 = 0x100_0000;
pub(crate) const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;

impl Setup {
    pub fn new(era: Era) -> Self {
        Self {
            era,
            arm64: None,
            riscv64: None,
            ram: Vec::new(),
            five_level: false,
            kaslr: None,
            load: TEXT_OFFSET,
            sme_mask: 0,
            sparse: Sparse::Extreme,
            memmap: Memmap::VmemmapLarge,
            section_bits: 27,
            max_physmem_bits: None,
            section_entry: 16,
            struct_page: 64,
            cpus: 2,
            stale_sections: Vec::new(),
            info_edits: Vec::new(),
            image_contents: Vec::new(),
            page_ext: BTreeMap::new(),
            page_flags: BTreeMap::new(),
        }
    }

    /// Returns RAM as `start..end` in bytes. Default: the low 640 KiB less a fractional page, 100 MiB, a
    /// hole, and 8 MiB with a fractional page at either end.
    pub fn ram(&self) -> Vec<(u64, u64)> {
        let starts = [self.arm64.map(|_| arm64::RAM_START), self.riscv64.map(|_| riscv64::RAM_START)];
        if let Some(start) = starts.into_iter().flatten().next().filter(|_| self.ram.is_empty()) {
            return vec![(start, start + 0x640_0000), (start + 0x900_0000, start + 0x980_0000)];
        }
        if self.ram.is_empty() {
            return vec![(0x1000, 0x9_fc00), (0x10_0000, 0x640_0000), (0x900_0200, 0x980_0400)];
        }
        let mut ram = self.ram.clone();
        ram.sort_unstable();
        assert!(ram.windows(2).all(|pair| pair[0].1 <= pair[1].0), "RAM ranges overlap: {ram:x?}");
        ram
    }

    pub fn levels(&self) -> u32 {
        if let Some(arm64) = self.arm64 {
            return arm64.levels();
        }
        if let Some(riscv64) = self.riscv64 {
            return riscv64.levels();
        }
        if self.five_level { 5 } else { 4 }
    }

    /// Virtual address of the kernel's first byte.
    pub fn text(&self) -> u64 {
        let start = match (self.arm64, self.riscv64) {
            (Some(arm64), _) => arm64.text(self.era),
            (_, Some(_)) => riscv64::LINK_ADDRESS,
            _ => START_KERNEL_MAP + TEXT_OFFSET,
        };
        start + self.kaslr.unwrap_or(0)
    }

    /// What KASLR moves the linear map of arm64 by.
    fn shift(&self) -> u64 {
        self.kaslr.map_or(0, |offset| (offset >> 21) << 30)
    }

    /// Returns `phys_base` as dump headers have it, modulo 2^64: the physical address of `__START_KERNEL_map`, on arm64
    /// PHYS_OFFSET, on riscv64 the start of RAM.
    pub fn phys_base(&self) -> i64 {
        if let Some(arm64) = self.arm64 {
            return arm64.phys_offset(self.shift()) as i64;
        }
        if self.riscv64.is_some() {
            return riscv64::RAM_START as i64;
        }
        self.load.wrapping_sub(self.text() - START_KERNEL_MAP) as i64
    }

    /// Virtual address of physical address 0: the start of x86_64's direct map.
    pub fn page_offset(&self) -> u64 {
        if let Some(arm64) = self.arm64 {
            return arm64.page_offset(self.shift());
        }
        if let Some(riscv64) = self.riscv64 {
            return riscv64.page_offset();
        }
        // d52888aa2753 (4.20) moved it to make room for the LDT.
        let base = match (self.five_level, self.era < Era::V5_10) {
            (false, true) => 0xffff_8800_0000_0000,
            (false, false) => 0xffff_8880_0000_0000,
            (true, true) => 0xff10_0000_0000_0000,
            (true, false) => 0xff11_0000_0000_0000,
        };
        // CONFIG_RANDOMIZE_MEMORY (4.8) moves it by whole GiB.
        base + self.kaslr.map_or(0, |offset| (offset >> 21) << 30)
    }

    /// Address of the struct page of PFN 0: the start of x86_64's virtual memmap.
    pub fn vmemmap(&self) -> u64 {
        if let Some(arm64) = self.arm64 {
            return arm64.vmemmap(self.era, self.shift(), self.struct_page);
        }
        if let Some(riscv64) = self.riscv64 {
            return riscv64.vmemmap();
        }
        let base: u64 = if self.five_level { 0xffd4_0000_0000_0000 } else { 0xffff_ea00_0000_0000 };
        base + self.kaslr.map_or(0, |offset| (offset >> 22) << 30)
    }

    pub fn max_physmem_bits(&self) -> u32 {
        // SPARSEMEM_STATIC keeps every section in the kernel's image, so small by default.
        if let Some(arm64) = self.arm64 {
            return self.max_physmem_bits.unwrap_or(arm64.used_bits.max(48));
        }
        if self.riscv64.is_some() {
            // 56, whose roots take 32 MiB, does not fit.
            return self.max_physmem_bits.unwrap_or(46);
        }
        self.max_physmem_bits.unwrap_or(match (self.sparse, self.five_level) {
            (Sparse::Static, _) => 36,
            (Sparse::Extreme, false) => 46,
            (Sparse::Extreme, true) => 52,
        })
    }

    /// log2 of the bytes in a page.
    pub fn page_shift(&self) -> u32 {
        self.arm64.map_or(12, |arm64| arm64.page_shift)
    }

    pub fn page_bytes(&self) -> u64 {
        1 << self.page_shift()
    }

    /// Offset of the top page table in the image.
    pub fn pgd(&self) -> u64 {
        if self.page_shift() == 12 { image_offset::PGD } else { image_offset::LARGE_PGD }
    }

    pub fn section_pages(&self) -> u64 {
        1 << (self.section_bits - self.page_shift())
    }

    pub fn sections_per_root(&self) -> u64 {
        match self.sparse {
            Sparse::Extreme => self.page_bytes() / self.section_entry,
            Sparse::Static => 1,
        }
    }

    pub fn section_roots(&self) -> u64 {
        (1_u64 << (self.max_physmem_bits() - self.section_bits)).div_ceil(self.sections_per_root())
    }

    /// Returns whether `mem_section` is a pointer to the array of roots (83e3c48729d9, 4.15).
    pub fn roots_behind_pointer(&self) -> bool {
        self.sparse == Sparse::Extreme
            && self.era >= Era::V4_15
            && self.arm64.is_none()
            && self.riscv64.is_none()
    }

    /// `uname -m`.
    pub fn machine(&self) -> &'static str {
        match (self.arm64, self.riscv64) {
            (Some(_), _) => "aarch64",
            (_, Some(_)) => "riscv64",
            _ => "x86_64",
        }
    }

    /// Sections that hold RAM, ascending.
    pub fn sections(&self) -> Vec<u64> {
        let mut sections: Vec<u64> = self
            .ram()
            .iter()
            .flat_map(|&(start, end)| start >> self.section_bits..=(end - 1) >> self.section_bits)
            .collect();
        sections.dedup();
        sections
    }

    /// Returns the upper flag bits of a page after boot: zone and last CPU.
    pub fn flag_fields(&self, pfn: u64) -> u64 {
        if pfn < 1 << 20 { 0x000f_ffff_c000_0000 } else { 0x0017_ffff_c000_0000 }
    }

    /// Returns a struct page as after boot: referenced once, not mapped, not in a list.
    pub fn pristine(&self) -> Vec<u8> {
        let mut page = vec![0; self.struct_page as usize];
        let fields = self.era.fields();
        let mut put =
            |at: u64, bytes: &[u8]| page[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        put(0, &self.flag_fields(0).to_le_bytes());
        put(fields.mapcount, &u32::MAX.to_le_bytes());
        put(fields.refcount, &1_u32.to_le_bytes());
        page
    }
}
