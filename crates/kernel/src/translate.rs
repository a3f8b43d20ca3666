//! Virtual to physical addresses: the page tables of x86_64, of 4 and 5 levels (Intel SDM volume 3, chapter 5).

use pagehaul_physmem::{ReadError, View};

use crate::{KernelError, TranslateError, VmcoreInfo};

/// Where the kernel image is mapped (`__START_KERNEL_map`, the same since 2.6).
pub(crate) const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Bytes of the image's mapping where `NUMBER(KERNEL_IMAGE_SIZE)` is missing (exported since 4.10): without KASLR it
/// is 512 MiB, and the modules' mapping follows.
const DEFAULT_IMAGE_SIZE: u64 = 512 << 20;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const NO_EXECUTE: u64 = 1 << 63;
/// In an entry of level 2 or 3: maps a page itself.
const LEAF: u64 = 1 << 7;
/// Bits 12 to 51 hold the address; those above are software's, protection keys and NX.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// log2 of the entries in a table.
const INDEX_BITS: u32 = 9;

/// Bytes that lie together in physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Physical address of the first.
    pub paddr: u64,
    /// Bytes from there to the end of the page, 2 MiB page or 1 GiB page that maps them. At least 1.
    pub len: u64,
}

/// The kernel's own page tables.
#[derive(Debug, Clone)]
pub struct Translator {
    /// Physical address of the top table.
    root: u64,
    /// 4 or 5.
    levels: u8,
    /// Bits of an entry that are an address.
    address: u64,
    /// What the image was moved by; wraps, as it may be negative.
    phys_base: u64,
    image_size: u64,
}

/// What an entry of a table leads to.
pub(crate) enum Entry {
    /// A table of the next level at this physical address.
    Table(u64),
    /// A page of its level's size at this one.
    Page {
        paddr: u64,
        /// Whether it may be run, and not written to.
        text: bool,
    },
    /// Nothing, or nothing that makes sense.
    Nothing,
}

/// What a walk down to level 1 came to.
pub(crate) enum Step {
    /// A page is mapped.
    Leaf(Extent),
    /// The table of 4 KiB pages for this 2 MiB is at this physical address.
    Table(u64),
}

impl Translator {
    /// From the keys that describe page tables. `phys_base` is what the kernel image was moved by in physical memory,
    /// modulo 2^64.
    pub fn new(info: &VmcoreInfo, phys_base: u64) -> Result<Self, KernelError> {
        // 65ade2f872b4 (4.13) renamed init_level4_pgt to init_top_pgt.
        let top = info.symbol("init_top_pgt").or_else(|| info.symbol("init_level4_pgt"));
        let top = info.required(top, "SYMBOL(init_top_pgt)", "the kernel's page tables")?;
        // Exported since 4.17, when the number of levels became a matter of the machine; 4 where it is missing.
        let levels = if info.number("pgtable_l5_enabled").unwrap_or(0) != 0 { 5 } else { 4 };
        // 5.1 ("x86/kdump: Export the SME mask to vmcoreinfo"): the bit that SME sets in the entries of encrypted pages.
        let sme_mask = info.number("sme_mask").unwrap_or(0) as u64;
        let image_size = match info.number("KERNEL_IMAGE_SIZE") {
            Some(size) => (size as u64).min(START_KERNEL_MAP.wrapping_neg()),
            None => DEFAULT_IMAGE_SIZE,
        };
        let mut tables = Self { root: 0, levels, address: ADDRESS & !sme_mask, phys_base, image_size };
        let Some(root) = tables.in_image(top) else {
            return Err(KernelError::BadValue {
                key: "SYMBOL(init_top_pgt)".into(),
                value: format!("{top:x}"),
                expected: "the top page table is part of the kernel image, above ffffffff80000000",
            });
        };
        tables.root = root.paddr & ADDRESS;
        Ok(tables)
    }

    /// What the kernel image was moved by in physical memory, modulo 2^64.
    pub fn phys_base(&self) -> u64 {
        self.phys_base
    }

    /// Levels of page tables: 4 or 5.
    pub fn levels(&self) -> u8 {
        self.levels
    }

    /// Where the kernel's virtual address `vaddr` lies. The image itself is one piece of physical memory and needs no
    /// page table, which helps where these were destroyed.
    pub fn translate(&self, view: &mut dyn View, vaddr: u64) -> Result<Extent, TranslateError> {
        if let Some(extent) = self.in_image(vaddr) {
            return Ok(extent);
        }
        match self.walk(view, vaddr)? {
            Step::Leaf(extent) => Ok(extent),
            Step::Table(table) => {
                let entry_at = table + ((vaddr >> 12) & 511) * 8;
                let entry = read_entry(view, vaddr, 1, entry_at)?;
                self.page_of(entry, vaddr).ok_or(TranslateError::NotMapped {
                    vaddr,
                    level: 1,
                    entry_at,
                    entry,
                })
            }
        }
    }

