//! Offsets in the kernel's image, in bytes.

/// The top page table of pages of 4 KiB; the others are larger than what follows leaves room for.
pub(crate) const PGD: u64 = 0x10_0000;
pub(crate) const UTS: u64 = 0x10_1000;
pub(crate) const DATA: u64 = 0x10_2000;
pub(crate) const SECTIONS: u64 = 0x11_0000;
pub(crate) const LARGE_PGD: u64 = 0x18_0000;
