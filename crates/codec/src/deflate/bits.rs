//! A stream of bits, the lowest of each byte first.

use super::prefix::Codes;
use super::symbols::Token;
use crate::output::{MASK, Output};

pub(super) struct Bits<'a> {
    output: &'a mut Output,
    at: usize,
    buffer: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    /// Goes on behind `start`.
    pub(super) fn new(output: &'a mut Output, start: &[u8]) -> Self {
        output[..start.len()].copy_from_slice(start);
        Self { output, at: start.len(), buffer: 0, count: 0 }
    }

    /// Adds the lowest `count` bits; the others must be zero. Between two flushes 56 bits at most.
    #[inline(always)]
    pub(super) fn add(&mut self, bits: u64, count: u32) {
        self.buffer |= bits << (self.count & 63);
        self.count += count;
    }

    /// Writes whole bytes down.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        let at = self.at & MASK;
        self.output[at..at + 8].copy_from_slice(&self.buffer.to_le_bytes());
        self.at += (self.count / 8) as usize;
        self.buffer >>= self.count & 56;
        self.count &= 7;
    }

    /// A flush per two tokens: a length and a distance take 48 bits at most.
    #[inline(always)]
    pub(super) fn tokens(&mut self, tokens: &[Token], codes: &Codes) {
        let (pairs, rest) = tokens.as_chunks::<2>();
        for &[a, b] in pairs {
            self.token(a, codes);
            self.token(b, codes);
            self.flush();
        }
        for &token in rest {
            self.token(token, codes);
            self.flush();
        }
    }

    #[inline(always)]
    fn token(&mut self, token: Token, codes: &Codes) {
        let code = codes[token.symbol()];
        let length = code >> 16;
        let bits = u64::from(code & 0xffff) | u64::from(token.extra()) << length;
        self.add(bits, length + token.extra_bits());
    }

    /// Fills the last byte with zeros. Returns where the stream ends.
    pub(super) fn finish(mut self) -> usize {
        self.count += 7;
        self.flush();
        self.at
    }
}
