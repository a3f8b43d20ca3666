//! Buffers aligned for direct I/O.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; 4096]);

/// Bytes that start on a 4 KiB boundary.
pub struct AlignedBuffer(Vec<Block>);

impl AlignedBuffer {
    /// Allocates at least `length` zeroed bytes.
    pub fn new(length: usize) -> Self {
        Self(vec![Block::new_zeroed(); length.div_ceil(size_of::<Block>())])
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The bytes, for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}
