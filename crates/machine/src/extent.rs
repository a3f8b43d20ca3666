//! Pieces of physical memory that translations of addresses give.

/// Bytes that lie together in physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Physical address of the first.
    pub paddr: u64,
    /// Bytes from there to the end of the page, small or large, that maps them. At least 1.
    pub len: u64,
}
