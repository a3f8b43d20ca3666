//! The order in which pages are written, kept in a nameless file while they are.

use std::path::Path;

use crate::CaptureError;
use crate::batch::Pass;
use crate::error::output_error;
use crate::priority::Priority;
use crate::selection::{BlockSelection, Tally};
use pagehaul_output::{ChunkWriter, OutputFile, StoredBitmap, WriteError};

/// Bytes per write.
const CHUNK: usize = 64 << 10;

/// One bitmap of kept pages per [`Priority`], while the scan fills them. They are as sparse as memory is.
pub(crate) struct PriorityBitmaps {
    spool: OutputFile,
    bitmaps: Vec<ChunkWriter>,
    /// Bytes of one bitmap.
    length: u64,
}

impl PriorityBitmaps {
    /// Beside the output at `path`; each bitmap has `length` bytes.
    pub(crate) fn new(path: &Path, length: u64) -> Result<Self, CaptureError> {
        let bitmap = |index| ChunkWriter::new(index as u64 * length, CHUNK);
        Ok(Self {
            spool: OutputFile::temporary(path)?,
            bitmaps: (0..Priority::COUNT).map(bitmap).collect(),
            length,
        })
    }

    /// Adds the next block.
    pub(crate) fn push(&mut self, chosen: &BlockSelection) -> Result<(), WriteError> {
        for ((index, bitmap), bits) in self.bitmaps.iter_mut().enumerate().zip(&chosen.by_priority) {
            bitmap.push_bits(bits, (index as u64 + 1) * self.length, &mut self.spool)?;
        }
        Ok(())
    }

    /// The passes over the pages that `tally` counted.
    pub(crate) fn finish(mut self, tally: &Tally) -> Result<Vec<Pass>, CaptureError> {
        for bitmap in &mut self.bitmaps {
            bitmap.flush(&mut self.spool).map_err(|error| output_error(self.spool.path(), error))?;
        }
        let end = Priority::COUNT as u64 * self.length;
        self.spool.set_size(end).map_err(|error| output_error(self.spool.path(), error.into()))?;
        let pass = |priority: Priority| Pass {
            priority: Some(priority),
            bitmap: StoredBitmap::new(self.spool.reader(), priority as u64 * self.length, self.length),
        };
        Ok(Priority::ALL
            .into_iter()
            .filter(|&priority| tally.by_priority[priority as usize] > 0)
            .map(pass)
            .collect())
    }
}
