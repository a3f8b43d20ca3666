//! The address space of arm64 kernels with pages of 4 KiB (`arch/arm64/include/asm/memory.h`).

use crate::Era;

/// Widths of addresses, and placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm64 {
    /// `VA_BITS`, as configured: 39, 48 or 52.
    pub va_bits: u32,
    /// Bits that the machine has: `va_bits`, or 48 of 52.
    pub used_bits: u32,
    /// Marks every block and page of the linear map as part of a contiguous group.
    pub contiguous: bool,
}

/// Where QEMU's `virt` machine has RAM.
pub(crate) const RAM_START: u64 = 0x4000_0000;

impl Arm64 {
    /// 39 bits: 3 levels.
    pub const V39: Self = Self { va_bits: 39, used_bits: 39, contiguous: true };
    /// 48 bits: 4 levels.
    pub const V48: Self = Self { va_bits: 48, used_bits: 48, contiguous: false };
    /// 52 bits (LPA2): 5 levels, as Debian's kernels since 6.12.
    pub const V52: Self = Self { va_bits: 52, used_bits: 52, contiguous: false };
    /// The same kernel on a machine with 48 bits: 4 levels.
    pub const V52_ON_48: Self = Self { va_bits: 52, used_bits: 48, contiguous: false };

    pub(crate) fn levels(self) -> u32 {
        (self.used_bits - 12).div_ceil(9)
    }

    /// `PHYS_OFFSET`, modulo 2^64. Without KASLR the start of RAM; a kernel for 52 bits on a machine with fewer has the
    /// linear map's start where the machine cannot reach (`memstart_addr`, arm64_memblock_init).
    pub(crate) fn phys_offset(self, shift: u64) -> u64 {
        let unreachable = (1_u64 << self.va_bits).wrapping_sub(1 << self.used_bits);
        RAM_START.wrapping_sub(unreachable).wrapping_sub(shift)
    }

    /// Virtual address of physical address 0, modulo 2^64.
    pub(crate) fn page_offset(self, shift: u64) -> u64 {
        (u64::MAX << self.va_bits).wrapping_sub(self.phys_offset(shift))
    }

    /// `VMEMMAP_START`.
    pub(crate) fn vmemmap_start(self, era: Era) -> u64 {
        let smallest = self.va_bits.min(48);
        if era < Era::V6_1 {
            (1_u64 << (self.va_bits - 1 - 12 + 6)).wrapping_neg().wrapping_sub(2 << 20)
        } else if era < Era::V6_9 {
            (1_u64 << (self.va_bits - 12 + 6)).wrapping_neg()
        } else {
            // As in 6.12.
            let pages = ((1_u64 << self.va_bits) - (1 << (smallest - 1))) >> 12;
            (1_u64 << 30).wrapping_neg().wrapping_sub(pages * 64)
        }
    }

    /// Address of the struct page of PFN 0, where the array would begin.
    pub(crate) fn vmemmap(self, era: Era, shift: u64, struct_page: u64) -> u64 {
        let room = RAM_START.wrapping_sub(self.phys_offset(shift)) & ((1 << self.va_bits) - 1);
        let first = self.vmemmap_start(era).wrapping_add((room >> 12) * struct_page);
        first.wrapping_sub((RAM_START >> 12) * struct_page)
    }

    /// Virtual address of the image without KASLR: behind the modules.
    pub(crate) fn text(self, era: Era) -> u64 {
        let modules = if era < Era::V6_9 { 128 << 20 } else { 2 << 30 };
        (u64::MAX << (self.va_bits.min(48) - 1)) + modules
    }
}
