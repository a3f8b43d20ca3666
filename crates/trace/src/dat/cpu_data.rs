use super::compression::Codec;
use super::v7::Sections;
use crate::error::TraceError;
use crate::input::Input;
use crate::merge::SubBufferSource;

/// The sub-buffers of one CPU in a `trace.dat`.
pub(crate) struct CpuData {
    input: Input,
    sub_buffer_size: usize,
    kind: Data,
}

enum Data {
    /// Uncompressed, from offset `at` to `end`.
    Plain { at: u64, end: u64, ahead: Ahead },
    /// In compressed chunks.
    Chunks { at: u64, left: u32, codec: Codec, big_endian: bool, ahead: Ahead },
}

/// Bytes read or decompressed ahead of their use.
#[derive(Default)]
struct Ahead {
    bytes: Vec<u8>,
    at: usize,
}

/// Bytes per read.
const READ_AHEAD: u64 = 256 << 10;

impl CpuData {
    pub(super) fn plain(input: Input, sub_buffer_size: u32, offset: u64, size: u64) -> Self {
        let end = offset.saturating_add(size);
        let kind = Data::Plain { at: offset, end, ahead: Ahead::default() };
        Self { input, sub_buffer_size: sub_buffer_size as usize, kind }
    }

    pub(super) fn chunks(
        input: Input,
        sub_buffer_size: u32,
        offset: u64,
        codec: Codec,
        big_endian: bool,
    ) -> Result<Self, TraceError> {
        let count = super::cursor::Cursor::new(&input, offset, big_endian).u32("the count of chunks")?;
        let kind = Data::Chunks { at: offset + 4, left: count, codec, big_endian, ahead: Ahead::default() };
        Ok(Self { input, sub_buffer_size: sub_buffer_size as usize, kind })
    }
}

impl SubBufferSource for CpuData {
    fn next_sub_buffer(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError> {
        page.clear();
        let ahead = match &mut self.kind {
            Data::Plain { at, end, ahead } => {
                if ahead.at >= ahead.bytes.len() {
                    let whole = READ_AHEAD.next_multiple_of(self.sub_buffer_size as u64);
                    ahead.bytes.resize(end.saturating_sub(*at).min(whole) as usize, 0);
                    let count = self.input.read_at(*at, &mut ahead.bytes)?;
                    // In a truncated file, a sub-buffer with truncated data counts as damaged.
                    ahead.bytes.truncate(count);
                    ahead.at = 0;
                    *at += count as u64;
                }
                ahead
            }
            Data::Chunks { at, left, codec, big_endian, ahead } => {
                while ahead.at >= ahead.bytes.len() && *left > 0 {
                    *left -= 1;
                    let sections = Sections { input: &self.input, codec: *codec, big_endian: *big_endian };
                    ahead.at = 0;
                    match sections.data_chunk(at) {
                        Ok(bytes) => ahead.bytes = bytes,
                        Err(TraceError::Format { .. }) => {
                            // The offset of the next chunk is unknown now. An empty sub-buffer counts as
                            // damaged.
                            *left = 0;
                            ahead.bytes.clear();
                            return Ok(true);
                        }
                        Err(error) => return Err(error),
                    }
                }
                ahead
            }
        };
        let end = ahead.bytes.len().min(ahead.at + self.sub_buffer_size);
        page.extend_from_slice(ahead.bytes.get(ahead.at..end).unwrap_or_default());
        ahead.at = end;
        Ok(!page.is_empty())
    }
}
