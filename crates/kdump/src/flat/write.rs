use std::io::{self, Write};

use zerocopy::{FromZeros, IntoBytes};

use crate::format::{FLAT_SIGNATURE, FlatHeader, FlatRecord};

/// Writes a flattened file to anything that takes bytes in order. Each record costs two writes, so make them large, or
/// wrap `W` in a buffer.
#[derive(Debug)]
pub struct FlatWriter<W> {
    out: W,
}

impl<W: Write> FlatWriter<W> {
    /// Starts the stream by writing its header block.
    ///
    /// Write each byte once. drgn and `makedumpfile -R` let a later record replace an earlier one, as the format says,
    /// but crash (8.0.2) goes on reading the earlier one. What is only known at the end, like the status word of a
    /// dump, is a record of its own at the end, and is left out of those before.
    pub fn new(mut out: W) -> io::Result<Self> {
        let mut header = FlatHeader::new_zeroed();
        header.signature = FLAT_SIGNATURE;
        header.kind = 1.into();
        header.version = 1.into();
        out.write_all(header.as_bytes())?;
        Ok(Self { out })
    }

    /// Says that `bytes` belong at `offset`. Nothing is written for
    /// no bytes: readers take a record of size 0 for damage.
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
        self.out.write_all(bytes)
    }

    /// Closes the stream with its terminator, flushes it, and gives `W` back. A stream without a terminator is one
    /// that was cut off.
    pub fn finish(mut self) -> io::Result<W> {
        let end = FlatRecord { offset: FlatRecord::END.into(), size: FlatRecord::END.into() };
        self.out.write_all(end.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Where the stream goes.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.out
    }
}