    /// Fills `buf` from the kernel's virtual address `vaddr` on.
    pub fn read(&self, view: &mut dyn View, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let mut done = 0;
        while done < buf.len() {
            let at = vaddr.checked_add(done as u64).ok_or(TranslateError::NotCanonical { vaddr })?;
            let extent = self.translate(view, at)?;
            let len = extent.len.min((buf.len() - done) as u64) as usize;
            let piece = buf.get_mut(done..done + len).unwrap_or_default();
            view.read(extent.paddr, piece).map_err(|source| TranslateError::Contents {
                vaddr: at,
                paddr: extent.paddr,
                source,
            })?;
            done += len;
        }
        Ok(())
    }

    /// The little-endian word at the kernel's virtual address `vaddr`.
    pub fn read_u64(&self, view: &mut dyn View, vaddr: u64) -> Result<u64, TranslateError> {
        let mut word = [0; 8];
        self.read(view, vaddr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Physical address of the top table.
    pub(crate) fn root(&self) -> u64 {
        self.root
    }

    /// What `entry` of a table of `level` says.
    pub(crate) fn entry(&self, entry: u64, level: u8) -> Entry {
        let address = entry & self.address;
        let text = entry & (WRITABLE | NO_EXECUTE) == 0;
        match level {
            _ if entry & PRESENT == 0 => Entry::Nothing,
            1 => Entry::Page { paddr: address, text },
            2 | 3 if entry & LEAF != 0 => {
                let inside = (1 << (12 + u32::from(level - 1) * INDEX_BITS)) - 1;
                Entry::Page { paddr: address & !inside, text }
            }
            _ if entry & LEAF != 0 => Entry::Nothing,
            _ => Entry::Table(address),
        }
    }

    /// The image's own linear mapping.
    fn in_image(&self, vaddr: u64) -> Option<Extent> {
        let offset = vaddr.checked_sub(START_KERNEL_MAP)?;
        // The mapping is made of 2 MiB pages.
        (offset < self.image_size).then(|| Extent {
            paddr: offset.wrapping_add(self.phys_base),
            len: (2 << 20) - (offset & 0x1f_ffff),
        })
    }

    /// Down to a leaf of level 2 or 3, or to the table of level 1.
    pub(crate) fn walk(&self, view: &mut dyn View, vaddr: u64) -> Result<Step, TranslateError> {
        let bits = 12 + u32::from(self.levels) * INDEX_BITS;
        let sign = vaddr as i64 >> (bits - 1);
        if sign != 0 && sign != -1 {
            return Err(TranslateError::NotCanonical { vaddr });
        }
        let mut table = self.root;
        let mut level = self.levels;
        while level > 1 {
            let shift = 12 + u32::from(level - 1) * INDEX_BITS;
            let entry_at = table + ((vaddr >> shift) & 511) * 8;
            let entry = read_entry(view, vaddr, level, entry_at)?;
            if entry & PRESENT == 0 {
                return Err(TranslateError::NotMapped { vaddr, level, entry_at, entry });
            }
            let address = entry & self.address;
            if entry & LEAF != 0 {
                if level > 3 {
                    // Reserved there: the table holds something else.
                    return Err(TranslateError::BadEntry { vaddr, level, entry_at, entry });
                }
                let inside = (1 << shift) - 1;
                // Bit 12 of a large leaf is PAT, the others below `shift` reserved.
                let paddr = address & !inside | vaddr & inside;
                return Ok(Step::Leaf(Extent { paddr, len: inside + 1 - (vaddr & inside) }));
            }
            table = address;
            level -= 1;
        }
        Ok(Step::Table(table))
    }

    /// The 4 KiB page an entry of level 1 maps.
    pub(crate) fn page_of(&self, entry: u64, vaddr: u64) -> Option<Extent> {
        let inside = vaddr & 0xfff;
        (entry & PRESENT != 0)
            .then_some(Extent { paddr: entry & self.address | inside, len: 0x1000 - inside })
    }
}

fn read_entry(view: &mut dyn View, vaddr: u64, level: u8, entry_at: u64) -> Result<u64, TranslateError> {
    let unreadable = |source: ReadError| TranslateError::Unreadable { vaddr, level, entry_at, source };
    view.read_u64(entry_at).map_err(unreadable)
}
