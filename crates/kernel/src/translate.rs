//! Virtual to physical addresses.

use pagehaul_memory::View;

use crate::TranslateError;

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
pub struct Translator {}

impl Translator {
    /// Where the kernel's virtual address `vaddr` lies.
    pub fn translate(&self, _view: &mut dyn View, vaddr: u64) -> Result<Extent, TranslateError> {
        Err(TranslateError::NotCanonical { vaddr })
    }
}
