//! Buffers placed in memory as direct writes want them.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// Zeroed bytes that start on a 4 KiB boundary.
pub(crate) struct Aligned(Vec<Block>);

impl Aligned {
    /// At least `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        Self(vec![Block::new_zeroed(); length.div_ceil(size_of::<Block>())])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}
