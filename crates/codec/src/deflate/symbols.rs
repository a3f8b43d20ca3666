//! Literal/length and distance symbols (RFC 1951, 3.2.5), and tokens: a symbol with its extra bits.

use super::alphabet::{END_OF_BLOCK, FIRST_DISTANCE, LITERAL_LENGTH_SYMBOLS, MAX_MATCH, MAX_SYMBOLS};
use super::prefix_code::Codes;
use crate::common::bit_writer::{BitWriter, Output};

/// A symbol with its extra bits.
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
        Self::new(END_OF_BLOCK, 0, 0)
    }

    /// Returns the token of a match length, 3 to [`MAX_MATCH`].
    #[inline(always)]
    pub(super) fn length(length: usize) -> Self {
        LENGTHS[length & (LENGTHS.len() - 1)]
    }

    /// Returns the token of a distance, at least 1.
    #[inline(always)]
    pub(super) fn distance(distance: usize) -> Self {
        let back = distance as u32 - 1;
        let extra_bits = (back | 2).ilog2() - 1;
        let symbol = FIRST_DISTANCE as u32 + 2 * extra_bits + (back >> extra_bits);
        Self::new(symbol as usize, back & ((1 << extra_bits) - 1), extra_bits)
    }

    /// Returns the symbol, less than [`MAX_SYMBOLS`].
    #[inline(always)]
    pub(super) fn symbol(self) -> usize {
        self.0 as usize % MAX_SYMBOLS
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

/// Writes tokens with these codes. Flushes once per two tokens: a length and a distance take 48 bits at most.
#[inline(always)]
pub(super) fn write_tokens(tokens: &[Token], codes: &Codes, bits: &mut BitWriter, output: &mut Output) {
    let add = |bits: &mut BitWriter, token: Token| {
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

/// Tokens of the match lengths.
const LENGTHS: [Token; 512] = {
    let mut tokens = [Token(0); 512];
    let mut length = 3;
    while length < MAX_MATCH {
        let over = length as u32 - 3;
        // The first eight lengths have a symbol each; then every four symbols the lengths per symbol double.
        let extra_bits = if over < 8 { 0 } else { over.ilog2() - 2 };
        let symbol = END_OF_BLOCK as u32 + 1 + 4 * extra_bits + (over >> extra_bits);
        tokens[length] = Token::new(symbol as usize, over & ((1 << extra_bits) - 1), extra_bits);
        length += 1;
    }
    tokens[MAX_MATCH] = Token::new(LITERAL_LENGTH_SYMBOLS - 1, 0, 0);
    tokens
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deflate::alphabet::DISTANCE_SYMBOLS;

    /// `table` has the least number of each symbol and its extra bits, as the tables of RFC 1951, 3.2.5.
    fn check(tokens: impl Iterator<Item = (usize, Token)>, first: usize, table: &[(usize, u32)]) {
        for (number, token) in tokens {
            let symbol = token.symbol() - first;
            let (least, extra_bits) = table[symbol];
            assert_eq!(token.extra_bits(), extra_bits, "{number}");
            assert_eq!(least + token.extra() as usize, number);
            assert!(token.extra() < 1 << extra_bits);
            // Where two symbols are possible, it is the later one.
            assert!(table.get(symbol + 1).is_none_or(|&(next, _)| number < next), "{number}");
        }
    }

    #[test]
    fn lengths_are_those_of_the_rfc() {
        let least = [
            3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131,
            163, 195, 227, 258,
        ];
        let extra_bits =
            [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
        let table: Vec<_> = least.into_iter().zip(extra_bits).collect();
        check((3..=MAX_MATCH).map(|length| (length, Token::length(length))), END_OF_BLOCK + 1, &table);
    }

    #[test]
    fn distances_are_those_of_the_rfc() {
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
        assert_eq!(table.len(), DISTANCE_SYMBOLS);
        check((1..=4096).map(|distance| (distance, Token::distance(distance))), FIRST_DISTANCE, &table);
    }
}
