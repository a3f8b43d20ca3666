//! zlib streams of single pages (RFC 1950 and 1951), smaller than zlib's level 1 makes them.
//!
//! An encoder for streams clears tables of 128 KiB and more before every page, and then misses the first
//! cache. Here a page is one block, any distance is allowed, and hash tables of 12 KiB suffice. The match
//! finder turns a page into tokens, which are written without a branch.

mod alphabet;
mod header;
mod parse;
mod prefix_code;
mod symbols;

use alphabet::{DISTANCE_SYMBOLS, FIRST_DISTANCE, LITERAL_LENGTH_SYMBOLS, MAX_SYMBOLS};
use header::DynamicHeader;
use parse::{PAGE, Parse};
use prefix_code::{Codes, PrefixCode};

use crate::common::bit_writer::{BitWriter, Output};
use crate::common::zeroed;

/// CMF and FLG (RFC 1950, 2.2): method 8 with a window of 32 KiB, the fastest level.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x01];
/// Bytes of the Adler-32 checksum at the end.
const ADLER32_SIZE: usize = 4;
/// BFINAL = 1 and BTYPE of the only block (RFC 1951, 3.2.3): fixed or dynamic Huffman codes.
const FIXED_BLOCK: u64 = 0b011;
const DYNAMIC_BLOCK: u64 = 0b101;
/// Bits of the longest literal/length or distance code (RFC 1951, 3.2.7).
const MAX_CODE_LENGTH: usize = 15;

/// Buffers and tables of an encoder; nothing is allocated per page.
pub(crate) struct Encoder {
    output: Box<Output>,
    parse: Box<Parse>,
    work: Box<Work>,
}

/// The codes of a page.
struct Work {
    literal_lengths: PrefixCode<512>,
    distances: PrefixCode<32>,
    header: DynamicHeader,
    dynamic: Codes,
    fixed: Codes,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        let work = Work {
            literal_lengths: PrefixCode::new(),
            distances: PrefixCode::new(),
            header: DynamicHeader::new(),
            dynamic: [0; MAX_SYMBOLS],
            fixed: prefix_code::fixed_codes(),
        };
        Self { output: zeroed(), parse: Parse::new(), work: Box::new(work) }
    }

    /// Encodes a page as a zlib stream. Returns `None` if the stream is not shorter than the page.
    pub(crate) fn encode(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        let Self { output, parse, work } = self;
        let Work { literal_lengths, distances, header, dynamic, fixed } = &mut **work;
        parse.parse(page);
        literal_lengths.build(&parse.counts()[..LITERAL_LENGTH_SYMBOLS], MAX_CODE_LENGTH);
        distances.build(&parse.counts()[FIRST_DISTANCE..FIRST_DISTANCE + DISTANCE_SYMBOLS], MAX_CODE_LENGTH);
        let dynamic_bits =
            header.build(literal_lengths, distances) + literal_lengths.bit_cost() + distances.bit_cost();
        let fixed_bits =
            literal_lengths.bit_cost_with(fixed, 0) + distances.bit_cost_with(fixed, FIRST_DISTANCE);
        let body = 3 + dynamic_bits.min(fixed_bits) + parse.extra_bits();
        let length = ZLIB_HEADER.len() + body.div_ceil(8) as usize + ADLER32_SIZE;
        if length >= PAGE {
            return None;
        }
        output[..ZLIB_HEADER.len()].copy_from_slice(&ZLIB_HEADER);
        let mut bits = BitWriter::new(ZLIB_HEADER.len());
        if fixed_bits <= dynamic_bits {
            bits.add(FIXED_BLOCK, 3);
            symbols::write_tokens(parse.tokens(), fixed, &mut bits, output);
        } else {
            bits.add(DYNAMIC_BLOCK, 3);
            header.write(dynamic, &mut bits, output);
            literal_lengths.assign_codes(dynamic, 0);
            distances.assign_codes(dynamic, FIRST_DISTANCE);
            symbols::write_tokens(parse.tokens(), dynamic, &mut bits, output);
        }
        let at = bits.finish(output);
        debug_assert_eq!(at + ADLER32_SIZE, length);
        let stream = &mut output[..at + ADLER32_SIZE];
        stream[at..].copy_from_slice(&libdeflater::adler32(page).to_be_bytes());
        Some(stream)
    }
}

#[cfg(test)]
mod tests;
