//! Page tables of 4 and 5 levels (Intel SDM volume 3, chapter 5), with an image near the end of the address space.

use std::ops::Range;

use super::START_KERNEL_MAP;
use super::phys_base::phys_base;
use crate::architecture::AddressLayout;
use crate::extent::Extent;
use crate::image::ImageSource;
use crate::page_size::PageSize;
use crate::page_tables::{Entry, Tables};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// The per-CPU mappings that are the same for every CPU (`CPU_ENTRY_AREA_PGD`; 92a0f81d8957, 4.15 and stable 4.14): 512
/// GiB, behind which other mappings follow.
const CPU_ENTRY_AREA: Range<u64> = 0xffff_fe00_0000_0000..0xffff_fe80_0000_0000;
/// Bytes of the image's mapping where `NUMBER(KERNEL_IMAGE_SIZE)` is missing (exported since 4.10): without KASLR it
/// is 512 MiB, and the modules' mapping follows.
const DEFAULT_IMAGE_SIZE: u64 = 512 << 20;

const PRESENT: u64 = 1;
/// Without PRESENT: a page that its process must not touch, because of PROT_NONE or NUMA balancing (`_PAGE_PROTNONE`). Entries of swap
/// and of migration have neither this bit nor LEAF.
const PROTECTED: u64 = 1 << 8;
const WRITABLE: u64 = 1 << 1;
const NO_EXECUTE: u64 = 1 << 63;
/// In an entry of level 2 or 3: maps a page itself.
const LEAF: u64 = 1 << 7;
/// Bits 12 to 51 hold the address; those above are software's, protection keys and NX.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// log2 of the entries in a table.
const INDEX_BITS: u32 = 9;

#[derive(Debug)]
pub(super) struct Layout {
    tables: Tables,
    /// Bits of an entry that are an address.
    address: u64,
    /// What the image was moved by; wraps, as it may be negative.
    phys_base: u64,
    image_size: u64,
}

pub(super) fn check(info: &VmcoreInfo) -> Result<(), InfoError> {
    match info.unsigned("PAGESIZE").filter(|size| *size != PageSize::KIB_4.bytes() as u64) {
        None => Ok(()),
        Some(size) => Err(InfoError::BadValue {
            key: "PAGESIZE".into(),
            value: size.to_string(),
            expected: "x86_64 has pages of 4096 bytes",
        }),
    }
}

impl Layout {
    pub(super) fn discover(info: &VmcoreInfo, source: &mut dyn ImageSource) -> Result<Self, InfoError> {
        let phys_base = phys_base(info, source)?;
        let top = info.required(top_table(info), "SYMBOL(init_top_pgt)", "the kernel's page tables")?;
        // Exported since 4.17, when the number of levels became a matter of the machine; 4 where it is missing.
        let levels = if info.number("pgtable_l5_enabled").unwrap_or(0) != 0 { 5 } else { 4 };
        // 5.1 ("x86/kdump: Export the SME mask to vmcoreinfo"): the bit that SME sets in the entries of encrypted pages.
        let sme_mask = info.number("sme_mask").unwrap_or(0) as u64;
        let image_size = match info.number("KERNEL_IMAGE_SIZE") {
            Some(size) => (size as u64).min(START_KERNEL_MAP.wrapping_neg()),
            None => DEFAULT_IMAGE_SIZE,
        };
        let tables = Tables {
            root: 0,
            levels,
            page_size: PageSize::KIB_4,
            top_bits: INDEX_BITS,
            // The lower half is the user's.
            first_kernel_entry: 256,
        };
        let mut layout = Self { tables, address: ADDRESS & !sme_mask, phys_base, image_size };
        let Some(root) = layout.in_image(top) else {
            return Err(InfoError::BadValue {
                key: "SYMBOL(init_top_pgt)".into(),
                value: format!("{top:x}"),
                expected: "the top page table is part of the kernel image, above ffffffff80000000",
            });
        };
        layout.tables.root = root.paddr & ADDRESS;
        Ok(layout)
    }
}

impl AddressLayout for Layout {
    fn tables(&self) -> Tables {
        self.tables
    }

    fn canonical(&self, vaddr: u64) -> Option<u64> {
        let bits = self.tables.page_size.shift() + u32::from(self.tables.levels) * INDEX_BITS;
        let sign = vaddr as i64 >> (bits - 1);
        (sign == 0 || sign == -1).then_some(vaddr)
    }

