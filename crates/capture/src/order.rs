//! The order in which pages are written, kept in a nameless file while they are.

use std::path::Path;

use crate::CaptureError;
use crate::batch::Pass;
use crate::error::output_error;
use crate::select::{Chosen, Tally};
use crate::worth::Worth;
use pagehaul_output::{ChunkWriter, OutputFile, StoredBitmap, WriteError};

/// Bytes per write.
const CHUNK: usize = 64 << 10;

/// One bitmap of kept pages per [`Worth`], while the scan fills them. They are as sparse as memory is.
pub(crate) struct Order {
    spool: OutputFile,
    bitmaps: Vec<ChunkWriter>,
    /// Bytes of one bitmap.
    length: u64,
}

impl Order {
    /// Beside the output at `path`; each bitmap has `length` bytes.
    pub(crate) fn new(path: &Path, length: u64) -> Result<Self, CaptureError> {
        let bitmap = |index| ChunkWriter::new(index as u64 * length, CHUNK);
        Ok(Self {
            spool: OutputFile::temporary(path)?,
            bitmaps: (0..Worth::COUNT).map(bitmap).collect(),
            length,
        })
    }

    /// Adds the next block.
    pub(crate) fn push(&mut self, chosen: &Chosen) -> Result<(), WriteError> {
        for ((index, bitmap), bits) in self.bitmaps.iter_mut().enumerate().zip(&chosen.by_worth) {
            bitmap.push_bits(bits, (index as u64 + 1) * self.length, &mut self.spool)?;
        }
        Ok(())
    }

    /// The passes over the pages that `tally` counted.
    pub(crate) fn finish(mut self, tally: &Tally) -> Result<Vec<Pass>, CaptureError> {
        for bitmap in &mut self.bitmaps {
            bitmap.flush(&mut self.spool).map_err(|error| output_error(self.spool.path(), error))?;
        }
        let end = Worth::COUNT as u64 * self.length;
        self.spool.set_size(end).map_err(|error| output_error(self.spool.path(), error.into()))?;
        let pass = |worth: Worth| Pass {
            worth: Some(worth),
            bitmap: StoredBitmap::new(self.spool.reader(), worth as u64 * self.length, self.length),
        };
        Ok(Worth::ALL.into_iter().filter(|&worth| tally.by_worth[worth as usize] > 0).map(pass).collect())
    }
}
