//! Page tables of Sv39, Sv48 and Sv57 (RISC-V privileged architecture, "Virtual-Memory System"), 3 to 5 levels of 512
//! entries. The image is mapped at the end of the address space (2bfc6cd81bd1, 5.13), the modules below it, and the linear map below
//! both. Kernels export all keys since 6.5 (fbe7d19d2b7f). Before 6.4 (3335068f8721), `phys_ram_base` is where the image starts.

use std::ops::Range;

use crate::architecture::AddressLayout;
use crate::extent::Extent;
use crate::page_size::PageSize;
use crate::page_tables::{Entry, Tables};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

const VALID: u64 = 1;
/// Without VALID: a page that its process must not touch (`_PAGE_PROT_NONE`), whose entry has LEAF bits, too. Entries of swap have
/// none of these.
const PROTECTED: u64 = 1 << 5;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
/// Readable, writable, executable: one of them makes an entry a leaf, at any level.
const LEAF: u64 = 7 << 1;
/// The physical page number starts here. Bits 54 to 63 are attributes: software's (Svrsw60t59b), memory types (Svpbmt), and
/// Svnapot's bit 63.
const NUMBER: u64 = 10;
const NUMBER_BITS: u32 = 44;
/// Svnapot: the page is one of 16 that lie together. The low 4 bits of the number hold the size; Linux has 64 KiB only.
const CONTIGUOUS: u64 = 1 << 63;
const CONTIGUOUS_PAGES: u64 = 16;
/// log2 of the entries in a table.
const INDEX_BITS: u32 = 9;
/// log2 of the bytes in a page.
const PAGE_SHIFT: u32 = PageSize::KIB_4.shift();
/// Pages that map the image have 2 MiB.
const IMAGE_PAGE: u64 = 2 << 20;
const PURPOSE: &str = "the kernel's page tables";

#[derive(Debug)]
pub(super) struct Layout {
    tables: Tables,
    /// Start of the image's addresses.
    image: u64,
    /// Virtual address less physical address of the image.
    image_offset: u64,
    /// Physical address that the linear map starts with.
    ram_base: u64,
    /// Addresses that the linear map has room for.
    linear_map: Range<u64>,
}

impl Layout {
    pub(super) fn discover(info: &VmcoreInfo) -> Result<Self, InfoError> {
        let number = |name| info.number(name).map(|number| number as u64);
        let top = info.required(info.symbol("swapper_pg_dir"), "SYMBOL(swapper_pg_dir)", PURPOSE)?;
        let va_bits = info.required(info.number("VA_BITS"), "NUMBER(VA_BITS)", PURPOSE)?;
        let ram_base = info.required(number("phys_ram_base"), "NUMBER(phys_ram_base)", "the linear map")?;
        let linear_map = info.required(number("PAGE_OFFSET"), "NUMBER(PAGE_OFFSET)", "the linear map")?;
        let image =
            info.required(number("KERNEL_LINK_ADDR"), "NUMBER(KERNEL_LINK_ADDR)", "the kernel image")?;
        let image_offset =
            info.required(number("va_kernel_pa_offset"), "NUMBER(va_kernel_pa_offset)", "the kernel image")?;
        let levels = match va_bits {
            39 => 3,
            48 => 4,
            57 => 5,
            _ => {
                return Err(InfoError::BadValue {
                    key: "NUMBER(VA_BITS)".into(),
                    value: va_bits.to_string(),
                    expected: "riscv64 kernels have 39, 48 or 57 bits of addresses",
                });
            }
        };
        let modules = number("MODULES_VADDR").unwrap_or(image);
        Ok(Self {
            tables: Tables {
                root: top.wrapping_sub(image_offset) & ((1 << (NUMBER_BITS + PAGE_SHIFT)) - 1),
                levels,
                page_size: PageSize::KIB_4,
                top_bits: INDEX_BITS,
                // The lower half is the user's.
                first_kernel_entry: 256,
            },
            image,
            image_offset,
            ram_base,
            linear_map: linear_map..modules.min(image).max(linear_map),
        })
    }
}

impl AddressLayout for Layout {
    fn tables(&self) -> Tables {
        self.tables
    }

    fn canonical(&self, vaddr: u64) -> Option<u64> {
        let bits = PAGE_SHIFT + u32::from(self.tables.levels) * INDEX_BITS;
        let sign = vaddr as i64 >> (bits - 1);
        (sign == 0 || sign == -1).then_some(vaddr)
    }

    fn decode(&self, entry: u64, level: u8, vaddr: u64) -> Entry {
        let number = entry >> NUMBER & ((1 << NUMBER_BITS) - 1);
        let text = entry & (WRITE | EXECUTE) == EXECUTE;
        match (entry & LEAF, level) {
            _ if entry & VALID == 0 => Entry::Nothing,
            // A page that can be written and not read is reserved.
            (WRITE, _) | (0, 1) => Entry::Bad,
            (0, _) => Entry::Table(number << PAGE_SHIFT),
            (_, 1) if entry & CONTIGUOUS != 0 => {
                let inside = CONTIGUOUS_PAGES - 1;
                let number = number & !inside | vaddr >> PAGE_SHIFT & inside;
                Entry::Page { paddr: number << PAGE_SHIFT, text }
            }
            (..) => {
                // The low bits of a large page's number are reserved.
                let pages = 1 << (self.tables.shift(level) - PAGE_SHIFT);
                Entry::Page { paddr: (number & !(pages - 1)) << PAGE_SHIFT, text }
            }
        }
    }

    fn decode_of_process(&self, entry: u64, level: u8, vaddr: u64) -> Entry {
        let is_page = entry & VALID == 0 && entry & PROTECTED != 0 && entry & LEAF != 0;
        self.decode(if is_page { entry | VALID } else { entry }, level, vaddr)
    }

    fn in_image(&self, vaddr: u64) -> Option<Extent> {
        (vaddr >= self.image).then(|| Extent {
            paddr: vaddr.wrapping_sub(self.image_offset),
            len: IMAGE_PAGE - (vaddr & (IMAGE_PAGE - 1)),
        })
    }

    /// crash and makedumpfile take it for the start of the linear map.
    fn phys_base(&self) -> u64 {
        self.ram_base
    }

    fn direct_map(&self) -> Option<u64> {
        Some(self.linear_map.start.wrapping_sub(self.ram_base))
    }

    fn direct_map_bounds(&self) -> Range<u64> {
        self.linear_map.clone()
    }

    fn default_section_bits(&self) -> (i64, i64) {
        // The keys are older than the others that it needs.
        (27, 56)
    }
}
