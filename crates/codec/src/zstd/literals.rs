//! The literals section of a block (RFC 8878, 3.1.1.3.1): raw, RLE, or Huffman-coded.

use super::huffman::{Histogram, HuffmanCode};
use super::limits::PAGE;
use crate::common::bit_writer::{Output, put4};

/// Fewer literals are not worth a Huffman tree description.
const MIN_COMPRESSED: usize = 48;
/// Most literals of a `Size_Format` with a single stream.
const MAX_SINGLE_STREAM: usize = 1023;

/// `Literals_Block_Type`.
const RAW_LITERALS_BLOCK: u32 = 0;
const RLE_LITERALS_BLOCK: u32 = 1;
const COMPRESSED_LITERALS_BLOCK: u32 = 2;

pub(super) struct LiteralsEncoder {
    huffman: HuffmanCode,
}

impl LiteralsEncoder {
    pub(super) fn new() -> Self {
        Self { huffman: HuffmanCode::new() }
    }

    /// Writes the literals section. Returns where it ends, or `None` if it is longer than a page.
    #[inline(always)]
    pub(super) fn write(&mut self, literals: &[u8], output: &mut Output, at: usize) -> Option<usize> {
        let end = if literals.len() < MIN_COMPRESSED { None } else { self.compress(literals, output, at) };
        end.or_else(|| write_raw(literals, output, at))
    }

    /// Writes an RLE or compressed literals block, if that is smaller than a raw one.
    #[inline(always)]
    fn compress(&mut self, literals: &[u8], output: &mut Output, at: usize) -> Option<usize> {
        let len = literals.len();
        let histogram = histogram(literals);
        let most = usize::from(*histogram.iter().max()?);
        if most == len {
            let at = write_plain_header(output, at, RLE_LITERALS_BLOCK, len);
            put4(output, at, u32::from(literals[0]), 1);
            return Some(at + 1);
        }
        // No byte is much more frequent than others.
        if most <= (len >> 7) + 4 {
            return None;
        }
        self.huffman.build(&histogram);
        let least = self.huffman.bit_cost(&histogram) / 8;
        if least >= len {
            return None;
        }
        let header = if len <= MAX_SINGLE_STREAM { 3 } else { 4 };
        let start = at + header;
        let streams = self.huffman.write_description(output, start)?;
        if streams - start + least + (len >> 6) >= len {
            return None;
        }
        let end = if len <= MAX_SINGLE_STREAM {
            self.huffman.write_stream(literals, output, streams)
        } else {
            self.write_four_streams(literals, output, streams)
        };
        let size = (end - start) as u32;
        // Literals_Block_Type, Size_Format, Regenerated_Size, Compressed_Size (RFC 8878, 3.1.1.3.1.1).
        if len <= MAX_SINGLE_STREAM {
            put4(output, at, COMPRESSED_LITERALS_BLOCK | (len as u32) << 4 | size << 14, 3);
        } else {
            put4(output, at, COMPRESSED_LITERALS_BLOCK | 2 << 2 | (len as u32) << 4 | size << 18, 4);
        }
        Some(end)
    }

    /// Writes the jump table (RFC 8878, 3.1.1.3.1.6) and four streams. Returns where they end.
    fn write_four_streams(&self, literals: &[u8], output: &mut Output, at: usize) -> usize {
        let mut end = at + 6;
        for (index, part) in literals.chunks(literals.len().div_ceil(4)).enumerate() {
            let start = end;
            end = self.huffman.write_stream(part, output, start);
            // The size of the last stream is implied.
            if index < 3 {
                put4(output, at + 2 * index, (end - start) as u32, 2);
            }
        }
        end
    }
}

fn write_raw(literals: &[u8], output: &mut Output, at: usize) -> Option<usize> {
    let at = write_plain_header(output, at, RAW_LITERALS_BLOCK, literals.len());
    let end = at + literals.len();
    if end >= PAGE {
        return None;
    }
    output[at..end].copy_from_slice(literals);
    Some(end)
}

/// Writes the literals section header of a raw or RLE block (RFC 8878, 3.1.1.3.1.1), as short as
/// `Regenerated_Size` allows. Returns where it ends.
fn write_plain_header(output: &mut Output, at: usize, block_type: u32, len: usize) -> usize {
    let (word, size) = match len {
        ..32 => ((len as u32) << 3, 1),
        32..4096 => (1 << 2 | (len as u32) << 4, 2),
        _ => (3 << 2 | (len as u32) << 4, 3),
    };
    put4(output, at, word | block_type, size);
    at + size
}

fn histogram(literals: &[u8]) -> Histogram {
    // Four tables: an increment waits for an earlier one of the same byte.
    let mut tables = [[0_u16; 256]; 4];
    let [a, b, c, d] = &mut tables;
    let (groups, rest) = literals.as_chunks::<4>();
    for group in groups {
        a[usize::from(group[0])] += 1;
        b[usize::from(group[1])] += 1;
        c[usize::from(group[2])] += 1;
        d[usize::from(group[3])] += 1;
    }
    for &byte in rest {
        a[usize::from(byte)] += 1;
    }
    for index in 0..256 {
        a[index] += b[index] + c[index] + d[index];
    }
    *a
}
