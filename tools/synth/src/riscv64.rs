//! The address space of riscv64 kernels (`arch/riscv/include/asm/pgtable.h`).

/// Width of addresses, of Sv39, Sv48 or Sv57.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Riscv64 {
    /// 39 bits: 3 levels.
    Sv39,
    /// 48 bits: 4 levels.
    Sv48,
    /// 57 bits: 5 levels.
    Sv57,
}

/// Where QEMU's `virt` machine has RAM.
pub(crate) const RAM_START: u64 = 0x8000_0000;
/// `KERNEL_LINK_ADDR`, where the image starts.
pub(crate) const LINK_ADDRESS: u64 = 0xffff_ffff_8000_0000;

impl Riscv64 {
    /// Every width.
    pub const ALL: [Self; 3] = [Self::Sv39, Self::Sv48, Self::Sv57];

    pub fn va_bits(self) -> u32 {
        match self {
            Self::Sv39 => 39,
            Self::Sv48 => 48,
            Self::Sv57 => 57,
        }
    }

    pub(crate) fn levels(self) -> u32 {
        (self.va_bits() - 12) / 9
    }

    /// `PAGE_OFFSET`.
    pub fn linear_map(self) -> u64 {
        match self {
            Self::Sv39 => 0xffff_ffd6_0000_0000,
            Self::Sv48 => 0xffff_af80_0000_0000,
            Self::Sv57 => 0xff60_0000_0000_0000,
        }
    }

    /// Virtual address of physical address 0, modulo 2^64.
    pub(crate) fn page_offset(self) -> u64 {
        self.linear_map() - RAM_START
    }

    /// `VMALLOC_START`: vmalloc space takes a quarter of the kernel's half, and ends where the linear map starts.
    pub(crate) fn vmalloc_start(self) -> u64 {
        self.linear_map() - (1 << (self.va_bits() - 3))
    }

    /// Address of the struct page of PFN 0. Since 6.13 the array starts there.
    pub(crate) fn vmemmap(self) -> u64 {
        // VMEMMAP_SHIFT: a struct page of 64 bytes for each page of half of the kernel's addresses.
        self.vmalloc_start() - (1 << (self.va_bits() - 12 - 1 + 6))
    }
}
