//! Sequences as codes of three alphabets (how many literals, how long, how far back) with bits of their own.

use super::fse::{Counts, SYMBOLS};
use super::parse::{MAX_SEQUENCES, MIN_MATCH, PAGE};
use crate::output::zeroed;

/// A sequence as codes and bits.
#[derive(Clone, Copy, Default)]
pub(crate) struct Packed {
    pub(crate) literals: u8,
    pub(crate) length: u8,
    pub(crate) offset: u8,
    /// How many extra bits there are.
    pub(crate) width: u8,
    /// Those of the literals in the lowest places, then those of the length, then those of the offset.
    pub(crate) extra: u64,
}

/// Sequences and how often they have each code.
pub(crate) struct Codes {
    packed: Box<[Packed; MAX_SEQUENCES]>,
    count: usize,
    recent: Recent,
    pub(crate) literals: Counts,
    pub(crate) lengths: Counts,
    pub(crate) offsets: Counts,
}

impl Codes {
    pub(crate) fn new() -> Self {
        Self {
            packed: zeroed(),
            count: 0,
            recent: Recent::default(),
            literals: [0; SYMBOLS],
            lengths: [0; SYMBOLS],
            offsets: [0; SYMBOLS],
        }
    }

    pub(crate) fn clear(&mut self) {
        self.count = 0;
        self.recent = Recent::default();
        self.literals = [0; SYMBOLS];
        self.lengths = [0; SYMBOLS];
        self.offsets = [0; SYMBOLS];
    }

    pub(crate) fn sequences(&self) -> &[Packed] {
        &self.packed[..self.count]
    }

    /// Adds a copy of `length` bytes, at least [`MIN_MATCH`], from `offset` back, behind so many literals.
    #[inline(always)]
    pub(crate) fn add(&mut self, literals: usize, length: usize, offset: usize) {
        let value = self.recent.value(literals, offset as u32);
        let offset = value.ilog2();
        let literals = LITERAL_CODES[literals % PAGE];
        let length = LENGTH_CODES[(length - MIN_MATCH) % PAGE];
        let width = literals.width + length.width;
        let extra = u64::from(literals.extra)
            | u64::from(length.extra) << (literals.width & 63)
            | u64::from(value ^ (1 << offset)) << (width & 63);
        self.packed[self.count % MAX_SEQUENCES] = Packed {
            literals: literals.code,
            length: length.code,
            offset: offset as u8,
            width: width + offset as u8,
            extra,
        };
        self.count += 1;
        self.literals[usize::from(literals.code) % SYMBOLS] += 1;
        self.lengths[usize::from(length.code) % SYMBOLS] += 1;
        self.offsets[offset as usize % SYMBOLS] += 1;
    }
}

/// The three offsets used last, most recent first.
struct Recent([u32; 3]);

impl Default for Recent {
    fn default() -> Self {
        Self([1, 4, 8])
    }
}

impl Recent {
    /// What stands for an offset behind so many literals: 1 to 3 for recent ones, else 3 more than it is.
    #[inline(always)]
    fn value(&mut self, literals: usize, offset: u32) -> u32 {
        let Self([first, second, third]) = *self;
        // Without literals the first would only continue the last match; the numbers mean other offsets then.
        let none = u32::from(literals == 0);
        let is_first = offset == first && none == 0;
        let is_second = offset == second;
        let mut value = offset + 3;
        value = if offset == third { 3 - none } else { value };
        value = if is_second { 2 - none } else { value };
        value = if is_first { 1 } else { value };
        self.0 = [
            offset,
            if is_first { second } else { first },
            if is_first || is_second { third } else { second },
        ];
        value
    }
}

/// A number's code and the bits that tell it from others of the same code.
#[derive(Clone, Copy)]
struct Code {
    code: u8,
    width: u8,
    extra: u16,
}

/// Codes of the numbers below [`PAGE`]: each for itself up to `single`, then with more and more extra bits.
const fn codes(widths: &[u8]) -> [Code; PAGE] {
    let mut codes = [Code { code: 0, width: 0, extra: 0 }; PAGE];
    let mut n = 0;
    let mut code = 0;
    while n < PAGE {
        let width = widths[code];
        let mut extra = 0;
        while extra < 1 << width && n < PAGE {
            codes[n] = Code { code: code as u8, width, extra };
            extra += 1;
            n += 1;
        }
        code += 1;
    }
    codes
}

static LITERAL_CODES: [Code; PAGE] =
    codes(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11]);
/// Of lengths less [`MIN_MATCH`].
static LENGTH_CODES: [Code; PAGE] = codes(&[
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1,
    1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11,
]);
