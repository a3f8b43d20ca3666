//! The order in which pages are written, in an unnamed temporary file.

use std::path::Path;

use crate::batch::Pass;
use crate::error::CaptureError;
use crate::error::output_error;
use crate::priority::Priority;
use crate::selection::{BlockSelection, Tally};
use pagehaul_output::{ChunkWriter, OutputFile, StoredBitmap, WriteError};

/// Bytes per write.
const CHUNK: usize = 64 << 10;

/// One bitmap of kept pages per [`Priority`], filled during the scan. Unused ranges are holes.
pub(crate) struct PriorityBitmaps {
    file: OutputFile,
    bitmaps: Vec<ChunkWriter>,
    /// Bytes of one bitmap.
    length: u64,
}

impl PriorityBitmaps {
    /// Creates bitmaps of `length` bytes in the directory of `path`.
    pub(crate) fn new(path: &Path, length: u64) -> Result<Self, CaptureError> {
        let bitmap = |index| ChunkWriter::new(index as u64 * length, CHUNK);
        Ok(Self {
            file: OutputFile::temporary(path)?,
            bitmaps: (0..Priority::COUNT).map(bitmap).collect(),
            length,
        })
    }

    /// Appends the next block.
    pub(crate) fn push(&mut self, block: &BlockSelection) -> Result<(), WriteError> {
        for ((index, bitmap), bits) in self.bitmaps.iter_mut().enumerate().zip(&block.by_priority) {
            bitmap.push_bits(bits, (index as u64 + 1) * self.length, &mut self.file)?;
        }
        Ok(())
    }

    /// Returns the passes over the pages that `tally` counted.
    pub(crate) fn finish(mut self, tally: &Tally) -> Result<Vec<Pass>, CaptureError> {
        for bitmap in &mut self.bitmaps {
            bitmap.flush(&mut self.file).map_err(|error| output_error(self.file.path(), error))?;
        }
        let end = Priority::COUNT as u64 * self.length;
        self.file.set_size(end).map_err(|error| output_error(self.file.path(), error.into()))?;
        let pass = |priority: Priority| Pass {
            priority: Some(priority),
            bitmap: StoredBitmap::new(self.file.reader(), priority as u64 * self.length, self.length),
        };
        Ok(Priority::ALL
            .into_iter()
            .filter(|&priority| tally.by_priority[priority as usize] > 0)
            .map(pass)
            .collect())
    }
}
