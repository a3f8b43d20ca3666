//! Gathers consecutive bytes into large aligned writes.

use crate::aligned::AlignedBuffer;
use crate::error::WriteError;
use crate::output::Output;

static ZEROS: [u8; 4096] = [0; 4096];

/// Writes a range of the output from its start to its end, one chunk at a time.
pub struct ChunkWriter {
    buffer: AlignedBuffer,
    used: usize,
    /// File offset of the first byte in the buffer.
    offset: u64,
    /// Writes end at multiples of this, except the last.
    chunk: usize,
}

impl ChunkWriter {
    /// Starts at `offset` and writes `chunk` bytes at a time.
    pub fn new(offset: u64, chunk: usize) -> Self {
        Self { buffer: AlignedBuffer::new(chunk), used: 0, offset, chunk }
    }

    /// File offset of the next byte.
    pub fn end(&self) -> u64 {
        self.offset + self.used as u64
    }

    /// File offset up to which bytes are in the output.
    pub fn flushed(&self) -> u64 {
        self.offset
    }

    /// Appends `bytes`.
    pub fn push(&mut self, mut bytes: &[u8], output: &mut dyn Output) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let end = (self.offset + 1).next_multiple_of(self.chunk as u64);
            let room = (end - self.offset) as usize - self.used;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.bytes_mut()[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = later;
            if now.len() == room {
                self.flush(output)?;
            }
        }
        Ok(())
    }

    /// Appends `length` zeros, as a hole where the output is sparse.
    pub fn push_zeros(&mut self, length: u64, output: &mut dyn Output) -> Result<(), WriteError> {
        if output.is_sparse() {
            self.flush(output)?;
            self.offset += length;
            return Ok(());
        }
        let mut rest = length;
        while rest > 0 {
            let now = rest.min(ZEROS.len() as u64);
            self.push(&ZEROS[..now as usize], output)?;
            rest -= now;
        }
        Ok(())
    }

    /// Appends the bits of one block to a bitmap that ends at file offset `end`.
    pub fn push_bits(&mut self, bits: &[u64], end: u64, output: &mut dyn Output) -> Result<(), WriteError> {
        let length = (size_of_val(bits) as u64).min(end - self.end());
        if bits.iter().all(|&word| word == 0) {
            return self.push_zeros(length, output);
        }
        let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.push(&bytes[..length as usize], output)
    }

    /// Fills the range with zeros up to file offset `end`, and writes what is gathered.
    pub fn finish(&mut self, end: u64, output: &mut dyn Output) -> Result<(), WriteError> {
        self.push_zeros(end - self.end(), output)?;
        self.flush(output)
    }

    /// Writes what is gathered. After an error, the bytes that reached the output are no longer in the buffer.
    pub fn flush(&mut self, output: &mut dyn Output) -> Result<(), WriteError> {
        if self.used == 0 {
            return Ok(());
        }
        let result = output.write(self.offset, &self.buffer.bytes()[..self.used]);
        let written = result.as_ref().map_or_else(WriteError::written, |()| self.used);
        self.buffer.bytes_mut().copy_within(written..self.used, 0);
        self.used -= written;
        self.offset += written as u64;
        result
    }

    /// Drops what is gathered from file offset `end`.
    pub fn truncate(&mut self, end: u64) {
        self.used = self.used.min(end.saturating_sub(self.offset) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_disk::TestDisk;

    #[test]
    fn writes_end_on_chunk_boundaries() {
        let (mut disk, file) = TestDisk::new(u64::MAX);
        let mut writer = ChunkWriter::new(100, 64);
        let sample: Vec<u8> = (0..=255).collect();
        for piece in sample.chunks(7) {
            writer.push(piece, &mut disk).unwrap();
        }
        writer.flush(&mut disk).unwrap();
        let file = file.lock().unwrap();
        assert_eq!(file.writes, [(100, 28), (128, 64), (192, 64), (256, 64), (320, 36)]);
        assert_eq!(&file.bytes[100..], sample);
        assert_eq!((writer.end(), writer.flushed()), (356, 356));
    }

    #[test]
    fn bytes_that_a_full_disk_refuses_stay_in_the_buffer() {
        let (mut disk, _) = TestDisk::new(80);
        let mut writer = ChunkWriter::new(0, 64);
        let error = writer.push(&[7; 150], &mut disk).unwrap_err();
        assert!(error.is_full());
        assert_eq!((writer.flushed(), writer.end()), (80, 128));
        writer.truncate(90);
        assert_eq!(writer.end(), 90);
    }
}
