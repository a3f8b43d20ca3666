//! The records of a flattened stream.

use std::io::{self, Write};

use pagehaul_output::{Output, WriteError};
use pagehaul_run::BytesWritten;
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{FLAT_SIGNATURE, FlatHeader, FlatRecord};

/// A flattened stream: every write becomes a record with its offset. A record costs two writes to `W`, so make records
/// large, or wrap `W` in a buffer.
#[derive(Debug)]
pub struct FlattenedOutput<W> {
    out: W,
    bytes: u64,
    bytes_written: BytesWritten,
}

impl<W: Write> FlattenedOutput<W> {
    /// Writes the header block of the stream. Adds what is written later to `bytes_written`.
    ///
    /// Write each byte once. drgn and `makedumpfile -R` let a later record replace an earlier one, as the format says,
    /// but crash (8.0.2) keeps reading the earlier one. Bytes that are known only at the end, like the status word of a
    /// dump, are a record at the end, and the records before omit them.
    pub fn new(mut out: W, bytes_written: BytesWritten) -> io::Result<Self> {
        let mut header = FlatHeader::new_zeroed();
        header.signature = FLAT_SIGNATURE;
        header.kind = 1.into();
        header.version = 1.into();
        out.write_all(header.as_bytes())?;
        Ok(Self { out, bytes: 0, bytes_written })
    }

    /// Writes the record of `bytes` at `offset`. Writes nothing for no bytes: readers take a record of size 0 for
    /// damage.
    ///
    /// Fails with [`io::ErrorKind::InvalidInput`] if the record would end above 2^63.
    pub fn record(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(bytes.len() as u64).and_then(|end| i64::try_from(end).ok());
        if end.is_none() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a record cannot end above 2^63 bytes"));
        }
        let head = FlatRecord { offset: (offset as i64).into(), size: (bytes.len() as i64).into() };
        self.out.write_all(head.as_bytes())?;
        self.out.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        self.bytes_written.add(bytes.len() as u64);
        Ok(())
    }

    /// Bytes of all records, their headers excluded.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the terminator, flushes, and returns `W`. Readers take a stream without a terminator for truncated.
    pub fn finish(mut self) -> io::Result<W> {
        let end = FlatRecord { offset: FlatRecord::END.into(), size: FlatRecord::END.into() };
        self.out.write_all(end.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

impl<W: Write> Output for FlattenedOutput<W> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        Ok(self.record(offset, bytes)?)
    }

    fn reserve(&mut self, _offset: u64, _length: u64) -> Result<(), WriteError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.out.flush().map_err(WriteError::from)
    }

    fn is_sparse(&self) -> bool {
        false
    }

    fn can_rewrite(&self) -> bool {
        false
    }
}
