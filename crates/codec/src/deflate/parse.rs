//! The search for repeated bytes.
//!
//! Three places are looked at: where these three bytes were met last, where these eight were, and as far back as the
//! last match was, because structures in an array differ from each other in the same places. Which of them has most is
//! as good as random, so that is found by arithmetic; a branch would mostly guess wrong.

use super::symbols::{LONGEST, SYMBOLS, Token};

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Bytes that are compared at once.
const WORD: usize = 8;
/// Matches of three bytes from farther back than this save nothing.
const NEAR: usize = 256;
/// log2 of the tables' entries.
const SHORT_BITS: u32 = 12;
const LONG_BITS: u32 = 11;
/// log2 of the bytes without a match after which only every second position is searched, and after as many more every
/// third. Noise takes a third of the time, and pages of files are 0.1 % larger.
const WIDEN: u32 = 7;

/// The page, with room to read a word from each of its positions on.
type Padded = [u8; PAGE + WORD];
/// A byte makes at most one token, and the end makes one.
type Tokens = [Token; 2 * PAGE];

/// A page as tokens, and what it takes to make them. All in one place, for want of registers for several pointers.
pub(super) struct Parse {
    page: Padded,
    /// Where a hash of three bytes, and one of eight, was met last.
    short: [u16; 1 << SHORT_BITS],
    long: [u16; 1 << LONG_BITS],
    tokens: Tokens,
    count: usize,
    /// How often each symbol occurs.
    counts: [u16; SYMBOLS],
    extra_bits: u32,
}

impl Parse {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            page: [0; PAGE + WORD],
            short: [0; 1 << SHORT_BITS],
            long: [0; 1 << LONG_BITS],
            tokens: [Token::default(); 2 * PAGE],
            count: 0,
            counts: [0; SYMBOLS],
            extra_bits: 0,
        })
    }

    /// All tokens, the end last.
    pub(super) fn tokens(&self) -> &[Token] {
        &self.tokens[..self.count]
    }

    /// How often each symbol occurs in them.
    pub(super) fn counts(&self) -> &[u16; SYMBOLS] {
        &self.counts
    }

    /// Bits behind their symbols.
    pub(super) fn extra_bits(&self) -> u32 {
        self.extra_bits
    }

    #[inline(never)]
    pub(super) fn page(&mut self, page: &[u8; PAGE]) {
        self.page[..PAGE].copy_from_slice(page);
        // An empty entry names position 0, which is as good a candidate as any: candidates are compared.
        self.short.fill(0);
        self.long.fill(0);
        self.counts.fill(0);
        let mut extra_bits = 0;
        let mut count = self.put(0, Token::literal(page[0]));
        let mut position = 1;
        let mut last = 1;
        // Where the last match ended.
        let mut matched = 0;
        // Room for the shortest match, three bytes.
        while position <= PAGE - 3 {
            let Found { length, candidate } = self.find(position, last);
            let distance = position - candidate;
            if length < 3 + usize::from(distance > NEAR) {
                let next = (position + 1 + ((position - matched) >> WIDEN)).min(PAGE);
                while position < next {
                    count = self.put(count, Token::literal(self.page[position]));
                    position += 1;
                }
                continue;
            }
            let length = self.agree(position, distance, length).min(PAGE - position);
            for inside in 1..3 {
                self.enter(position + inside);
            }
            for token in [Token::length(length), Token::distance(distance)] {
                extra_bits += token.extra_bits();
                count = self.put(count, token);
            }
            position += length;
            last = distance;
            matched = position;
        }
        while position < PAGE {
            count = self.put(count, Token::literal(self.page[position]));
            position += 1;
        }
        count = self.put(count, Token::end());
        (self.count, self.extra_bits) = (count, extra_bits);
    }

    /// The candidate that agrees longest, the nearest of several.
    #[inline(always)]
    fn find(&mut self, position: usize, last: usize) -> Found {
        let word = word(&self.page, position);
        let short = std::mem::replace(&mut self.short[short_hash(word)], position as u16);
        let long = std::mem::replace(&mut self.long[long_hash(word)], position as u16);
        // The greater, the better.
        let rate = |candidate: usize| equal_bytes(word, self::word(&self.page, candidate)) * PAGE + candidate;
        let best = rate(short.into()).max(rate(long.into())).max(rate(position - last));
        Found { length: best / PAGE, candidate: best % PAGE }
    }

    /// Enters a position that nothing is looked for at.
    #[inline(always)]
    fn enter(&mut self, position: usize) {
        let word = word(&self.page, position);
        self.short[short_hash(word)] = position as u16;
        self.long[long_hash(word)] = position as u16;
    }

    /// How many bytes from a position on agree with those `distance` back: as many as known, if that is not a whole
    /// word. The second word is compared in any case, as half of the matches go on there.
    #[inline(always)]
    fn agree(&self, position: usize, distance: usize, known: usize) -> usize {
        let compare = |skip: usize| {
            equal_bytes(word(&self.page, position + skip), word(&self.page, position + skip - distance))
        };
        let second = compare(WORD);
        let mut length = known + if known == WORD { second } else { 0 };
        if length == 2 * WORD {
            while length < LONGEST && position + length < PAGE {
                let more = compare(length);
                length += more;
                if more < WORD {
                    break;
                }
            }
        }
        length.min(LONGEST)
    }

    /// Appends a token and counts it. Returns how many there are.
    #[inline(always)]
    fn put(&mut self, count: usize, token: Token) -> usize {
        self.tokens[count % (2 * PAGE)] = token;
        self.counts[token.symbol()] += 1;
        count + 1
    }
}

struct Found {
    /// A whole word at most.
    length: usize,
    candidate: usize,
}

/// How many bytes of two words agree from the first on.
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
fn short_hash(word: u64) -> usize {
    ((word as u32) << 8).wrapping_mul(0x9e37_79b1) as usize >> (32 - SHORT_BITS)
}

#[inline(always)]
fn long_hash(word: u64) -> usize {
    (word.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LONG_BITS)) as usize
}
