//! The order in which pages are written, kept in a nameless file while they are.

use std::path::Path;

use pagehaul_run::Progress;

use crate::CaptureError;
use crate::batch::{Bitmap, Pass};
use crate::select::{Chosen, Tally};
use crate::sink::{self, FileSink, Sink, WriteError};
use crate::stream::Stream;
use crate::worth::Worth;

/// Bytes per write.
const CHUNK: usize = 64 << 10;

/// One bitmap of kept pages per [`Worth`], while the scan fills them. They are as sparse as memory is.
pub(crate) struct Order {
    spool: FileSink,
    bitmaps: Vec<Stream>,
    /// Bytes of one bitmap.
    length: u64,
}

impl Order {
    /// Beside the output at `path`; each bitmap has `length` bytes.
    pub(crate) fn new(path: &Path, length: u64) -> Result<Self, CaptureError> {
        let bitmap = |index| Stream::new(index as u64 * length, CHUNK);
        Ok(Self { spool: sink::spool(path)?, bitmaps: (0..Worth::COUNT).map(bitmap).collect(), length })
    }

    /// Adds the next block.
    pub(crate) fn push(&mut self, chosen: &Chosen, progress: &Progress) -> Result<(), WriteError> {
        for ((index, bitmap), bits) in self.bitmaps.iter_mut().enumerate().zip(&chosen.by_worth) {
            bitmap.push_bits(bits, (index as u64 + 1) * self.length, &mut self.spool, progress)?;
        }
        Ok(())
    }

    /// The passes over the pages that `tally` counted.
    pub(crate) fn finish(mut self, tally: &Tally, progress: &Progress) -> Result<Vec<Pass>, CaptureError> {
        let failed =
            |path: &Path, source| CaptureError::Output { path: path.to_owned(), action: "write to", source };
        for bitmap in &mut self.bitmaps {
            bitmap
                .flush(&mut self.spool, progress)
                .map_err(|error| failed(self.spool.path(), error.error))?;
        }
        let end = Worth::COUNT as u64 * self.length;
        self.spool.set_size(end).map_err(|error| failed(self.spool.path(), error))?;
        let pass = |worth: Worth| Pass {
            worth: Some(worth),
            bitmap: Bitmap {
                file: self.spool.reader(),
                offset: worth as u64 * self.length,
                length: self.length,
            },
        };
        Ok(Worth::ALL.into_iter().filter(|&worth| tally.by_worth[worth as usize] > 0).map(pass).collect())
    }
}
