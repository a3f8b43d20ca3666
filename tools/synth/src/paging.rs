//! x86_64 page tables.

use crate::content::PAGE;
use crate::memory::Memory;

const PRESENT_RW: u64 = 0x63; // present, writable, accessed, dirty
const LARGE: u64 = 0x80;
const GLOBAL: u64 = 0x100;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Builder of page tables.
pub(crate) struct Tables<'a> {
    pub memory: &'a mut Memory,
    /// Physical address of the top table.
    pub top: u64,
    /// 4 or 5.
    pub levels: u32,
    /// Encryption bit of AMD SME, set in every entry.
    pub sme_mask: u64,
    /// Allocates a page and returns its physical address.
    pub allocate: &'a mut dyn FnMut() -> u64,
}

impl Tables<'_> {
    /// Maps `size` bytes (4 KiB, 2 MiB or 1 GiB) at `vaddr` to `paddr`.
    pub fn map(&mut self, vaddr: u64, paddr: u64, size: u64) {
        let leaf_level = match size {
            0x1000 => 1,
            0x20_0000 => 2,
            0x4000_0000 => 3,
            _ => panic!("no page of {size:#x} bytes on x86_64"),
        };
        assert!(
            vaddr.is_multiple_of(size) && paddr.is_multiple_of(size),
            "{vaddr:#x} -> {paddr:#x} is not aligned to {size:#x}"
        );
        let mut table = self.top;
        for level in (leaf_level + 1..=self.levels).rev() {
            let slot = table + slot(vaddr, level) * 8;
            let entry = self.memory.read_u64(slot);
            if entry == 0 {
                let next = (self.allocate)();
                self.memory.write_u64(slot, next | PRESENT_RW | self.sme_mask);
                table = next;
            } else {
                assert!(entry & LARGE == 0, "{vaddr:#x} is inside a larger page");
                table = entry & !self.sme_mask & ADDRESS;
            }
        }
        let large = if leaf_level > 1 { LARGE } else { 0 };
        let entry = paddr | PRESENT_RW | GLOBAL | NO_EXECUTE | large | self.sme_mask;
        self.memory.write_u64(table + slot(vaddr, leaf_level) * 8, entry);
    }
}

fn slot(vaddr: u64, level: u32) -> u64 {
    vaddr >> (12 + 9 * (level - 1)) & (PAGE as u64 / 8 - 1)
}
