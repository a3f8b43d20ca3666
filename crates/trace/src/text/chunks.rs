//! Splits text into chunks of equal size that can be parsed independently: a line belongs to the chunk it
//! starts in.

use super::batch::Batch;
use crate::error::TraceError;
use crate::input::Input;

/// Chunk size in bytes: together with the parsed lines, a chunk fits into the L2 cache.
const CHUNK: usize = 256 << 10;
/// Longer lines are skipped.
const LONGEST: usize = 1 << 20;
/// Bytes read past the end of a chunk, for the rest of its last line.
const BEYOND: usize = 4 << 10;

/// A file split into chunks.
#[derive(Clone)]
pub(super) struct Chunks {
    input: Input,
    size: usize,
    longest: usize,
}

impl Chunks {
    pub(super) fn new(input: Input) -> Self {
        Self { input, size: CHUNK, longest: LONGEST }
    }

    /// Splits into chunks of `size` bytes with lines of up to `longest` bytes: for tests of chunk boundaries.
    #[cfg(test)]
    pub(super) fn of_size(input: Input, size: usize, longest: usize) -> Self {
        Self { input, size, longest }
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// Returns the length of the longest line that is not skipped.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the number of chunks.
    pub(super) fn count(&self) -> u64 {
        self.input.len().div_ceil(self.size as u64)
    }

    /// Returns the number of chunks that cover the first `bytes`.
    pub(super) fn of_first(&self, bytes: u64) -> u64 {
        bytes.min(self.input.len()).div_ceil(self.size as u64)
    }

    /// Fills a batch with the lines that start in chunk `number`.
    pub(super) fn fill(&self, number: u64, batch: &mut Batch) -> Result<(), TraceError> {
        let start = number.saturating_mul(self.size as u64);
        // The preceding byte shows whether a line starts at the chunk's first byte.
        let before = usize::from(start > 0);
        let from = start - before as u64;
        let own = before + self.size;
        let mut len = self.read(from, own + BEYOND, 0, &mut batch.bytes)?;
        (batch.begin, batch.end) = (0, 0);
        let piece = batch.bytes.get(..own.min(len)).unwrap_or_default();
        if before == 1 {
            match memchr::memchr(b'\n', piece) {
                Some(end) if end + 1 < piece.len() => batch.begin = end + 1,
                // No line starts in this chunk.
                _ => return Ok(()),
            }
        }
        // Finds the end of the line that contains the chunk's last byte.
        let mut searched = own - 1;
        let end = loop {
            let rest = batch.bytes.get(searched..len).unwrap_or_default();
            if let Some(end) = memchr::memchr(b'\n', rest) {
                break Some(searched + end + 1);
            }
            if len > own + self.longest {
                break None;
            }
            searched = searched.max(len);
            let count = self.read(from + len as u64, self.longest + 1, len, &mut batch.bytes)?;
            if count == 0 {
                break Some(len);
            }
            len += count;
        };
        batch.end = end.unwrap_or_else(|| {
            let lines = batch.bytes.get(batch.begin..own).unwrap_or_default();
            batch.begin + memchr::memrchr(b'\n', lines).map_or(0, |end| end + 1)
        });
        Ok(())
    }

    /// Reads up to `count` bytes at `offset` into `bytes` at `place`; `bytes` grows as needed. Returns the
    /// number of bytes read.
    fn read(
        &self,
        offset: u64,
        count: usize,
        place: usize,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, TraceError> {
        let rest = usize::try_from(self.input.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let end = place + count.min(rest);
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        self.input.read_at(offset, bytes.get_mut(place..end).unwrap_or_default())
    }
}
