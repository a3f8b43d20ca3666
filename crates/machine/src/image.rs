//! Where the kernel image lies in physical memory, as far as a source knows.

use crate::units::{PhysAddr, VirtAddr};

/// A range of physical memory at addresses of the kernel image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelMapping {
    /// First virtual address.
    pub vaddr: VirtAddr,
    /// First physical address.
    pub paddr: PhysAddr,
    /// Bytes.
    pub size: u64,
}

impl KernelMapping {
    /// Returns a virtual address less its physical address, modulo 2^64.
    pub fn offset(&self) -> u64 {
        self.vaddr.get().wrapping_sub(self.paddr.get())
    }
}

/// The memory that an architecture searches where VMCOREINFO does not say where the image is.
pub trait ImageSource {
    /// Returns the location of the kernel image, if the source has it.
    fn kernel_mapping(&self) -> Option<KernelMapping>;

    /// Returns the first physical address after all memory.
    fn end(&self) -> u64;

    /// Fills `buf` from physical address `paddr`. Returns whether the source has all of it.
    fn read(&mut self, paddr: u64, buf: &mut [u8]) -> bool;
}
