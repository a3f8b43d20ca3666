//! The match finder: greedy parsing over one hash table, meant to find what libzstd's level 1 finds.
//!
//! Most of the time goes into branch mispredictions: where the next match begins, and how long it is. The
//! length is measured without branches. Testing four positions at once without branches was slower than
//! predicting. Matches are not extended backwards: that makes pages 0.5 % smaller and takes 4 % longer.

use super::limits::PAGE;
use super::parse::Parse;
use crate::common::matches::{match_end, word8};
use crate::common::zeroed;

/// log2 of the hash table's entries. 13 bits make pages 0.1 % smaller and take 1 % longer.
const HASH_LOG: u32 = 12;
/// Every match starts before this position, so that whole words can be read.
const SEARCH_END: usize = PAGE - 8;
/// Number of literals without a match after which the step between positions grows by one.
const STEP_GROWTH: usize = 64;
/// Bytes of a match that are compared at once.
const COMPARED_AT_ONCE: usize = 24;

type Page = [u8; PAGE];

pub(super) struct MatchFinder {
    /// Last position of each hash of five bytes.
    table: Box<[u16; 1 << HASH_LOG]>,
}

impl MatchFinder {
    pub(super) fn new() -> Self {
        Self { table: zeroed() }
    }

    /// Replaces `parse` with the parse of `page`.
    #[inline(always)]
    pub(super) fn parse(&mut self, page: &Page, parse: &mut Parse) {
        let table = &mut *self.table;
        // An empty entry names position 0, which is a valid candidate: candidates are compared.
        table.fill(0);
        parse.clear();
        // Where the literals not yet added start.
        let mut anchor = 0;
        let mut position = 1;
        // The last offset, and the last one that differs from it; none at first.
        let (mut offset1, mut offset2) = (1, PAGE);
        let mut step = 1;
        let mut next_growth = position + STEP_GROWTH;
        while position < SEARCH_END {
            let here = word8(page, position);
            let entry = &mut table[hash(here)];
            let mut candidate = usize::from(*entry);
            *entry = position as u16;
            // A repeat of the last offset costs least: it is preferred to a match one byte earlier.
            let mut found = position + 1;
            let mut differ = word8(page, found) ^ word8(page, found - offset1);
            if differ as u32 == 0 {
                candidate = found - offset1;
            } else {
                found = position;
                differ = word8(page, candidate) ^ here;
                if differ as u32 != 0 {
                    position += step;
                    if position >= next_growth {
                        step += 1;
                        next_growth += STEP_GROWTH;
                    }
                    continue;
                }
            }
            let offset = found - candidate;
            offset2 = if offset == offset1 { offset2 } else { offset1 };
            offset1 = offset;
            let mut end = match_end_from(page, candidate, found, differ);
            let inside = end.min(SEARCH_END) - 2;
            table[hash(word8(page, inside))] = inside as u16;
            parse.add_literals(page, anchor, found - anchor);
            parse.sequences.add(found - anchor, end - found, offset);
            // Array elements that differ in a field, whose value occurred before, make two offsets alternate.
            while end < SEARCH_END && end >= offset2 {
                let here = word8(page, end);
                let differ = here ^ word8(page, end - offset2);
                if differ as u32 != 0 {
                    break;
                }
                table[hash(here)] = end as u16;
                let start = end;
                end = match_end_from(page, start - offset2, start, differ);
                parse.sequences.add(0, end - start, offset2);
                (offset1, offset2) = (offset2, offset1);
            }
            anchor = end;
            position = end;
            step = 1;
            next_growth = position + STEP_GROWTH;
        }
        parse.add_literals(page, anchor, PAGE - anchor);
    }
}

#[inline(always)]
fn hash(word: u64) -> usize {
    ((word << 24).wrapping_mul(0x9e37_79b1_85eb_ca87) >> (64 - HASH_LOG)) as usize
}

/// Returns the end of the match of the bytes from `b` with those from `a` < `b`. `differ` is the XOR of their
/// first words.
#[inline(always)]
fn match_end_from(page: &Page, a: usize, b: usize, differ: u64) -> usize {
    let (Some(old), Some(new)) = (page.get(a..a + COMPARED_AT_ONCE), page.get(b..b + COMPARED_AT_ONCE))
    else {
        return match_end(page, a, b);
    };
    let differ_at = |at| word_of(old, at) ^ word_of(new, at);
    let (second, third) = (differ_at(8), differ_at(16));
    let (mut last, mut length) = (third, 16);
    (last, length) = if second != 0 { (second, 8) } else { (last, length) };
    (last, length) = if differ != 0 { (differ, 0) } else { (last, length) };
    if last != 0 {
        b + length + last.trailing_zeros() as usize / 8
    } else {
        match_end(page, a + COMPARED_AT_ONCE, b + COMPARED_AT_ONCE)
    }
}

#[inline(always)]
fn word_of(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
