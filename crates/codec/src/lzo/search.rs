//! The LZO encoder and its match finder: greedy parsing over one hash table.
//!
//! Most of the time goes into branch mispredictions and into waiting for positions that depend on the last
//! match. Kernel memory is regular, so a processor that predicts well avoids both, and the match finder
//! branches on whatever repeats: whether this is a match, whether it is longer than eight bytes more.
//! Branch-free code, and comparing wider words, were measured to be slower by a tenth to a third.

use super::instructions;
use super::output::{Literals, MAX_INPUT, Output};
use crate::common::matches::{match_end, word4, word8};
use crate::common::zeroed;

/// The shortest match that the match finder looks for.
const MIN_MATCH: usize = 4;

/// Input length that the small hash table serves: a page of 4 KiB.
const SMALL_INPUT: usize = 4096;
/// log2 of the hash table's entries. 12 bits for small pages are 1 % faster, and their output 0.2 % larger.
const SMALL_HASH_LOG: u32 = 13;
const LARGE_HASH_LOG: u32 = 14;

/// Consecutive positions that are tried before the match finder skips bytes.
const GROUP: usize = 4;
/// Offset in a match at which a second position is inserted into the table; less than [`MIN_MATCH`].
const SECOND_INSERT: usize = 2;
/// How many more bytes are skipped per literal without a match, in 64ths of a byte. More is faster and
/// larger: at 6, pages of small kernels are 1.5 % larger than with liblzo2.
const SKIP_GROWTH: usize = 5;
/// No match starts this close to the end, so that whole words around it can be read and copied.
const TAIL: usize = 15;

type HashTable = [u16; 1 << LARGE_HASH_LOG];

/// Output and hash table of an encoder. Only the parts that a page needs are ever touched.
pub(crate) struct Encoder {
    output: Box<Output>,
    table: Box<HashTable>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { output: zeroed(), table: zeroed() }
    }

    /// Encodes a page and returns the stream. Ignores bytes beyond [`MAX_INPUT`].
    pub(crate) fn encode(&mut self, page: &[u8]) -> &[u8] {
        let Self { output, table } = self;
        let end = match <&[u8; SMALL_INPUT]>::try_from(page) {
            Ok(page) => encode_small(page, output, table),
            Err(_) => encode_any(&page[..page.len().min(MAX_INPUT)], output, table),
        };
        &self.output[..end]
    }
}

/// With the length known, the compiler checks fewer bounds and has one more register.
#[inline(never)]
fn encode_small(page: &[u8; SMALL_INPUT], output: &mut Output, table: &mut HashTable) -> usize {
    encode::<SMALL_HASH_LOG>(page, output, table)
}

#[inline(never)]
fn encode_any(page: &[u8], output: &mut Output, table: &mut HashTable) -> usize {
    encode::<LARGE_HASH_LOG>(page, output, table)
}

#[inline(always)]
fn encode<const HASH_LOG: u32>(input: &[u8], output: &mut Output, table: &mut HashTable) -> usize {
    // An empty entry names position 0, which is a valid candidate: candidates are compared.
    table[..1 << HASH_LOG].fill(0);
    let mut at = 0;
    // Where the literals not yet written start.
    let mut anchor = 0;
    let mut position = 1;
    while let Some((found, candidate)) = find_match::<HASH_LOG>(input, position, anchor, table) {
        // Later matches find this one from a second position. It is near the match's start because the end is
        // not known yet: waiting for it took 7 % longer.
        table[hash::<HASH_LOG>(word4(input, found + SECOND_INSERT))] = (found + SECOND_INSERT) as u16;
        let end = match_end(input, candidate + MIN_MATCH, found + MIN_MATCH);
        let literals = Literals { input, from: anchor, count: found - anchor };
        at = instructions::put_copy(output, at, literals, end - found, found - candidate);
        position = end;
        anchor = end;
    }
    instructions::finish(output, at, Literals { input, from: anchor, count: input.len() - anchor })
}

/// Finds the first match at `position` or later. Returns where it starts and the earlier position it copies
/// from.
#[inline(always)]
fn find_match<const HASH_LOG: u32>(
    input: &[u8],
    mut position: usize,
    anchor: usize,
    table: &mut HashTable,
) -> Option<(usize, usize)> {
    let last = input.len().checked_sub(TAIL)?;
    while position <= last {
        let word = word8(input, position);
        for skip in 0..GROUP {
            let word = (word >> (8 * skip)) as u32;
            let here = position + skip;
            let entry = &mut table[hash::<HASH_LOG>(word)];
            let candidate = usize::from(*entry);
            *entry = here as u16;
            let is_in_reach = HASH_LOG == SMALL_HASH_LOG || here - candidate <= instructions::MAX_DISTANCE;
            if word4(input, candidate) == word && is_in_reach {
                return Some((here, candidate));
            }
        }
        position += GROUP + (position - anchor) * SKIP_GROWTH / 64;
    }
    None
}

#[inline(always)]
fn hash<const HASH_LOG: u32>(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_LOG)) as usize
}
