//! Symbols of DEFLATE: literals, lengths, distances (RFC 1951, 3.2.5), and the tokens that pages become.

use super::prefix::Codes;
use crate::bits::{Bits, Output};

/// The end of a block.
pub(super) const END: usize = 256;
/// The longest match.
pub(super) const LONGEST: usize = 258;
/// Symbols of literals, of the end, and of lengths.
pub(super) const LITERALS_AND_LENGTHS: usize = 286;
/// Distances up to 4096 have these.
pub(super) const DISTANCES: usize = 24;
/// Where distances start among all symbols: they follow the others, so that one table serves both.
pub(super) const FIRST_DISTANCE: usize = 288;
/// Where the symbols of the code of lengths start.
pub(super) const FIRST_LENGTH: usize = 320;
/// Size of a table of all symbols; a mask of its indices leaves no bounds to check.
pub(super) const SYMBOLS: usize = 512;

/// A symbol with the bits that follow it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Token(u32);

impl Token {
    pub(super) const fn new(symbol: usize, extra: u32, extra_bits: u32) -> Self {
        Self(symbol as u32 | extra_bits << 9 | extra << 16)
    }

    #[inline(always)]
    pub(super) fn literal(byte: u8) -> Self {
        Self(byte.into())
    }

    pub(super) const fn end() -> Self {
        Self::new(END, 0, 0)
    }

    /// A length of 3 to [`LONGEST`].
    #[inline(always)]
    pub(super) fn length(length: usize) -> Self {
        LENGTHS[length & (LENGTHS.len() - 1)]
    }

    /// A distance from 1 on.
    #[inline(always)]
    pub(super) fn distance(distance: usize) -> Self {
        let back = distance as u32 - 1;
        let extra_bits = (back | 2).ilog2() - 1;
        let symbol = FIRST_DISTANCE as u32 + 2 * extra_bits + (back >> extra_bits);
        Self::new(symbol as usize, back & ((1 << extra_bits) - 1), extra_bits)
    }

    /// Less than [`SYMBOLS`].
    #[inline(always)]
    pub(super) fn symbol(self) -> usize {
        self.0 as usize % SYMBOLS
    }

    #[inline(always)]
    pub(super) fn extra(self) -> u32 {
        self.0 >> 16
    }

    #[inline(always)]
    pub(super) fn extra_bits(self) -> u32 {
        self.0 >> 9 & 15
    }
}

/// Writes tokens in these codes. A flush per two of them: a length and a distance take 48 bits at most.
#[inline(always)]
pub(super) fn write(tokens: &[Token], codes: &Codes, bits: &mut Bits, output: &mut Output) {
    let add = |bits: &mut Bits, token: Token| {
        let code = codes[token.symbol()];
        let length = code >> 16;
        let word = u64::from(code & 0xffff) | u64::from(token.extra()) << length;
        bits.add(word, length + token.extra_bits());
    };
    let (pairs, rest) = tokens.as_chunks::<2>();
    for &[a, b] in pairs {
        add(bits, a);
        add(bits, b);
        bits.flush(output);
    }
    for &token in rest {
        add(bits, token);
        bits.flush(output);
    }
}

const LENGTHS: [Token; 512] = {
    let mut tokens = [Token(0); 512];
    let mut length = 3;
    while length < LONGEST {
        let over = length as u32 - 3;
        // Eight lengths have a symbol each; then the symbols stand for twice as many after every fourth.
        let extra_bits = if over < 8 { 0 } else { over.ilog2() - 2 };
        let symbol = END as u32 + 1 + 4 * extra_bits + (over >> extra_bits);
        tokens[length] = Token::new(symbol as usize, over & ((1 << extra_bits) - 1), extra_bits);
        length += 1;
    }
    tokens[LONGEST] = Token::new(LITERALS_AND_LENGTHS - 1, 0, 0);
    tokens
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The least of each symbol, and the bits behind it, as the tables of the RFC have them.
    fn check(tokens: impl Iterator<Item = (usize, Token)>, first: usize, table: &[(usize, u32)]) {
        for (number, token) in tokens {
            let symbol = token.symbol() - first;
            let (least, extra_bits) = table[symbol];
            assert_eq!(token.extra_bits(), extra_bits, "{number}");
            assert_eq!(least + token.extra() as usize, number);
            assert!(token.extra() < 1 << extra_bits);
            // Where two symbols would do, it must be the later one.
            assert!(table.get(symbol + 1).is_none_or(|&(next, _)| number < next), "{number}");
        }
    }

    #[test]
    fn lengths_are_those_of_the_description() {
        let least = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
            163, 195, 227, 258,
        ];
        let extra_bits =
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
        let table: Vec<_> = least.into_iter().zip(extra_bits).collect();
        check((3..=LONGEST).map(|length| (length, Token::length(length))), END + 1, &table);
    }

    #[test]
    fn distances_are_those_of_the_description() {
        let table = [
            (1, 0),
            (2, 0),
            (3, 0),
            (4, 0),
            (5, 1),
            (7, 1),
            (9, 2),
            (13, 2),
            (17, 3),
            (25, 3),
            (33, 4),
            (49, 4),
            (65, 5),
            (97, 5),
            (129, 6),
            (193, 6),
            (257, 7),
            (385, 7),
            (513, 8),
            (769, 8),
            (1025, 9),
            (1537, 9),
            (2049, 10),
            (3073, 10),
        ];
        assert_eq!(table.len(), DISTANCES);
        check((1..=4096).map(|distance| (distance, Token::distance(distance))), FIRST_DISTANCE, &table);
    }
}
