//! The address space of arm64 kernels with pages of 4, 16 and 64 KiB (`arch/arm64/include/asm/memory.h`).

use crate::Era;

/// Widths of addresses, and placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm64 {
    /// log2 of the bytes in a page: 12, 14 or 16.
    pub page_shift: u32,
    /// `VA_BITS`, as configured: 39, 42, 47, 48 or 52.
    pub va_bits: u32,
    /// Bits that the machine has: `va_bits`, or of 52 only 48, 47 with pages of 16 KiB.
    pub used_bits: u32,
    /// Marks every block and page of the linear map as part of a contiguous group.
    pub contiguous: bool,
}

/// Where QEMU's `virt` machine has RAM.
pub(crate) const RAM_START: u64 = 0x4000_0000;

impl Arm64 {
    /// 39 bits: 3 levels.
    pub const V39: Self = Self { page_shift: 12, va_bits: 39, used_bits: 39, contiguous: true };
    /// 48 bits: 4 levels.
    pub const V48: Self = Self { page_shift: 12, va_bits: 48, used_bits: 48, contiguous: false };
    /// 52 bits (LPA2): 5 levels, as Debian's kernels since 6.12.
    pub const V52: Self = Self { page_shift: 12, va_bits: 52, used_bits: 52, contiguous: false };
    /// The same kernel on a machine with 48 bits: 4 levels.
    pub const V52_ON_48: Self = Self { page_shift: 12, va_bits: 52, used_bits: 48, contiguous: false };

    /// Pages of 16 KiB, 47 bits: 3 levels.
    pub const K16_V47: Self = Self { page_shift: 14, va_bits: 47, used_bits: 47, contiguous: true };
    /// Pages of 16 KiB, 52 bits (LPA2): 4 levels, the top table with 32 entries.
    pub const K16_V52: Self = Self { page_shift: 14, va_bits: 52, used_bits: 52, contiguous: false };
    /// The same kernel on a machine with 47 bits: 3 levels.
    pub const K16_V52_ON_47: Self = Self { page_shift: 14, va_bits: 52, used_bits: 47, contiguous: false };
    /// Pages of 64 KiB, 42 bits: 2 levels.
    pub const K64_V42: Self = Self { page_shift: 16, va_bits: 42, used_bits: 42, contiguous: false };
    /// Pages of 64 KiB, 48 bits: 3 levels.
    pub const K64_V48: Self = Self { page_shift: 16, va_bits: 48, used_bits: 48, contiguous: true };
    /// Pages of 64 KiB, 52 bits (LVA, LPA): 3 levels.
    pub const K64_V52: Self = Self { page_shift: 16, va_bits: 52, used_bits: 52, contiguous: false };
    /// The same kernel on a machine with 48 bits, whose tables stay laid out for 52.
    pub const K64_V52_ON_48: Self = Self { page_shift: 16, va_bits: 52, used_bits: 48, contiguous: false };
    /// Every layout with pages of 16 and 64 KiB.
    pub const LARGE_PAGES: [Self; 7] = [
        Self::K16_V47,
        Self::K16_V52,
        Self::K16_V52_ON_47,
        Self::K64_V42,
        Self::K64_V48,
        Self::K64_V52,
        Self::K64_V52_ON_48,
    ];

    /// Bits that the page tables translate: with pages of 64 KiB those configured (c812026c54cf, 5.4).
    fn table_bits(self) -> u32 {
        if self.page_shift == 16 { self.va_bits } else { self.used_bits }
    }

    pub(crate) fn levels(self) -> u32 {
        (self.table_bits() - self.page_shift).div_ceil(self.page_shift - 3)
    }

    /// Entries of the top table.
    pub(crate) fn top_entries(self) -> u64 {
        1 << (self.table_bits() - self.page_shift - (self.levels() - 1) * (self.page_shift - 3))
    }

    /// Whether entries have 52-bit addresses as LPA2 has them.
    pub(crate) fn is_lpa2(self) -> bool {
        self.page_shift < 16 && self.used_bits == 52
    }

    /// `VA_BITS_MIN`.
    fn smallest(self) -> u32 {
        self.va_bits.min(if self.page_shift == 14 && self.va_bits == 52 { 47 } else { 48 })
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

    pub(crate) fn vmemmap_start(self, era: Era) -> u64 {
        let shift = self.page_shift;
        if era < Era::V6_1 {
            // VMEMMAP_SIZE: struct pages of the linear map up to _PAGE_END(VA_BITS_MIN).
            let pages = ((1_u64 << self.va_bits) - (1 << (self.smallest() - 1))) >> shift;
            (pages * 64).wrapping_neg().wrapping_sub(2 << 20)
        } else if era < Era::V6_9 {
            (1_u64 << (self.va_bits - shift + 6)).wrapping_neg()
        } else {
            // As in 6.12.
            let pages = ((1_u64 << self.va_bits) - (1 << (self.smallest() - 1))) >> shift;
            (1_u64 << 30).wrapping_neg().wrapping_sub(pages * 64)
        }
    }

    /// Address of the struct page of PFN 0, where the array would begin.
    pub(crate) fn vmemmap(self, era: Era, shift: u64, struct_page: u64) -> u64 {
        let room = RAM_START.wrapping_sub(self.phys_offset(shift)) & ((1 << self.va_bits) - 1);
        let first = self.vmemmap_start(era).wrapping_add((room >> self.page_shift) * struct_page);
        first.wrapping_sub((RAM_START >> self.page_shift) * struct_page)
    }

    /// Virtual address of the image without KASLR: behind the modules.
    pub(crate) fn text(self, era: Era) -> u64 {
        let modules = if era < Era::V6_9 { 128 << 20 } else { 2 << 30 };
        (u64::MAX << (self.smallest() - 1)) + modules
    }
}
