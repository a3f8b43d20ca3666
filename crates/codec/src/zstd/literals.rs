//! The section of literals: as they are, one repeated, or coded.

use super::huffman::{Code, Histogram};
use super::parse::PAGE;
use crate::bits::{Output, put4};

/// Fewer literals are not worth the description of a code.
const WORTH_CODING: usize = 48;
/// Most literals that may be coded as one stream.
const MAX_SINGLE: usize = 1023;

const RAW: u32 = 0;
const ONE: u32 = 1;
const CODED: u32 = 2;

pub(crate) struct Coder {
    code: Code,
}

impl Coder {
    pub(crate) fn new() -> Self {
        Self { code: Code::new() }
    }

    /// Writes the section and returns where it ends. `None`: that is behind a whole page.
    #[inline(always)]
    pub(crate) fn encode(&mut self, literals: &[u8], output: &mut Output, at: usize) -> Option<usize> {
        let end = if literals.len() < WORTH_CODING { None } else { self.code(literals, output, at) };
        end.or_else(|| raw(literals, output, at))
    }

    /// Codes literals, if that saves anything.
    #[inline(always)]
    fn code(&mut self, literals: &[u8], output: &mut Output, at: usize) -> Option<usize> {
        let len = literals.len();
        let histogram = count(literals);
        let most = usize::from(*histogram.iter().max()?);
        if most == len {
            let at = put_plain_header(output, at, ONE, len);
            put4(output, at, u32::from(literals[0]), 1);
            return Some(at + 1);
        }
        // Nothing that stands out.
        if most <= (len >> 7) + 4 {
            return None;
        }
        self.code.fit(&histogram);
        let least = self.code.cost(&histogram) / 8;
        if least >= len {
            return None;
        }
        let header = if len <= MAX_SINGLE { 3 } else { 4 };
        let start = at + header;
        let streams = self.code.describe(output, start)?;
        if streams - start + least + (len >> 6) >= len {
            return None;
        }
        let end = if len <= MAX_SINGLE {
            self.code.write(literals, output, streams)
        } else {
            self.write_four(literals, output, streams)
        };
        let size = (end - start) as u32;
        if len <= MAX_SINGLE {
            put4(output, at, CODED | (len as u32) << 4 | size << 14, 3);
        } else {
            put4(output, at, CODED | 2 << 2 | (len as u32) << 4 | size << 18, 4);
        }
        Some(end)
    }

    fn write_four(&self, literals: &[u8], output: &mut Output, at: usize) -> usize {
        let mut end = at + 6;
        for (index, part) in literals.chunks(literals.len().div_ceil(4)).enumerate() {
            let start = end;
            end = self.code.write(part, output, start);
            // The last one's size is what remains.
            if index < 3 {
                put4(output, at + 2 * index, (end - start) as u32, 2);
            }
        }
        end
    }
}

fn raw(literals: &[u8], output: &mut Output, at: usize) -> Option<usize> {
    let at = put_plain_header(output, at, RAW, literals.len());
    let end = at + literals.len();
    if end >= PAGE {
        return None;
    }
    output[at..end].copy_from_slice(literals);
    Some(end)
}

/// The header of literals that are not coded: as many bytes as their number needs.
fn put_plain_header(output: &mut Output, at: usize, kind: u32, len: usize) -> usize {
    let (word, size) = match len {
        ..32 => ((len as u32) << 3, 1),
        32..4096 => (1 << 2 | (len as u32) << 4, 2),
        _ => (3 << 2 | (len as u32) << 4, 3),
    };
    put4(output, at, word | kind, size);
    at + size
}

fn count(literals: &[u8]) -> Histogram {
    // Four tables: an increment must wait for an earlier one of the same byte.
    let mut tables = [[0_u16; 256]; 4];
    let [a, b, c, d] = &mut tables;
    let (groups, rest) = literals.as_chunks::<4>();
    for group in groups {
        a[usize::from(group[0])] += 1;
        b[usize::from(group[1])] += 1;
        c[usize::from(group[2])] += 1;
        d[usize::from(group[3])] += 1;
    }
    for &byte in rest {
        a[usize::from(byte)] += 1;
    }
    for index in 0..256 {
        a[index] += b[index] + c[index] + d[index];
    }
    *a
}
