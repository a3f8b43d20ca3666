use std::io::Write;
use std::path::{Path, PathBuf};

use pagehaul_kdump::FlatWriter;

use super::{Sink, WriteError};

/// A flattened stream: every write becomes a record that says where it belongs.
pub(crate) struct FlatSink<W: Write> {
    writer: FlatWriter<W>,
    path: PathBuf,
    bytes: u64,
}

impl<W: Write> FlatSink<W> {
    pub(crate) fn new(out: W, path: &Path) -> Result<Self, WriteError> {
        Ok(Self { writer: FlatWriter::new(out)?, path: path.to_owned(), bytes: 0 })
    }

    /// Bytes of the dump written so far, records' heads not counted.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the end mark, without which readers take the stream for cut.
    pub(crate) fn finish(self) -> Result<W, WriteError> {
        let mut out = self.writer.finish()?;
        out.flush()?;
        Ok(out)
    }
}

impl<W: Write> Sink for FlatSink<W> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        self.writer.record(offset, bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn reserve(&mut self, _offset: u64, _length: u64) -> Result<(), WriteError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.writer.get_mut().flush().map_err(WriteError::from)
    }

    fn is_sparse(&self) -> bool {
        false
    }

    fn can_rewrite(&self) -> bool {
        false
    }

    fn path(&self) -> &Path {
        &self.path
    }
}
