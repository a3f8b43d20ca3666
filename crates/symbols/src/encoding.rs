//! The compressed names of kallsyms: each is a length and that many tokens, each token stands for a short string.

use crate::SymbolError;

/// Longest name in characters (KSYM_NAME_LEN is 512 since 6.1, b8a94bfb3395), with the type letter.
const LONGEST: usize = 1024;
/// Tokens in the table.
pub(crate) const TOKENS: usize = 256;

/// The 256 strings that tokens stand for.
#[derive(Debug, Clone)]
pub(crate) struct Tokens {
    table: Vec<u8>,
    index: Vec<u16>,
}

impl Tokens {
    /// From `kallsyms_token_table` and `kallsyms_token_index`.
    pub(crate) fn new(table: Vec<u8>, index: &[u8]) -> Result<Self, SymbolError> {
        let index: Vec<u16> =
            index.as_chunks::<2>().0.iter().take(TOKENS).map(|word| u16::from_le_bytes(*word)).collect();
        if index.len() < TOKENS {
            return Err(SymbolError::Damaged { table: "kallsyms_token_index", reason: "it is too short" });
        }
        Ok(Self { table, index })
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
    fn lengths_have_one_or_two_bytes() {
        assert_eq!(entry(&[2, 7, 8, 9], 0), Some((&[7, 8][..], 3)));
        let mut long = vec![0x80 | 2, 1];
        long.extend([5; 130]);
        assert_eq!(entry(&long, 0), Some((&[5; 130][..], 132)));
        assert_eq!(entry(&long[..50], 0), None);
        assert_eq!(entry(&[], 0), None);
    }
}
