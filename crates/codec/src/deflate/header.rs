//! How a block's codes are written down (RFC 1951, 3.2.7): the lengths of one after the other, with repeated ones put
//! together, in a code of their own.

use super::prefix::{Codes, Prefix};
use super::symbols::{self, END, FIRST_LENGTH, Token};
use crate::bits::{Bits, Output};

/// Symbols of the code that lengths are written in.
const SYMBOLS: usize = 19;
/// Its longest code.
const LIMIT: usize = 7;
/// The order in which its own lengths are written.
const ORDER: [u8; SYMBOLS] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/// The last length 3 to 6 times more.
const AGAIN: usize = 16;
/// Zeros, 3 to 10 and 11 to 138 of them.
const FEW_ZEROS: usize = 17;
const MANY_ZEROS: usize = 18;
const MOST_ZEROS: usize = 138;

/// What writes that many zeros, and how often.
const ZEROS: [(Token, u8); 256] = {
    let mut zeros = [(length(0, 0, 0), 0); 256];
    let mut count = 1;
    while count <= MOST_ZEROS {
        zeros[count] = match count {
            1 | 2 => (length(0, 0, 0), count as u8),
            3..=10 => (length(FEW_ZEROS, count - 3, 3), 1),
            _ => (length(MANY_ZEROS, count - 11, 7), 1),
        };
        count += 1;
    }
    zeros
};

const fn length(symbol: usize, extra: usize, extra_bits: u32) -> Token {
    Token::new(FIRST_LENGTH + symbol, extra as u32, extra_bits)
}

pub(super) struct Header {
    tokens: [Token; 512],
    count: usize,
    counts: [u16; 32],
    code: Prefix<32>,
    /// How many lengths of either code are written.
    symbols: usize,
    distances: usize,
    /// Lengths of this code, and how many are written.
    lengths: [u8; SYMBOLS],
    written: usize,
    extra_bits: u32,
}

impl Header {
    pub(super) fn new() -> Self {
        Self {
            tokens: [Token::default(); 512],
            count: 0,
            counts: [0; 32],
            code: Prefix::new(),
            symbols: 0,
            distances: 0,
            lengths: [0; SYMBOLS],
            written: 0,
            extra_bits: 0,
        }
    }

    /// Returns how many bits it takes.
    #[inline(never)]
    pub(super) fn make(&mut self, symbols: &Prefix<512>, distances: &Prefix<32>) -> u32 {
        self.count = 0;
        self.extra_bits = 0;
        self.counts = [0; 32];
        self.symbols = symbols.last() + 1;
        self.distances = distances.last() + 1;
        let run = self.lengths(Run { next: 0, length: 0, again: 0 }, symbols, 0);
        let run = self.lengths(run, distances, self.symbols);
        self.fold(run);
        self.code.make(&self.counts, LIMIT);
        self.lengths = [0; SYMBOLS];
        for (symbol, _, length) in self.code.symbols() {
            self.lengths[symbol % SYMBOLS] = length;
        }
        let used = |&symbol: &u8| self.lengths[usize::from(symbol)] > 0;
        self.written = ORDER.iter().rposition(used).map_or(4, |last| (last + 1).max(4));
        5 + 5 + 4 + 3 * self.written as u32 + self.code.bits() + self.extra_bits
    }

    /// Takes the lengths of a code whose first symbol's is the `first`. The gaps between symbols that occur cannot be
    /// guessed: what fills them is looked up.
    #[inline(always)]
    fn lengths<const N: usize>(&mut self, mut run: Run, code: &Prefix<N>, first: usize) -> Run {
        for (symbol, _, bits) in code.symbols() {
            let mut gap = first + symbol - run.next;
            let more = gap == 0 && bits == run.length;
            if !more {
                self.fold(run);
                while gap > MOST_ZEROS {
                    self.put(length(MANY_ZEROS, MOST_ZEROS - 11, 7), 1);
                    gap -= MOST_ZEROS;
                }
                let (token, times) = ZEROS[gap % 256];
                self.put(token, times.into());
            }
            self.put(length(bits.into(), 0, 0), 1);
            run = Run { next: first + symbol + 1, length: bits, again: if more { run.again + 1 } else { 0 } };
        }
        run
    }

    /// Puts repeated lengths together, which were written one by one.
    #[inline(always)]
    fn fold(&mut self, run: Run) {
        let Run { mut again, .. } = run;
        if again < 3 {
            return;
        }
        self.count -= again;
        self.counts[usize::from(run.length) % 32] -= again as u16;
        while again >= 3 {
            let now = again.min(6);
            self.put(length(AGAIN, now - 3, 2), 1);
            again -= now;
        }
        self.put(length(run.length.into(), 0, 0), again);
    }

    /// Adds a token up to twice.
    #[inline(always)]
    fn put(&mut self, token: Token, times: usize) {
        self.tokens[self.count % 512] = token;
        self.tokens[(self.count + 1) % 512] = token;
        self.count += times;
        self.counts[(token.symbol() - FIRST_LENGTH) % 32] += times as u16;
        self.extra_bits += token.extra_bits();
    }

    #[inline(never)]
    pub(super) fn write(&self, codes: &mut Codes, bits: &mut Bits, output: &mut Output) {
        bits.add((self.symbols - (END + 1)) as u64, 5);
        bits.add((self.distances - 1) as u64, 5);
        bits.add((self.written - 4) as u64, 4);
        bits.flush(output);
        for &symbol in &ORDER[..self.written] {
            bits.add(self.lengths[usize::from(symbol)].into(), 3);
            bits.flush(output);
        }
        self.code.write(codes, FIRST_LENGTH);
        symbols::write(&self.tokens[..self.count], codes, bits, output);
    }
}

/// Where the lengths are: the place of the next, the last one, and how often that was written again.
#[derive(Clone, Copy)]
struct Run {
    next: usize,
    length: u8,
    again: usize,
}
