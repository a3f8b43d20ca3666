//! Page tables of 2 to 5 levels with pages of 4, 16 and 64 KiB (Arm ARM, D8; `arch/arm64/include/asm/pgtable-hwdef.h`).
//! The image lies anywhere in the vmalloc area; the linear map is the lower half of the kernel's address space since
//! 14c127c957c1 (5.4), and was the upper half before.

use crate::architecture::AddressLayout;
use crate::extent::Extent;
use crate::page_size::PageSize;
use crate::page_tables::{Entry, Tables};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

const VALID: u64 = 1;
/// With VALID: a table, or at level 1 a page. Without it a block.
const TABLE: u64 = 1 << 1;
/// In entries of processes: the address space is one of many.
const NOT_GLOBAL: u64 = 1 << 11;
/// Execute-never for processes.
const UXN: u64 = 1 << 54;
const READ_ONLY: u64 = 1 << 7;
/// Privileged execute-never.
const PXN: u64 = 1 << 53;
/// Chooses between the kernel's addresses and those of processes.
const KERNEL: u64 = 1 << 55;
/// Physical addresses have 52 bits at most.
const MAX_BITS: u32 = 52;
/// No image is larger: exported symbols beyond are no part of it.
const MAX_IMAGE: u64 = 1 << 30;

/// How an entry holds an address of more than 48 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Bits 47 and below.
    Plain,
    /// Bits 15 to 12 are bits 51 to 48 of the address: pages of 64 KiB, whose addresses never use these bits.
    Lpa,
    /// Bits 49 and below, and bits 9 and 8 are bits 51 and 50 of the address: tables for 52 bits and pages of 4 and 16 KiB
    /// (352b0395b505, 6.9). Elsewhere bits 9 and 8 are shareability.
    Lpa2,
}

#[derive(Debug)]
pub(super) struct Layout {
    tables: Tables,
    format: Format,
    /// Bits of a virtual address that tables translate; those above are ones.
    width: u32,
    /// Largest level whose entries may be blocks.
    most_block_level: u8,
    /// Virtual address less physical address of the image.
    image_offset: u64,
    /// Addresses that are certainly the image's: between two of its symbols.
    image: std::ops::Range<u64>,
    /// Physical address of the first byte that the linear map has room for, modulo 2^64.
    phys_offset: u64,
    direct_map: u64,
    end_of_direct_map: u64,
    /// Bits of the kernel's addresses that hold a signature (ARM64_PTR_AUTH_KERNEL); 0 without pointer authentication.
    signature: u64,
}

pub(super) fn check(info: &VmcoreInfo) -> Result<(), InfoError> {
    page_size(info).map(drop)
}

impl Layout {
    pub(super) fn discover(info: &VmcoreInfo) -> Result<Self, InfoError> {
        const PURPOSE: &str = "the kernel's page tables";
        let page_size = page_size(info)?;
        let page_shift = page_size.shift();
        let top = info.required(info.symbol("swapper_pg_dir"), "SYMBOL(swapper_pg_dir)", PURPOSE)?;
        let image_offset =
            info.required(info.number("kimage_voffset"), "NUMBER(kimage_voffset)", PURPOSE)? as u64;
        let va_bits = info.required(info.number("VA_BITS"), "NUMBER(VA_BITS)", PURPOSE)?;
        let phys_offset =
            info.required(info.number("PHYS_OFFSET"), "NUMBER(PHYS_OFFSET)", "the linear map")? as u64;
        let va_bits = bits("NUMBER(VA_BITS)", va_bits, va_bits, page_shift)?;
        // bbdbc11804ff (5.9): what the machine uses of them. Before, the two differed with pages of 64 KiB only.
        let used = match info.number("TCR_EL1_T1SZ") {
            Some(unused) => bits("NUMBER(TCR_EL1_T1SZ)", unused, 64i64.saturating_sub(unused), page_shift)?,
            None => va_bits,
        };
        // With pages of 64 KiB the top table stays laid out for 52 bits where the machine has 48 (c812026c54cf, 5.4).
        let width = if page_shift == 16 { va_bits } else { used };
        let index_bits = page_shift - 3;
        let levels = (width - page_shift).div_ceil(index_bits);
        let format = match page_shift {
            16 => Format::Lpa,
            _ if width == MAX_BITS => Format::Lpa2,
            _ => Format::Plain,
        };
        let tables = Tables {
            root: top.wrapping_sub(image_offset) & ((1 << MAX_BITS) - 1),
            levels: levels as u8,
            page_size,
            top_bits: width - page_shift - (levels - 1) * index_bits,
            // TTBR1 points to tables of the upper half only.
            first_kernel_entry: 0,
        };
        // VA_BITS_MIN: what every machine has of 52 bits.
        let smallest = va_bits.min(if page_shift == 14 && va_bits == MAX_BITS { 47 } else { 48 });
        let middle = ones_from(smallest - 1);
        let stext = info.symbol("_stext").unwrap_or(top);
        let (start, end_of_direct_map) =
            if stext > middle { (ones_from(va_bits), middle) } else { (ones_from(va_bits - 1), u64::MAX) };
        Ok(Self {
            tables,
            format,
            width,
            // Pages of 1 GiB; with larger base pages, Linux makes blocks at level 2 only.
            most_block_level: if page_shift == 12 { 3 } else { 2 },
            image_offset,
            image: image(info, stext.min(top)),
            phys_offset,
            direct_map: start.wrapping_sub(phys_offset),
            end_of_direct_map,
            // Exported by 5.10 and later.
            signature: info.number("KERNELPACMASK").unwrap_or(0) as u64,
        })
    }

