//! The header of a block with dynamic Huffman codes (RFC 1951, 3.2.7): the code lengths of both codes,
//! run-length coded in the code length alphabet.

use super::alphabet::{END_OF_BLOCK, FIRST_CODE_LENGTH};
use super::prefix_code::{Codes, PrefixCode};
use super::symbols::{self, Token};
use crate::common::bit_writer::{BitWriter, Output};

/// Symbols of the code length alphabet.
const CODE_LENGTH_SYMBOLS: usize = 19;
/// Bits of its longest code.
const MAX_CODE_LENGTH: usize = 7;
/// The order in which the lengths of its codes are written.
const ORDER: [u8; CODE_LENGTH_SYMBOLS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// Symbol 16: copies the previous code length 3 to 6 times.
const REPEAT_PREVIOUS: usize = 16;
/// Symbols 17 and 18: a code length of 0 for 3 to 10 and for 11 to 138 times.
const REPEAT_ZERO_3: usize = 17;
const REPEAT_ZERO_11: usize = 18;
const MAX_ZEROS: usize = 138;

/// By number of zeros: the token that writes them, and how often it is written.
const ZEROS: [(Token, u8); 256] = {
    let mut zeros = [(token(0, 0, 0), 0); 256];
    let mut count = 1;
    while count <= MAX_ZEROS {
        zeros[count] = match count {
            1 | 2 => (token(0, 0, 0), count as u8),
            3..=10 => (token(REPEAT_ZERO_3, count - 3, 3), 1),
            _ => (token(REPEAT_ZERO_11, count - 11, 7), 1),
        };
        count += 1;
    }
    zeros
};

/// Returns a token of the code length alphabet.
const fn token(symbol: usize, extra: usize, extra_bits: u32) -> Token {
    Token::new(FIRST_CODE_LENGTH + symbol, extra as u32, extra_bits)
}

pub(super) struct DynamicHeader {
    tokens: [Token; 512],
    count: usize,
    counts: [u16; 32],
    code_lengths: PrefixCode<32>,
    /// Number of literal/length code lengths (HLIT + 257) and distance code lengths (HDIST + 1).
    literal_lengths: usize,
    distances: usize,
    /// Lengths of the code length codes, and how many are written (HCLEN + 4).
    lengths: [u8; CODE_LENGTH_SYMBOLS],
    written: usize,
    extra_bits: u32,
}

impl DynamicHeader {
    pub(super) fn new() -> Self {
        Self {
            tokens: [Token::default(); 512],
            count: 0,
            counts: [0; 32],
            code_lengths: PrefixCode::new(),
            literal_lengths: 0,
            distances: 0,
            lengths: [0; CODE_LENGTH_SYMBOLS],
            written: 0,
            extra_bits: 0,
        }
    }

    /// Builds the header of two codes. Returns the number of bits it takes.
    #[inline(never)]
    pub(super) fn build(&mut self, literal_lengths: &PrefixCode<512>, distances: &PrefixCode<32>) -> u32 {
        self.count = 0;
        self.extra_bits = 0;
        self.counts = [0; 32];
        self.literal_lengths = literal_lengths.last_symbol() + 1;
        self.distances = distances.last_symbol() + 1;
        let run = self.add_code_lengths(Run { next: 0, length: 0, repeats: 0 }, literal_lengths, 0);
        let run = self.add_code_lengths(run, distances, self.literal_lengths);
        self.fold_repeats(run);
        self.code_lengths.build(&self.counts, MAX_CODE_LENGTH);
        self.lengths = [0; CODE_LENGTH_SYMBOLS];
        for (symbol, _, length) in self.code_lengths.symbols() {
            self.lengths[symbol % CODE_LENGTH_SYMBOLS] = length;
        }
        let used = |&symbol: &u8| self.lengths[usize::from(symbol)] > 0;
        self.written = ORDER.iter().rposition(used).map_or(4, |last| (last + 1).max(4));
        5 + 5 + 4 + 3 * self.written as u32 + self.code_lengths.bit_cost() + self.extra_bits
    }

    /// Adds the lengths of a code, that of its first symbol as number `first` of the sequence. The gaps
    /// between symbols that occur cannot be predicted, so what fills them is looked up.
    #[inline(always)]
    fn add_code_lengths<const N: usize>(&mut self, mut run: Run, code: &PrefixCode<N>, first: usize) -> Run {
        for (symbol, _, bits) in code.symbols() {
            let mut gap = first + symbol - run.next;
            let is_repeat = gap == 0 && bits == run.length;
            if !is_repeat {
                self.fold_repeats(run);
                while gap > MAX_ZEROS {
                    self.push(token(REPEAT_ZERO_11, MAX_ZEROS - 11, 7), 1);
                    gap -= MAX_ZEROS;
                }
                let (zeros, times) = ZEROS[gap % 256];
                self.push(zeros, times.into());
            }
            self.push(token(bits.into(), 0, 0), 1);
            let repeats = if is_repeat { run.repeats + 1 } else { 0 };
            run = Run { next: first + symbol + 1, length: bits, repeats };
        }
        run
    }

    /// Replaces the repeats of a run, which were added one by one, with symbols 16.
    #[inline(always)]
    fn fold_repeats(&mut self, run: Run) {
        let Run { mut repeats, .. } = run;
        if repeats < 3 {
            return;
        }
        self.count -= repeats;
        self.counts[usize::from(run.length) % 32] -= repeats as u16;
        while repeats >= 3 {
            let folded = repeats.min(6);
            self.push(token(REPEAT_PREVIOUS, folded - 3, 2), 1);
            repeats -= folded;
        }
        self.push(token(run.length.into(), 0, 0), repeats);
    }

    /// Adds a token up to twice.
    #[inline(always)]
    fn push(&mut self, token: Token, times: usize) {
        self.tokens[self.count % 512] = token;
        self.tokens[(self.count + 1) % 512] = token;
        self.count += times;
        self.counts[(token.symbol() - FIRST_CODE_LENGTH) % 32] += times as u16;
        self.extra_bits += token.extra_bits();
    }

    /// Writes the header (RFC 1951, 3.2.7). Puts the codes of the code length alphabet into `codes`.
    #[inline(never)]
    pub(super) fn write(&self, codes: &mut Codes, bits: &mut BitWriter, output: &mut Output) {
        bits.add((self.literal_lengths - (END_OF_BLOCK + 1)) as u64, 5);
        bits.add((self.distances - 1) as u64, 5);
        bits.add((self.written - 4) as u64, 4);
        bits.flush(output);
        for &symbol in &ORDER[..self.written] {
            bits.add(self.lengths[usize::from(symbol)].into(), 3);
            bits.flush(output);
        }
        self.code_lengths.assign_codes(codes, FIRST_CODE_LENGTH);
        symbols::write_tokens(&self.tokens[..self.count], codes, bits, output);
    }
}

/// A run of equal code lengths.
#[derive(Clone, Copy)]
struct Run {
    /// Index of the next code length.
    next: usize,
    /// The last code length.
    length: u8,
    /// How often it was added again.
    repeats: usize,
}
