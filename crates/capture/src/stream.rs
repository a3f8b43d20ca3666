//! Bytes that follow each other in the file, gathered into large aligned writes.

use crate::aligned::Aligned;
use crate::sink::{Sink, WriteError};
use pagehaul_run::Progress;

static ZEROS: [u8; 4096] = [0; 4096];

/// A stretch of the file that is written from its start to its end.
pub(crate) struct Stream {
    buffer: Aligned,
    used: usize,
    /// File offset of the first byte in the buffer.
    offset: u64,
    /// Writes end at multiples of this, but for the last.
    chunk: usize,
}

impl Stream {
    /// Starts at `offset`, and writes `chunk` bytes at a time.
    pub(crate) fn new(offset: u64, chunk: usize) -> Self {
        Self { buffer: Aligned::new(chunk), used: 0, offset, chunk }
    }

    /// File offset of the next byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.used as u64
    }

    /// File offset up to which bytes were given to the sink.
    pub(crate) fn flushed(&self) -> u64 {
        self.offset
    }

    /// Appends `bytes`.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn Sink,
        progress: &Progress,
    ) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let end = (self.offset + 1).next_multiple_of(self.chunk as u64);
            let room = (end - self.offset) as usize - self.used;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.buffer.bytes_mut()[self.used..self.used + now.len()].copy_from_slice(now);
            self.used += now.len();
            bytes = later;
            if now.len() == room {
                self.flush(sink, progress)?;
            }
        }
        Ok(())
    }

    /// Appends `length` zeros, as a hole where the sink has holes.
    pub(crate) fn push_zeros(
        &mut self,
        length: u64,
        sink: &mut dyn Sink,
        progress: &Progress,
    ) -> Result<(), WriteError> {
        if sink.is_sparse() {
            self.flush(sink, progress)?;
            self.offset += length;
            return Ok(());
        }
        let mut rest = length;
        while rest > 0 {
            let now = rest.min(ZEROS.len() as u64);
            self.push(&ZEROS[..now as usize], sink, progress)?;
            rest -= now;
        }
        Ok(())
    }

    /// Appends the bits of one block to a bitmap that ends at file offset `end`.
    pub(crate) fn push_bits(
        &mut self,
        bits: &[u64],
        end: u64,
        sink: &mut dyn Sink,
        progress: &Progress,
    ) -> Result<(), WriteError> {
        let length = (size_of_val(bits) as u64).min(end - self.end());
        if bits.iter().all(|&word| word == 0) {
            return self.push_zeros(length, sink, progress);
        }
        let bytes: Vec<u8> = bits.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.push(&bytes[..length as usize], sink, progress)
    }

    /// Writes what is gathered. After an error, what got there is no longer part of the buffer.
    pub(crate) fn flush(&mut self, sink: &mut dyn Sink, progress: &Progress) -> Result<(), WriteError> {
        if self.used == 0 {
            return Ok(());
        }
        let result = sink.write(self.offset, &self.buffer.bytes()[..self.used]);
        let written = result.as_ref().map_or_else(|error| error.written, |()| self.used);
        self.buffer.bytes_mut().copy_within(written..self.used, 0);
        self.used -= written;
        self.offset += written as u64;
        progress.wrote(written as u64);
        result
    }

    /// Forgets everything from file offset `end` on that was not written yet.
    pub(crate) fn cut(&mut self, end: u64) {
        self.used = self.used.min(end.saturating_sub(self.offset) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Disk;

    #[test]
    fn writes_end_on_chunk_boundaries() {
        let (mut disk, file) = Disk::new(u64::MAX);
        let progress = Progress::default();
        let mut stream = Stream::new(100, 64);
        let sample: Vec<u8> = (0..=255).collect();
        for piece in sample.chunks(7) {
            stream.push(piece, &mut disk, &progress).unwrap();
        }
        stream.flush(&mut disk, &progress).unwrap();
        let file = file.lock().unwrap();
        assert_eq!(file.writes, [(100, 28), (128, 64), (192, 64), (256, 64), (320, 36)]);
        assert_eq!(&file.bytes[100..], sample);
        assert_eq!((stream.end(), stream.flushed(), progress.written()), (356, 356, 256));
    }

    #[test]
    fn a_full_disk_leaves_what_did_not_fit() {
        let (mut disk, _) = Disk::new(80);
        let progress = Progress::default();
        let mut stream = Stream::new(0, 64);
        let error = stream.push(&[7; 150], &mut disk, &progress).unwrap_err();
        assert!(error.is_full());
        assert_eq!((stream.flushed(), stream.end()), (80, 128));
        stream.cut(90);
        assert_eq!(stream.end(), 90);
    }
}