    /// The address in an entry that maps as much as one of `level`. Bit 52 says that neighbouring entries lie together: a
    /// hint, since each has its own address.
    #[inline]
    fn address(&self, entry: u64, level: u8) -> u64 {
        let below = |end: u32| entry & ((1 << end) - (1 << self.tables.shift(level)));
        match self.format {
            Format::Plain => below(48),
            Format::Lpa => below(48) | (entry >> 12 & 0xf) << 48,
            Format::Lpa2 => below(50) | (entry >> 8 & 3) << 50,
        }
    }
}

impl AddressLayout for Layout {
    fn tables(&self) -> Tables {
        self.tables
    }

    fn canonical(&self, vaddr: u64) -> Option<u64> {
        // Bits 63 to 56 may be a tag; bit 55 chooses the tables.
        let untagged = (vaddr << 8) as i64 >> 8;
        (untagged >> self.width == -1).then_some(untagged as u64)
    }

    /// As `xpac` does it: the bits of a signature become ones in an address of the kernel.
    fn return_address(&self, word: u64) -> u64 {
        if word & KERNEL == 0 { word } else { word | self.signature }
    }

    fn decode(&self, entry: u64, level: u8, _vaddr: u64) -> Entry {
        if entry & VALID == 0 {
            return Entry::Nothing;
        }
        let text = entry & (READ_ONLY | PXN) == READ_ONLY;
        match entry & TABLE != 0 {
            true if level == 1 => Entry::Page { paddr: self.address(entry, level), text },
            true => Entry::Table(self.address(entry, 1)),
            false if level == 1 || level > self.most_block_level => Entry::Bad,
            false => Entry::Page { paddr: self.address(entry, level), text },
        }
    }

    /// `PAGE_NONE` of `arch/arm64/include/asm/pgtable-prot.h`. The bit that marks such an entry moved (6.11), but a page keeps what
    /// distinguishes it from a table, and a block is of a process, read-only, and never executable. Entries of swap and of migration
    /// have the lowest two bits clear, and offsets that do not reach these.
    fn decode_of_process(&self, entry: u64, level: u8, vaddr: u64) -> Entry {
        const BLOCK: u64 = NOT_GLOBAL | READ_ONLY | PXN | UXN;
        let is_page = match level {
            _ if entry & VALID != 0 => false,
            1 => entry & TABLE != 0,
            level if level <= self.most_block_level => entry & TABLE == 0 && entry & BLOCK == BLOCK,
            _ => false,
        };
        self.decode(if is_page { entry | VALID } else { entry }, level, vaddr)
    }

    fn in_image(&self, vaddr: u64) -> Option<Extent> {
        self.image
            .contains(&vaddr)
            .then(|| Extent { paddr: vaddr.wrapping_sub(self.image_offset), len: self.image.end - vaddr })
    }

    /// crash takes it for the start of the linear map.
    fn phys_base(&self) -> u64 {
        self.phys_offset
    }

    fn direct_map(&self) -> Option<u64> {
        Some(self.direct_map)
    }

    fn direct_map_bounds(&self) -> std::ops::Range<u64> {
        0..self.end_of_direct_map
    }

    fn default_section_bits(&self) -> (i64, i64) {
        // f0b13ee23241 (5.12) made sections smaller; such kernels export the key.
        (30, 48)
    }
}

/// PAGESIZE.
fn page_size(info: &VmcoreInfo) -> Result<PageSize, InfoError> {
    let bytes = info.required(info.unsigned("PAGESIZE"), "PAGESIZE", "the kernel's page tables")?;
    let of_arm64 = |size: &PageSize| matches!(size.bytes(), 4096 | 16384 | 65536);
    PageSize::new(bytes).filter(of_arm64).ok_or_else(|| InfoError::BadValue {
        key: "PAGESIZE".into(),
        value: bytes.to_string(),
        expected: "arm64 has pages of 4096, 16384 or 65536 bytes",
    })
}

/// Returns the number of bits in a virtual address, told by `key`.
fn bits(key: &str, value: i64, bits: i64, page_shift: u32) -> Result<u32, InfoError> {
    // VA_BITS of 36 (16 KiB) is the smallest that can be configured.
    u32::try_from(bits).ok().filter(|bits| (36..=MAX_BITS).contains(bits) && *bits > page_shift).ok_or_else(
        || InfoError::BadValue {
            key: key.into(),
            value: value.to_string(),
            expected: "kernel addresses have 36 to 52 bits",
        },
    )
}

/// −2^bits.
fn ones_from(bits: u32) -> u64 {
    u64::MAX << bits
}

/// From `start` to the last symbol of the image: VMCOREINFO does not say where it ends.
fn image(info: &VmcoreInfo, start: u64) -> std::ops::Range<u64> {
    let symbols = info.iter().filter_map(|(key, _)| key.strip_prefix("SYMBOL(")?.strip_suffix(')'));
    // The only two that are values of pointers.
    let symbols = symbols.filter(|name| !["vmemmap", "mem_section"].contains(name));
    let inside = |at: &u64| (start..start.saturating_add(MAX_IMAGE)).contains(at);
    let last = symbols.filter_map(|name| info.symbol(name)).filter(inside).max();
    start..last.map_or(start, |last| last.saturating_add(8))
}
