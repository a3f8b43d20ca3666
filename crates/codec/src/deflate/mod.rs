//! DEFLATE of pages (RFC 1951, in the zlib wrapper of RFC 1950), smaller than zlib makes them at level 1.
//!
//! Encoders of streams clear tables of 128 KiB and more before every page, and then find them outside the first cache.
//! A page is one block, its bytes are all within reach of each other, and tables of 12 KiB know enough of them. From
//! the search on, pages are tokens, which are written without a branch.

mod header;
mod parse;
mod prefix;
mod symbols;

use header::Header;
use parse::{PAGE, Parse};
use prefix::{Codes, Prefix};
use symbols::{DISTANCES, FIRST_DISTANCE, LITERALS_AND_LENGTHS, SYMBOLS};

use crate::bits::{Bits, Output};
use crate::output::zeroed;

/// Of zlib: method 8 with a window of 32 KiB, the fastest level.
const HEADER: [u8; 2] = [0x78, 0x01];
/// Bytes of the checksum at the end.
const CHECKSUM: usize = 4;
/// What the only block starts with, three bits: whether it is in the codes that every decoder knows, or its own.
const FIXED: u64 = 0b011;
const OWN: u64 = 0b101;
/// Bits of the longest code.
const LIMIT: usize = 15;

/// What encoding a page takes; nothing is allocated per page.
pub(crate) struct Encoder {
    output: Box<Output>,
    parse: Box<Parse>,
    work: Box<Work>,
}

/// The codes of a page.
struct Work {
    symbols: Prefix<512>,
    distances: Prefix<32>,
    header: Header,
    own: Codes,
    fixed: Codes,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        let work = Work {
            symbols: Prefix::new(),
            distances: Prefix::new(),
            header: Header::new(),
            own: [0; SYMBOLS],
            fixed: prefix::fixed(),
        };
        Self { output: zeroed(), parse: Parse::new(), work: Box::new(work) }
    }

    /// Encodes a page; none where the stream would be no shorter.
    pub(crate) fn encode(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        let Self { output, parse, work } = self;
        let Work { symbols, distances, header, own, fixed } = &mut **work;
        parse.page(page);
        symbols.make(&parse.counts()[..LITERALS_AND_LENGTHS], LIMIT);
        distances.make(&parse.counts()[FIRST_DISTANCE..FIRST_DISTANCE + DISTANCES], LIMIT);
        let own_bits = header.make(symbols, distances) + symbols.bits() + distances.bits();
        let fixed_bits = symbols.bits_in(fixed, 0) + distances.bits_in(fixed, FIRST_DISTANCE);
        let body = 3 + own_bits.min(fixed_bits) + parse.extra_bits();
        let length = HEADER.len() + body.div_ceil(8) as usize + CHECKSUM;
        if length >= PAGE {
            return None;
        }
        output[..HEADER.len()].copy_from_slice(&HEADER);
        let mut bits = Bits::new(HEADER.len());
        if fixed_bits <= own_bits {
            bits.add(FIXED, 3);
            symbols::write(parse.tokens(), fixed, &mut bits, output);
        } else {
            bits.add(OWN, 3);
            header.write(own, &mut bits, output);
            symbols.write(own, 0);
            distances.write(own, FIRST_DISTANCE);
            symbols::write(parse.tokens(), own, &mut bits, output);
        }
        let at = bits.finish(output);
        debug_assert_eq!(at + CHECKSUM, length);
        let stream = &mut output[..at + CHECKSUM];
        stream[at..].copy_from_slice(&libdeflater::adler32(page).to_be_bytes());
        Some(stream)
    }
}

#[cfg(test)]
mod tests;
