//! The LZO encoder's search for repeated bytes, and its buffers.
//!
//! Greedy parsing over one hash table. What costs time is the processor waiting, for a guess that went wrong or for a
//! position that depends on the last match. Kernel memory is regular, and a processor that guesses well runs ahead of
//! both; so the search branches on whatever repeats itself (is this a match, is it longer than eight bytes more). Doing
//! all of it by arithmetic, or comparing wider words, was measured to be slower by a tenth to a third.

use crate::lzo;
use crate::output::{Literals, Output, agree, word4, word8, zeroed};

/// Longest input in bytes: positions must fit the table's `u16`.
pub(crate) const MAX_INPUT: usize = 1 << 16;
/// The shortest match looked for.
pub(crate) const MIN_MATCH: usize = 4;

/// Largest page that the small table serves.
const SMALL_INPUT: usize = 4096;
/// log2 of the table's entries. 12 bits for small pages gain 1 % of time and lose 0.2 % of size.
const SMALL_BITS: u32 = 13;
const LARGE_BITS: u32 = 14;

/// Neighbouring positions that are tried before the search strides on.
const GROUP: usize = 4;
/// Where in a match it is entered into the table once more; less than [`MIN_MATCH`].
const SECOND: usize = 2;
/// How much wider the search strides per literal without a match, in 64ths of a byte. Faster and larger: at 6 pages of
/// small kernels are 1.5 % larger than liblzo2 makes them.
const WIDEN: usize = 5;
/// No match starts this close to the end: whole words around it can be read and copied.
const TAIL: usize = 15;

type Table = [u16; 1 << LARGE_BITS];

/// Output and hash table of an encoder. Only the parts that a page reaches are ever touched.
pub(crate) struct Encoder {
    output: Box<Output>,
    table: Box<Table>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { output: zeroed(), table: zeroed() }
    }

    /// Encodes up to [`MAX_INPUT`] bytes (what lies behind is left out) and returns the stream.
    pub(crate) fn encode(&mut self, page: &[u8]) -> &[u8] {
        let Self { output, table } = self;
        let end = match <&[u8; SMALL_INPUT]>::try_from(page) {
            Ok(page) => encode_small(page, output, table),
            Err(_) => encode_any(&page[..page.len().min(MAX_INPUT)], output, table),
        };
        &self.output[..end]
    }
}

/// With the length known, the compiler has fewer bounds to check and a register more.
#[inline(never)]
fn encode_small(page: &[u8; SMALL_INPUT], output: &mut Output, table: &mut Table) -> usize {
    encode::<SMALL_BITS>(page, output, table)
}

#[inline(never)]
fn encode_any(page: &[u8], output: &mut Output, table: &mut Table) -> usize {
    encode::<LARGE_BITS>(page, output, table)
}

#[inline(always)]
fn encode<const BITS: u32>(input: &[u8], output: &mut Output, table: &mut Table) -> usize {
    // An empty entry names position 0, which is as good a candidate as any: candidates are compared.
    table[..1 << BITS].fill(0);
    let mut at = 0;
    // Where the literals not yet written start.
    let mut pending = 0;
    let mut position = 1;
    while let Some((found, candidate)) = find::<BITS>(input, position, pending, table) {
        // A second way into this match for later ones. Always before its end, whose length is not known yet: waiting
        // for that took 7 % longer.
        table[hash::<BITS>(word4(input, found + SECOND))] = (found + SECOND) as u16;
        let end = agree(input, candidate + MIN_MATCH, found + MIN_MATCH);
        let literals = Literals { input, from: pending, count: found - pending };
        at = lzo::put(output, at, literals, end - found, found - candidate);
        position = end;
        pending = end;
    }
    lzo::finish(output, at, Literals { input, from: pending, count: input.len() - pending })
}

/// The next position, from `position` on, whose first bytes were met before, and where that was.
#[inline(always)]
fn find<const BITS: u32>(
    input: &[u8],
    mut position: usize,
    pending: usize,
    table: &mut Table,
) -> Option<(usize, usize)> {
    let last = input.len().checked_sub(TAIL)?;
    while position <= last {
        let word = word8(input, position);
        for skip in 0..GROUP {
            let word = (word >> (8 * skip)) as u32;
            let here = position + skip;
            let entry = &mut table[hash::<BITS>(word)];
            let candidate = usize::from(*entry);
            *entry = here as u16;
            let in_reach = BITS == SMALL_BITS || here - candidate <= lzo::FAR;
            if word4(input, candidate) == word && in_reach {
                return Some((here, candidate));
            }
        }
        position += GROUP + (position - pending) * WIDEN / 64;
    }
    None
}

#[inline(always)]
fn hash<const BITS: u32>(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize
}
