//! Text in chunks of equal size, each of which can be read without the others: a line belongs to the piece it begins in.

use super::batch::Batch;
use crate::{Input, TraceError};

/// Bytes of a piece: with what is made of it, it fits into a CPU's second cache.
const CHUNK: usize = 256 << 10;
/// A line that is longer is left out.
const LONGEST: usize = 1 << 20;
/// Bytes read beyond a piece, for the end of its last line.
const BEYOND: usize = 4 << 10;

/// A file cut into chunks.
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

    /// Chunks of `size` bytes, and lines of up to `longest`: for tests of borders.
    #[cfg(test)]
    pub(super) fn of_size(input: Input, size: usize, longest: usize) -> Self {
        Self { input, size, longest }
    }

    pub(super) fn input(&self) -> &Input {
        &self.input
    }

    /// Bytes of the longest line that counts.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    /// How many chunks there are.
    pub(super) fn count(&self) -> u64 {
        self.input.len().div_ceil(self.size as u64)
    }

    /// How many of them the first bytes take.
    pub(super) fn of_first(&self, bytes: u64) -> u64 {
        bytes.min(self.input.len()).div_ceil(self.size as u64)
    }

    /// Fills a batch with the lines that begin in a piece.
    pub(super) fn fill(&self, number: u64, batch: &mut Batch) -> Result<(), TraceError> {
        let start = number.saturating_mul(self.size as u64);
        // The byte before tells whether a line begins with the piece's first byte.
        let before = usize::from(start > 0);
        let from = start - before as u64;
        let own = before + self.size;
        let mut len = self.read(from, own + BEYOND, 0, &mut batch.bytes)?;
        (batch.begin, batch.end) = (0, 0);
        let piece = batch.bytes.get(..own.min(len)).unwrap_or_default();
        if before == 1 {
            match memchr::memchr(b'\n', piece) {
                Some(end) if end + 1 < piece.len() => batch.begin = end + 1,
                // No line begins in this piece.
                _ => return Ok(()),
            }
        }
        // The end of the line that holds the piece's last byte, which may be that byte.
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

    /// Reads up to `count` bytes at `offset` to a place in `bytes`, which grows as needed; how many there were.
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
