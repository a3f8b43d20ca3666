//! Sequences as literals length codes, match length codes and offset codes with extra bits (RFC 8878,
//! 3.1.1.3.2.1.1).

use super::fse::{Counts, MAX_SYMBOLS};
use super::limits::{MAX_SEQUENCES, MIN_MATCH, PAGE};
use crate::common::zeroed;

/// A sequence as codes and extra bits.
#[derive(Clone, Copy, Default)]
pub(super) struct CodedSequence {
    pub(super) literals_length: u8,
    pub(super) match_length: u8,
    pub(super) offset: u8,
    /// Number of extra bits.
    pub(super) extra_width: u8,
    /// Extra bits of the literals length in the lowest places, then those of the match length, then those of
    /// the offset.
    pub(super) extra: u64,
}

/// Coded sequences, and how often each code occurs.
pub(super) struct CodedSequences {
    sequences: Box<[CodedSequence; MAX_SEQUENCES]>,
    count: usize,
    repeat_offsets: RepeatOffsets,
    pub(super) literals_lengths: Counts,
    pub(super) match_lengths: Counts,
    pub(super) offsets: Counts,
}

impl CodedSequences {
    pub(super) fn new() -> Self {
        Self {
            sequences: zeroed(),
            count: 0,
            repeat_offsets: RepeatOffsets::default(),
            literals_lengths: [0; MAX_SYMBOLS],
            match_lengths: [0; MAX_SYMBOLS],
            offsets: [0; MAX_SYMBOLS],
        }
    }

    pub(super) fn clear(&mut self) {
        self.count = 0;
        self.repeat_offsets = RepeatOffsets::default();
        self.literals_lengths = [0; MAX_SYMBOLS];
        self.match_lengths = [0; MAX_SYMBOLS];
        self.offsets = [0; MAX_SYMBOLS];
    }

    pub(super) fn sequences(&self) -> &[CodedSequence] {
        &self.sequences[..self.count]
    }

    /// Adds a sequence: `literals_length` literals, then a match of `match_length` bytes, at least
    /// [`MIN_MATCH`], at `offset`.
    #[inline(always)]
    pub(super) fn add(&mut self, literals_length: usize, match_length: usize, offset: usize) {
        let offset_value = self.repeat_offsets.offset_value(literals_length, offset as u32);
        let offset_code = offset_value.ilog2();
        let literals_length = LITERALS_LENGTH_CODES[literals_length % PAGE];
        let match_length = MATCH_LENGTH_CODES[(match_length - MIN_MATCH) % PAGE];
        let width = literals_length.extra_width + match_length.extra_width;
        let extra = u64::from(literals_length.extra)
            | u64::from(match_length.extra) << (literals_length.extra_width & 63)
            | u64::from(offset_value ^ (1 << offset_code)) << (width & 63);
        self.sequences[self.count % MAX_SEQUENCES] = CodedSequence {
            literals_length: literals_length.code,
            match_length: match_length.code,
            offset: offset_code as u8,
            extra_width: width + offset_code as u8,
            extra,
        };
        self.count += 1;
        self.literals_lengths[usize::from(literals_length.code) % MAX_SYMBOLS] += 1;
        self.match_lengths[usize::from(match_length.code) % MAX_SYMBOLS] += 1;
        self.offsets[offset_code as usize % MAX_SYMBOLS] += 1;
    }
}

/// The repeat offsets, most recent first (RFC 8878, 3.1.1.5).
struct RepeatOffsets([u32; 3]);

impl Default for RepeatOffsets {
    fn default() -> Self {
        Self([1, 4, 8])
    }
}

impl RepeatOffsets {
    /// Returns the `Offset_Value` of an offset after so many literals: 1 to 3 for a repeat offset, else the
    /// offset + 3.
    #[inline(always)]
    fn offset_value(&mut self, literals_length: usize, offset: u32) -> u32 {
        let Self([first, second, third]) = *self;
        // Without literals the first repeat offset would only continue the last match; the values are shifted
        // by one.
        let shift = u32::from(literals_length == 0);
        let is_first = offset == first && shift == 0;
        let is_second = offset == second;
        let mut value = offset + 3;
        value = if offset == third { 3 - shift } else { value };
        value = if is_second { 2 - shift } else { value };
        value = if is_first { 1 } else { value };
        self.0 = [
            offset,
            if is_first { second } else { first },
            if is_first || is_second { third } else { second },
        ];
        value
    }
}

/// The code of a length, and the extra bits that distinguish it from others with the same code.
#[derive(Clone, Copy)]
struct LengthCode {
    code: u8,
    extra_width: u8,
    extra: u16,
}

/// Returns the codes of the lengths below [`PAGE`], given the number of extra bits of each code.
const fn length_codes(extra_widths: &[u8]) -> [LengthCode; PAGE] {
    let mut codes = [LengthCode { code: 0, extra_width: 0, extra: 0 }; PAGE];
    let mut n = 0;
    let mut code = 0;
    while n < PAGE {
        let extra_width = extra_widths[code];
        let mut extra = 0;
        while extra < 1 << extra_width && n < PAGE {
            codes[n] = LengthCode { code: code as u8, extra_width, extra };
            extra += 1;
            n += 1;
        }
        code += 1;
    }
    codes
}

static LITERALS_LENGTH_CODES: [LengthCode; PAGE] = length_codes(&[
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11,
]);
/// Codes of match lengths minus [`MIN_MATCH`].
static MATCH_LENGTH_CODES: [LengthCode; PAGE] = length_codes(&[
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
    1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11,
]);
