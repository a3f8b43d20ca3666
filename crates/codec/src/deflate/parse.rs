//! The match finder.
//!
//! A position has three candidates: the last position with the same three bytes, the last one with the same
//! eight, and the one at the distance of the last match, because structures in an array differ in the same
//! places. Which candidate is best is as good as random, so it is chosen without a branch, which would mostly
//! be mispredicted.

use super::alphabet::{MAX_MATCH, MAX_SYMBOLS};
use super::symbols::Token;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes that are compared at once.
const WORD: usize = 8;
/// Matches of three bytes at larger distances save nothing.
const MAX_DISTANCE_3: usize = 256;
/// log2 of the hash tables' entries.
const HASH3_LOG: u32 = 12;
const HASH8_LOG: u32 = 11;
/// log2 of the bytes without a match after which only every second position is searched, and after as many
/// more every third. Noise takes a third of the time, and pages of files are 0.1 % larger.
const SKIP_LOG: u32 = 7;

/// A page, padded so that a word can be read at each of its positions.
type Padded = [u8; PAGE + WORD];
/// A byte makes at most one token, and the end of block makes one.
type Tokens = [Token; 2 * PAGE];

/// A page as tokens, and the tables of the match finder: in one place, as there are too few registers for
/// several pointers.
pub(super) struct Parse {
    page: Padded,
    /// Last position of each hash of three bytes, and of eight.
    hash3: [u16; 1 << HASH3_LOG],
    hash8: [u16; 1 << HASH8_LOG],
    tokens: Tokens,
    count: usize,
    /// How often each symbol occurs.
    counts: [u16; MAX_SYMBOLS],
    extra_bits: u32,
}

impl Parse {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            page: [0; PAGE + WORD],
            hash3: [0; 1 << HASH3_LOG],
            hash8: [0; 1 << HASH8_LOG],
            tokens: [Token::default(); 2 * PAGE],
            count: 0,
            counts: [0; MAX_SYMBOLS],
            extra_bits: 0,
        })
    }

    /// Returns all tokens, the end of block last.
    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens[..self.count]
    }

    /// Returns how often each symbol occurs in the tokens.
    pub(super) fn counts(&self) -> &[u16; MAX_SYMBOLS] {
        &self.counts
    }

    /// Returns the number of extra bits of all tokens.
    pub(super) fn extra_bits(&self) -> u32 {
        self.extra_bits
    }

    /// Replaces the tokens with those of `page`.
    #[inline(never)]
    pub(super) fn parse(&mut self, page: &[u8; PAGE]) {
        self.page[..PAGE].copy_from_slice(page);
        // An empty entry names position 0, which is a valid candidate: candidates are compared.
        self.hash3.fill(0);
        self.hash8.fill(0);
        self.counts.fill(0);
        let mut extra_bits = 0;
        let mut count = self.push(0, Token::literal(page[0]));
        let mut position = 1;
        let mut last_distance = 1;
        // Where the last match ended.
        let mut anchor = 0;
        // Room for the shortest match, three bytes.
        while position <= PAGE - 3 {
            let Match { length, candidate } = self.find_match(position, last_distance);
            let distance = position - candidate;
            if length < 3 + usize::from(distance > MAX_DISTANCE_3) {
                let next = (position + 1 + ((position - anchor) >> SKIP_LOG)).min(PAGE);
                while position < next {
                    count = self.push(count, Token::literal(self.page[position]));
                    position += 1;
                }
                continue;
            }
            let length = self.match_length(position, distance, length).min(PAGE - position);
            for inside in 1..3 {
                self.insert(position + inside);
            }
            for token in [Token::length(length), Token::distance(distance)] {
                extra_bits += token.extra_bits();
                count = self.push(count, token);
            }
            position += length;
            last_distance = distance;
            anchor = position;
        }
        while position < PAGE {
            count = self.push(count, Token::literal(self.page[position]));
            position += 1;
        }
        count = self.push(count, Token::end());
        (self.count, self.extra_bits) = (count, extra_bits);
    }

    /// Returns the candidate with the longest match, the nearest of several.
    #[inline(always)]
    fn find_match(&mut self, position: usize, last_distance: usize) -> Match {
        let word = word(&self.page, position);
        let hash3 = std::mem::replace(&mut self.hash3[hash3(word)], position as u16);
        let hash8 = std::mem::replace(&mut self.hash8[hash8(word)], position as u16);
        // Length first, then position: the greater, the better.
        let rate = |candidate: usize| equal_bytes(word, self::word(&self.page, candidate)) * PAGE + candidate;
        let best = rate(hash3.into()).max(rate(hash8.into())).max(rate(position - last_distance));
        Match { length: best / PAGE, candidate: best % PAGE }
    }

    /// Inserts a position inside a match into the hash tables.
    #[inline(always)]
    fn insert(&mut self, position: usize) {
        let word = word(&self.page, position);
        self.hash3[hash3(word)] = position as u16;
        self.hash8[hash8(word)] = position as u16;
    }

    /// Returns the length of the match at a position: the `known` length, if that is less than a word. The
    /// second word is compared in any case, as half of the matches reach into it.
    #[inline(always)]
    fn match_length(&self, position: usize, distance: usize, known: usize) -> usize {
        let compare = |skip: usize| {
            equal_bytes(word(&self.page, position + skip), word(&self.page, position + skip - distance))
        };
        let second = compare(WORD);
        let mut length = known + if known == WORD { second } else { 0 };
        if length == 2 * WORD {
            while length < MAX_MATCH && position + length < PAGE {
                let more = compare(length);
                length += more;
                if more < WORD {
                    break;
                }
            }
        }
        length.min(MAX_MATCH)
    }

    /// Appends a token and counts it. Returns how many there are.
    #[inline(always)]
    fn push(&mut self, count: usize, token: Token) -> usize {
        self.tokens[count % (2 * PAGE)] = token;
        self.counts[token.symbol()] += 1;
        count + 1
    }
}

struct Match {
    /// At most a word.
    length: usize,
    candidate: usize,
}

/// Returns the number of equal bytes at the start of two words.
#[inline(always)]
fn equal_bytes(a: u64, b: u64) -> usize {
    (a ^ b).trailing_zeros() as usize / 8
}

#[inline(always)]
fn word(page: &Padded, at: usize) -> u64 {
    let at = at % PAGE;
    let mut word = [0; WORD];
    word.copy_from_slice(&page[at..at + WORD]);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn hash3(word: u64) -> usize {
    ((word as u32) << 8).wrapping_mul(0x9e37_79b1) as usize >> (32 - HASH3_LOG)
}

#[inline(always)]
fn hash8(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - HASH8_LOG)) as usize
}
