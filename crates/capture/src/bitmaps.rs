//! The header and both bitmaps of a kdump file, written while the scan goes on.

use pagehaul_kdump::{Layout, STATUS_OFFSET};
use pagehaul_run::Progress;

use crate::sink::{Sink, WriteError};
use crate::stream::Stream;

/// Bytes per write.
pub(crate) const CHUNK: usize = 256 << 10;

/// Both bitmaps of one file, block by block.
pub(crate) struct Bitmaps {
    exists: Stream,
    kept: Stream,
    exists_end: u64,
    kept_end: u64,
}

impl Bitmaps {
    /// Writes `header`, which says that the dump is incomplete.
    pub(crate) fn begin(header: &[u8], layout: &Layout, sink: &mut dyn Sink) -> Result<Self, WriteError> {
        if sink.can_rewrite() && !sink.is_sparse() {
            // A disk may hold an older dump, complete as its header says: that has to be gone before anything else of it
            // is. The new header comes once nothing behind it can be taken for a part of the new dump.
            sink.write(0, &vec![0; header.len()])?;
            sink.sync()?;
        } else if sink.can_rewrite() {
            sink.write(0, header)?;
            sink.sync()?;
        } else {
            // The status word comes last, once it is known: crash does not open a stream in which a record overwrites
            // another.
            let status = STATUS_OFFSET as usize;
            sink.write(0, &header[..status])?;
            sink.write(STATUS_OFFSET + 4, &header[status + 4..])?;
        }
        let length = layout.bitmap_len();
        Ok(Self {
            exists: Stream::new(layout.bitmap1_offset(), CHUNK),
            kept: Stream::new(layout.bitmap2_offset(), CHUNK),
            exists_end: layout.bitmap1_offset() + length,
            kept_end: layout.bitmap2_offset() + length,
        })
    }

    /// Adds the next block: which pages exist, and which are kept.
    pub(crate) fn push(
        &mut self,
        exists: &[u64],
        kept: &[u64],
        sink: &mut dyn Sink,
        progress: &Progress,
    ) -> Result<(), WriteError> {
        self.exists.push_bits(exists, self.exists_end, sink, progress)?;
        self.kept.push_bits(kept, self.kept_end, sink, progress)
    }

    /// Fills up both: the last block of pages may end before the last block of bitmap does.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink, progress: &Progress) -> Result<(), WriteError> {
        self.exists.push_zeros(self.exists_end - self.exists.end(), sink, progress)?;
        self.exists.flush(sink, progress)?;
        self.kept.push_zeros(self.kept_end - self.kept.end(), sink, progress)?;
        self.kept.flush(sink, progress)
    }
}
