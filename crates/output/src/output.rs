//! Where a dump goes.

use std::io;

use crate::error::WriteError;
use crate::write_meter::WriteCosts;

/// A destination for a dump: bytes are written at any offset.
pub trait Output {
    /// Writes `bytes` at `offset`.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError>;

    /// Allocates `length` bytes from `offset`, where the system can. They read as zeros.
    fn reserve(&mut self, offset: u64, length: u64) -> Result<(), WriteError>;

    /// Makes the output end at `size`, even if its last bytes are a hole. Does nothing where there are no holes.
    fn set_size(&mut self, _size: u64) -> io::Result<()> {
        Ok(())
    }

    /// Returns where the output ends; of a stream, the bytes of its records.
    fn end(&self) -> u64;

    /// Blocks until everything written so far is on the disk.
    fn sync(&mut self) -> Result<(), WriteError>;

    /// Returns whether bytes that are never written read as zeros.
    fn is_sparse(&self) -> bool;

    /// Returns whether bytes can be written twice.
    fn can_rewrite(&self) -> bool;

    /// Returns what writing costs at present, where it is measured.
    fn costs(&self) -> WriteCosts {
        WriteCosts::default()
    }
}
