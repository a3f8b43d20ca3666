//! The compressed names of kallsyms: each is a length and that many tokens, each token stands for a short string.

use crate::error::SymbolError;

/// Longest name in characters (KSYM_NAME_LEN is 512 since 6.1, b8a94bfb3395), with the type letter.
const LONGEST: usize = 1024;
/// Tokens in the table.
pub(crate) const TOKENS: usize = 256;

/// The 256 strings that tokens stand for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tokens {
    table: Vec<u8>,
    index: Vec<u16>,
    hashes: Vec<TokenHash>,
}

/// Hashes of a token's text.
#[derive(Debug, Clone, Copy)]
struct TokenHash {
    whole: u32,
    /// Of the text behind the first character, which is the type letter in a name's first token.
    tail: u32,
    /// [`FACTOR`] to the power of the length.
    power: u32,
}

const FACTOR: u32 = 0x0100_0193;

/// Hashes a name so that the hash of a name follows from those of its parts: a polynomial in the characters.
pub(crate) fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, byte| hash.wrapping_mul(FACTOR).wrapping_add(u32::from(*byte)))
}

impl Tokens {
    /// From `kallsyms_token_table` and `kallsyms_token_index`.
    pub(crate) fn new(table: Vec<u8>, index: &[u8]) -> Result<Self, SymbolError> {
        let index: Vec<u16> =
            index.as_chunks::<2>().0.iter().take(TOKENS).map(|word| u16::from_le_bytes(*word)).collect();
        if index.len() < TOKENS {
            return Err(SymbolError::Damaged { table: "kallsyms_token_index", reason: "it is too short" });
        }
        let mut tokens = Self { table, index, hashes: Vec::new() };
        tokens.hashes = (0..=u8::MAX)
            .map(|token| {
                let text = tokens.text(token);
                TokenHash {
                    whole: hash(text),
                    tail: hash(text.get(1..).unwrap_or_default()),
                    power: FACTOR.wrapping_pow(text.len() as u32),
                }
            })
            .collect();
        Ok(tokens)
    }

    /// Returns the [`hash`] of the name that `tokens` stand for, without the type letter.
    pub(crate) fn hash(&self, tokens: &[u8]) -> u32 {
        let of = |token: &u8| self.hashes.get(usize::from(*token)).copied();
        let Some((first, rest)) = tokens.split_first() else { return 0 };
        let start = of(first).map_or(0, |first| first.tail);
        rest.iter()
            .filter_map(of)
            .fold(start, |hash, token| hash.wrapping_mul(token.power).wrapping_add(token.whole))
    }

    fn text(&self, token: u8) -> &[u8] {
        let start = self.index.get(usize::from(token)).map_or(0, |at| usize::from(*at));
        let rest = self.table.get(start..).unwrap_or_default();
        rest.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Writes the name that `tokens` stand for, without the type letter. Returns the letter.
    pub(crate) fn expand(&self, tokens: &[u8], name: &mut Vec<u8>) -> Option<u8> {
        name.clear();
        for token in tokens {
            name.extend_from_slice(self.text(*token));
            if name.len() > LONGEST {
                return None;
            }
        }
        let letter = *name.first()?;
        name.remove(0);
        Some(letter)
    }
}

/// Returns the tokens of the name at `at`, and where the next name starts.
///
/// 73bbb94466fd (6.1) stores lengths from 128 in two bytes (ULEB128). No name before it needs 128 tokens, so the first
/// bit decides for every kernel.
pub(crate) fn entry(names: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let first = usize::from(*names.get(at)?);
    let (len, start) = if first & 0x80 == 0 {
        (first, at + 1)
    } else {
        ((first & 0x7f) | usize::from(*names.get(at + 1)?) << 7, at + 2)
    };
    let end = start + len;
    Some((names.get(start..end)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_tokens_is_that_of_their_name() {
        let texts = [&b"T"[..], b"tdo_", b"_", b"syscall", b"Tx"];
        let mut table = Vec::new();
        let mut index = Vec::new();
        for token in 0..TOKENS {
            index.extend((table.len() as u16).to_le_bytes());
            table.extend(texts[token % texts.len()]);
            table.push(0);
        }
        let tokens = Tokens::new(table, &index).unwrap();
        for encoded in [&[0, 3, 2, 1][..], &[1], &[4, 0], &[0], &[], &[255, 17, 200, 3]] {
            let mut name = Vec::new();
            tokens.expand(encoded, &mut name);
            assert_eq!(tokens.hash(encoded), hash(&name), "{encoded:?}");
        }
    }

    #[test]
    fn lengths_have_one_or_two_bytes() {
        assert_eq!(entry(&[2, 7, 8, 9], 0), Some((&[7, 8][..], 3)));
        let mut long = vec![0x80 | 2, 1];
        long.extend([5; 130]);
        assert_eq!(entry(&long, 0), Some((&[5; 130][..], 132)));
        assert_eq!(entry(&long[..50], 0), None);
        assert_eq!(entry(&[], 0), None);
    }
}
