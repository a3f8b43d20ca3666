//! The header and both bitmaps, written while pages are still being classified.

use pagehaul_output::{ChunkWriter, Output, WriteError};

use crate::format::{KdumpSubHeader, Layout, STATUS_OFFSET};

/// Bytes per write.
const CHUNK: usize = 256 << 10;
const SUB_HEADER: usize = size_of::<KdumpSubHeader>();

/// Writes both bitmaps of a file, block by block.
pub struct BitmapWriter {
    bitmap1: ChunkWriter,
    bitmap2: ChunkWriter,
    bitmap1_end: u64,
    bitmap2_end: u64,
}

impl BitmapWriter {
    /// Writes `header`, which has the INCOMPLETE bit set.
    pub fn begin(header: &[u8], layout: &Layout, output: &mut dyn Output) -> Result<Self, WriteError> {
        Self::begin_with(header, layout, output, false)
    }

    /// As [`begin`](Self::begin), for a part of a split set: a stream has no sub header yet, whose range is not known.
    pub fn begin_part(header: &[u8], layout: &Layout, output: &mut dyn Output) -> Result<Self, WriteError> {
        Self::begin_with(header, layout, output, true)
    }

    fn begin_with(
        header: &[u8],
        layout: &Layout,
        output: &mut dyn Output,
        is_part: bool,
    ) -> Result<Self, WriteError> {
        if output.can_rewrite() && !output.is_sparse() {
            // A disk may hold an older dump whose header says that it is complete. That header goes first, and the new
            // one comes once nothing behind it can be taken for part of the new dump.
            output.write(0, &vec![0; header.len()])?;
            output.sync()?;
        } else if output.can_rewrite() {
            output.write(0, header)?;
            output.sync()?;
        } else {
            // The status word is the last record: crash does not open a stream in which a record overwrites another.
            let status = STATUS_OFFSET as usize;
            output.write(0, &header[..status])?;
            let sub_header = layout.sub_header_offset() as usize;
            let omitted = if is_part { sub_header..sub_header + SUB_HEADER } else { status + 4..status + 4 };
            output.write(STATUS_OFFSET + 4, &header[status + 4..omitted.start])?;
            output.write(omitted.end as u64, &header[omitted.end..])?;
        }
        let length = layout.bitmap_len();
        Ok(Self {
            bitmap1: ChunkWriter::new(layout.bitmap1_offset(), CHUNK),
            bitmap2: ChunkWriter::new(layout.bitmap2_offset(), CHUNK),
            bitmap1_end: layout.bitmap1_offset() + length,
            bitmap2_end: layout.bitmap2_offset() + length,
        })
    }

    /// Appends the next block: which pages exist, and which are dumped.
    pub fn push(&mut self, exist: &[u64], dumped: &[u64], output: &mut dyn Output) -> Result<(), WriteError> {
        self.bitmap1.push_bits(exist, self.bitmap1_end, output)?;
        self.bitmap2.push_bits(dumped, self.bitmap2_end, output)
    }

    /// Fills both up: the last block of pages may end before the last block of a bitmap.
    pub fn finish(&mut self, output: &mut dyn Output) -> Result<(), WriteError> {
        self.bitmap1.finish(self.bitmap1_end, output)?;
        self.bitmap2.finish(self.bitmap2_end, output)
    }
}
