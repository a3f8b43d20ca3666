//! Bitmaps that live in a file while a dump is written.

use std::io;
use std::path::Path;
use std::sync::Arc;

use pagehaul_physmem::file::ReadAt;

/// A bitmap in a file: bit *n* is PFN *n*.
#[derive(Clone)]
pub struct StoredBitmap {
    file: Arc<dyn ReadAt>,
    offset: u64,
    length: u64,
}

impl StoredBitmap {
    /// Describes the `length` bytes at `offset` of `file`.
    pub fn new(file: Arc<dyn ReadAt>, offset: u64, length: u64) -> Self {
        Self { file, offset, length }
    }

    /// Reads the bits from PFN `first` (a multiple of 64) into `bits`. Bits past the end are clear.
    pub fn load(&self, first: u64, bits: &mut [u64]) -> io::Result<()> {
        let start = first / 8;
        let present = self.length.saturating_sub(start).min(size_of_val(bits) as u64) as usize;
        bits.fill(0);
        let bytes = zerocopy::IntoBytes::as_mut_bytes(bits);
        self.file.read_exact_at(self.offset + start, &mut bytes[..present])?;
        bits.iter_mut().for_each(|word| *word = u64::from_le(*word));
        Ok(())
    }

    /// Returns the path of the file, for messages.
    pub fn path(&self) -> &Path {
        self.file.path()
    }
}
