//! The search for repeated bytes: greedy, over one table of hashes, meant to find what libzstd's level 1 finds.
//!
//! Most of the time goes into wrong guesses: where the next match begins and how long it is. The length is measured
//! without branches; telling all matches of four positions at once by arithmetic was slower than guessing. Matches are
//! not extended to bytes before them: that makes pages 0.5 % smaller and takes 4 % longer.

use super::parse::{PAGE, Parse};
use crate::output::{agree, word8, zeroed};

/// log2 of the table's entries. 13 bits make pages smaller by 0.1 % and take 1 % longer.
const BITS: u32 = 12;
/// No match starts at or behind this: whole words can be read there.
const LAST: usize = PAGE - 8;
/// After so many literals without a match the search strides wider.
const WIDEN: usize = 64;
/// So many bytes of a match are compared at once.
const AHEAD: usize = 24;

type Page = [u8; PAGE];

pub(crate) struct Searcher {
    /// Where hashes of five bytes were met last.
    table: Box<[u16; 1 << BITS]>,
}

impl Searcher {
    pub(crate) fn new() -> Self {
        Self { table: zeroed() }
    }

    #[inline(always)]
    pub(crate) fn search(&mut self, page: &Page, parse: &mut Parse) {
        let table = &mut *self.table;
        // An empty entry names position 0, which is as good a candidate as any: candidates are compared.
        table.fill(0);
        parse.clear();
        // Where the literals not yet added start.
        let mut pending = 0;
        let mut position = 1;
        // The offset of the last match, and the one before that differs; none at first.
        let (mut recent, mut other) = (1, PAGE);
        let mut stride = 1;
        let mut widen = position + WIDEN;
        while position < LAST {
            let here = word8(page, position);
            let entry = &mut table[hash(here)];
            let mut candidate = usize::from(*entry);
            *entry = position as u16;
            // The last offset once more costs less than any other: it goes before a match one byte earlier.
            let mut found = position + 1;
            let mut differ = word8(page, found) ^ word8(page, found - recent);
            if differ as u32 == 0 {
                candidate = found - recent;
            } else {
                found = position;
                differ = word8(page, candidate) ^ here;
                if differ as u32 != 0 {
                    position += stride;
                    if position >= widen {
                        stride += 1;
                        widen += WIDEN;
                    }
                    continue;
                }
            }
            let offset = found - candidate;
            other = if offset == recent { other } else { recent };
            recent = offset;
            let mut end = measure(page, candidate, found, differ);
            let inside = end.min(LAST) - 2;
            table[hash(word8(page, inside))] = inside as u16;
            parse.add_literals(page, pending, found - pending);
            parse.codes.add(found - pending, end - found, offset);
            // Structures one after the other differ in a field, whose value came before: their offsets alternate.
            while end < LAST && end >= other {
                let here = word8(page, end);
                let differ = here ^ word8(page, end - other);
                if differ as u32 != 0 {
                    break;
                }
                table[hash(here)] = end as u16;
                let start = end;
                end = measure(page, start - other, start, differ);
                parse.codes.add(0, end - start, other);
                (recent, other) = (other, recent);
            }
            pending = end;
            position = end;
            stride = 1;
            widen = position + WIDEN;
        }
        parse.add_literals(page, pending, PAGE - pending);
    }
}

#[inline(always)]
fn hash(word: u64) -> usize {
    ((word << 24).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - BITS)) as usize
}

/// Where the bytes from `a` and those from `b` > `a` stop to agree, told for `b`. `differ` says how their first words
/// differ.
#[inline(always)]
fn measure(page: &Page, a: usize, b: usize, differ: u64) -> usize {
    let (Some(old), Some(new)) = (page.get(a..a + AHEAD), page.get(b..b + AHEAD)) else {
        return agree(page, a, b);
    };
    let differ_at = |at| word_of(old, at) ^ word_of(new, at);
    let (second, third) = (differ_at(8), differ_at(16));
    let (mut last, mut length) = (third, 16);
    (last, length) = if second != 0 { (second, 8) } else { (last, length) };
    (last, length) = if differ != 0 { (differ, 0) } else { (last, length) };
    if last != 0 {
        b + length + last.trailing_zeros() as usize / 8
    } else {
        agree(page, a + AHEAD, b + AHEAD)
    }
}

#[inline(always)]
fn word_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
