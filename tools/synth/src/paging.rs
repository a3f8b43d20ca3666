//! Page tables of x86_64, arm64 and riscv64.

use crate::arm64::Arm64;
use crate::memory::Memory;

const PRESENT_RW: u64 = 0x63; // present, writable, accessed, dirty
const LARGE: u64 = 0x80;
const GLOBAL: u64 = 0x100;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// arm64: valid, and a table or a page.
const TABLE: u64 = 3;
/// arm64: valid.
const BLOCK: u64 = 1;
/// arm64: dirty bit modifier, accessed, write-back memory, no execution.
const DATA: u64 = 1 << 54 | 1 << 53 | 1 << 51 | 1 << 10;
/// arm64: shareable, where bits 9 and 8 are not part of the address.
const SHAREABLE: u64 = 3 << 8;
const CONTIGUOUS: u64 = 1 << 52;
/// riscv64: valid; as well readable, writable, global, accessed, dirty.
const RISCV64_VALID: u64 = 1;
const RISCV64_DATA: u64 = 0xe7;

/// Builder of page tables.
pub(crate) struct Tables<'a> {
    pub memory: &'a mut Memory,
    /// Physical address of the top table.
    pub top: u64,
    /// 4 or 5.
    pub levels: u32,
    /// Encryption bit of AMD SME, set in every entry.
    pub sme_mask: u64,
    /// The layout of arm64, which these tables have then.
    pub arm64: Option<Arm64>,
    /// Whether they are riscv64's.
    pub is_riscv64: bool,
    /// Allocates a page and returns its physical address.
    pub allocate: &'a mut dyn FnMut() -> u64,
}

impl Tables<'_> {
    /// log2 of the bytes in a page.
    fn page_shift(&self) -> u32 {
        self.arm64.map_or(12, |layout| layout.page_shift)
    }

    /// log2 of what an entry of `level` maps.
    fn shift(&self, level: u32) -> u32 {
        self.page_shift() + (level - 1) * (self.page_shift() - 3)
    }

    /// Sizes of pages, largest first: with large base pages, Linux makes blocks at level 2 only.
    pub fn sizes(&self) -> Vec<u64> {
        let largest = if self.page_shift() == 12 { 3 } else { 2 };
        (1..=largest).rev().map(|level| 1 << self.shift(level)).collect()
    }

    /// Maps `size` bytes, one of [`sizes`](Self::sizes), at `vaddr` to `paddr`.
    pub fn map(&mut self, vaddr: u64, paddr: u64, size: u64) {
        let levels = 1..=self.sizes().len() as u32;
        let Some(leaf_level) = levels.into_iter().find(|&level| 1 << self.shift(level) == size) else {
            panic!("no page of {size:#x} bytes")
        };
        assert!(
            vaddr.is_multiple_of(size) && paddr.is_multiple_of(size),
            "{vaddr:#x} -> {paddr:#x} is not aligned to {size:#x}"
        );
        let mut table = self.top;
        for level in (leaf_level + 1..=self.levels).rev() {
            let slot = table + self.slot(vaddr, level) * 8;
            let entry = self.memory.read_u64(slot);
            if entry == 0 {
                let next = (self.allocate)();
                let value = match self.arm64 {
                    Some(layout) => address(layout, next) | TABLE,
                    None if self.is_riscv64 => number(next) | RISCV64_VALID,
                    None => next | PRESENT_RW | self.sme_mask,
                };
                self.memory.write_u64(slot, value);
                table = next;
            } else {
                let larger = match self.arm64 {
                    Some(_) => entry & TABLE != TABLE,
                    None if self.is_riscv64 => entry & RISCV64_DATA != RISCV64_VALID,
                    None => entry & LARGE != 0,
                };
                assert!(!larger, "{vaddr:#x} is inside a larger page");
                // Tables of arm64 are below 2^48 here, at multiples of a page.
                table = if self.is_riscv64 {
                    entry >> 10 << 12
                } else {
                    entry & !self.sme_mask & ADDRESS & !((1 << self.page_shift()) - 1)
                };
            }
        }
        let entry = match self.arm64 {
            Some(layout) => {
                let kind = if leaf_level > 1 { BLOCK } else { TABLE };
                address(layout, paddr) | kind | DATA | if layout.contiguous { CONTIGUOUS } else { 0 }
            }
            None if self.is_riscv64 => number(paddr) | RISCV64_DATA,
            None => {
                let large = if leaf_level > 1 { LARGE } else { 0 };
                paddr | PRESENT_RW | GLOBAL | NO_EXECUTE | large | self.sme_mask
            }
        };
        self.memory.write_u64(table + self.slot(vaddr, leaf_level) * 8, entry);
    }

    fn slot(&self, vaddr: u64, level: u32) -> u64 {
        let entries = match self.arm64 {
            Some(layout) if level == self.levels => layout.top_entries(),
            _ => 1 << (self.page_shift() - 3),
        };
        vaddr >> self.shift(level) & (entries - 1)
    }
}

/// A physical address as an entry of riscv64 has it.
fn number(paddr: u64) -> u64 {
    paddr >> 12 << 10
}

/// A physical address as an entry has it, with shareability where there is room for it.
fn address(layout: Arm64, paddr: u64) -> u64 {
    if layout.is_lpa2() {
        assert!(paddr >> 52 == 0, "{paddr:#x} has more than 52 bits");
        return paddr & ((1 << 50) - 1) | (paddr >> 50) << 8;
    }
    if layout.page_shift == 16 {
        assert!(paddr >> 52 == 0, "{paddr:#x} has more than 52 bits");
        return paddr & ((1 << 48) - 1) | (paddr >> 48) << 12 | SHAREABLE;
    }
    assert!(paddr >> 48 == 0, "{paddr:#x} has more than 48 bits");
    paddr | SHAREABLE
}