    fn decode(&self, entry: u64, level: u8, _vaddr: u64) -> Entry {
        let address = entry & self.address;
        let text = entry & (WRITABLE | NO_EXECUTE) == 0;
        match level {
            _ if entry & PRESENT == 0 => Entry::Nothing,
            1 => Entry::Page { paddr: address, text },
            2 | 3 if entry & LEAF != 0 => {
                // Bit 12 of a large leaf is PAT, the others below its size are reserved.
                let inside = (1 << self.tables.shift(level)) - 1;
                Entry::Page { paddr: address & !inside, text }
            }
            // Reserved there: the table holds something else.
            _ if entry & LEAF != 0 => Entry::Bad,
            _ => Entry::Table(address),
        }
    }

    fn decode_of_process(&self, entry: u64, level: u8, vaddr: u64) -> Entry {
        // While a large page is split, it has LEAF only (`pmd_present`).
        let is_page = match level {
            _ if entry & PRESENT != 0 => false,
            1 => entry & PROTECTED != 0,
            2 | 3 => entry & LEAF != 0,
            _ => false,
        };
        if !is_page {
            return self.decode(entry, level, vaddr);
        }
        // 6b28baca9b1f (4.19 and stable): the address is inverted, so that no speculation reads what is there. No machine has memory
        // at the end of the physical address space.
        let last_bits = self.address & 0xf << 48;
        let entry = if entry & last_bits == last_bits { entry ^ self.address } else { entry };
        self.decode(entry | PRESENT, level, vaddr)
    }

    fn in_image(&self, vaddr: u64) -> Option<Extent> {
        let offset = vaddr.checked_sub(START_KERNEL_MAP)?;
        // The mapping is made of 2 MiB pages.
        (offset < self.image_size).then(|| Extent {
            paddr: offset.wrapping_add(self.phys_base),
            len: (2 << 20) - (offset & 0x1f_ffff),
        })
    }

    fn phys_base(&self) -> u64 {
        self.phys_base
    }

    fn direct_map_bounds(&self) -> Range<u64> {
        0..START_KERNEL_MAP
    }

    fn default_section_bits(&self) -> (i64, i64) {
        // The same since 2.6, until they were exported.
        (27, if self.tables.levels == 5 { 52 } else { 46 })
    }

    fn maps_per_cpu_pages(&self, vaddr: u64) -> bool {
        CPU_ENTRY_AREA.contains(&vaddr)
    }
}

/// 65ade2f872b4 (4.13) renamed init_level4_pgt to init_top_pgt.
fn top_table(info: &VmcoreInfo) -> Option<u64> {
    info.symbol("init_top_pgt").or_else(|| info.symbol("init_level4_pgt"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sme_mask: u64) -> Layout {
        let page_size = PageSize::KIB_4;
        let tables = Tables { root: 0, levels: 4, page_size, top_bits: INDEX_BITS, first_kernel_entry: 256 };
        Layout { tables, address: ADDRESS & !sme_mask, phys_base: 0, image_size: 0 }
    }

    #[test]
    fn pages_that_a_process_must_not_touch_are_found() {
        let page = |entry: Entry| match entry {
            Entry::Page { paddr, .. } => Some(paddr),
            _ => None,
        };
        for mask in [0, 1 << 47, 1 << 51] {
            let layout = layout(mask);
            let of_process = |entry, level| page(layout.decode_of_process(entry, level, 0));
            assert_eq!(of_process(0x1234_5000 | 0x67, 1), Some(0x1234_5000));
            // Inverted, and as kernels had it before.
            assert_eq!(of_process(!0x1234_5000 & ADDRESS | 0x160, 1), Some(0x1234_5000), "{mask:#x}");
            assert_eq!(of_process(0x1234_5000 | 0x160, 1), Some(0x1234_5000));
            assert_eq!(of_process(!0x1220_0000 & ADDRESS | 0x1e0, 2), Some(0x1220_0000));
            // A large page that is being split.
            assert_eq!(of_process(!0x1220_0000 & ADDRESS | 0xe2, 2), Some(0x1220_0000));
            // Of swap and migration: offsets are inverted, too.
            for (entry, level) in
                [(0, 1), (0xf000_0000_0000_0e02, 1), (0xfbff_ffff_ffff_fe08, 1), (0xf0ff_ff00, 2)]
            {
                let entry = entry & !(PROTECTED | LEAF);
                assert_eq!(layout.decode_of_process(entry, level, 0), Entry::Nothing, "{entry:#x}");
            }
            assert_eq!(layout.decode_of_process(0x1234_5067, 2, 0), Entry::Table(0x1234_5000));
            // The kernel has no such pages.
            assert_eq!(layout.decode(!0x1234_5000 & ADDRESS | 0x160, 1, 0), Entry::Nothing);
        }
    }
}
