//! The code of the literals: the best lengths for how often each byte occurs, and their description.

use super::fse::{self, SYMBOLS, Table};
use crate::bits::{Bits, Output, put4};
use crate::lengths::{LENGTHS, Tree};

/// The longest code. The format allows 11 bits, but with the description pages are smaller with 10.
const MAX_LENGTH: usize = 10;
/// log2 of the states of the table that the description is coded with. The format allows 6: no smaller, and slower.
const WEIGHTS_LOG: u32 = 5;
/// Most weights that can be described in four bits each.
const MAX_DIRECT: usize = 128;
/// Counts below this are sorted by counting them; few bytes of a page occur more often.
const FEW: usize = 128;

pub(crate) type Histogram = [u16; 256];

/// A code for bytes.
pub(crate) struct Code {
    /// Of each byte.
    codes: [u16; 256],
    lengths: [u8; 256],
    /// How many codes have each length.
    per_length: [u16; LENGTHS],
    longest: usize,
    /// Bytes from here on do not occur.
    end: usize,
    table: Table,
    scratch: Box<Scratch>,
}

/// What is only needed to make a code.
struct Scratch {
    /// The bytes that occur, each below how often it does.
    present: [u32; 256],
    /// The same, the rarest first, and how often each occurs.
    sorted: [u8; 256],
    tree: Tree,
    count: usize,
}

impl Code {
    pub(crate) fn new() -> Self {
        Self {
            codes: [0; 256],
            lengths: [0; 256],
            per_length: [0; LENGTHS],
            longest: 0,
            end: 0,
            table: Table::new(),
            scratch: Box::new(Scratch { present: [0; 256], sorted: [0; 256], tree: Tree::new(), count: 0 }),
        }
    }

    /// Makes the best code for bytes of which at least two differ.
    #[inline(always)]
    pub(crate) fn fit(&mut self, histogram: &Histogram) {
        let Scratch { present, sorted, tree, count } = &mut *self.scratch;
        *count = compact(histogram, present);
        sort(&present[..*count], sorted, &mut tree.counts);
        self.per_length = tree.lengths(*count, MAX_LENGTH);
        self.assign();
    }

    fn assign(&mut self) {
        let Scratch { present, sorted, count, .. } = &*self.scratch;
        let present = &present[..*count];
        // Lengths of the rarest, the next and so on: written in steps, each over what the last wrote too much.
        let mut by_rank = [0_u8; 256 + 16];
        let mut at = 0;
        // Codes are numbered from the longest on, and those of one length in the order of their bytes.
        let mut next = [0_u16; 16];
        let mut number = 0;
        self.longest = 0;
        for length in (1..=MAX_LENGTH).rev() {
            let count = usize::from(self.per_length[length]);
            number >>= 1;
            next[length] = number;
            number += count as u16;
            if count > 0 {
                self.longest = self.longest.max(length);
            }
            for step in (0..count).step_by(16) {
                let at = (at + step) % 256;
                by_rank[at..at + 16].fill(length as u8);
            }
            at += count;
        }
        self.lengths = [0; 256];
        for (&byte, &length) in sorted.iter().zip(&by_rank).take(*count) {
            self.lengths[usize::from(byte)] = length;
        }
        for &key in present {
            let byte = usize::from(key as u8);
            let next = &mut next[usize::from(self.lengths[byte]) % 16];
            self.codes[byte] = *next;
            *next += 1;
        }
        self.end = present.last().map_or(0, |&key| usize::from(key as u8) + 1);
    }

    /// How many bits bytes take that occur so often.
    pub(crate) fn cost(&self, histogram: &Histogram) -> usize {
        histogram
            .iter()
            .zip(&self.lengths)
            .map(|(&count, &length)| u32::from(count) * u32::from(length))
            .sum::<u32>() as usize
    }

    /// Describes the code. Returns where the output ends; `None`: the description would be too long.
    #[inline(always)]
    pub(crate) fn describe(&mut self, output: &mut Output, at: usize) -> Option<usize> {
        // The last byte's is known: it fills up the code.
        let count = self.end - 1;
        let mut weights = [0_u8; 256];
        let above = self.longest as u8 + 1;
        for (weight, &length) in weights.iter_mut().zip(&self.lengths) {
            *weight = if length == 0 { 0 } else { above - length };
        }
        let direct = 1 + count.div_ceil(2);
        if count >= 8
            && let Some(end) = self.describe_entropy(&weights, count, output, at)
            && (count > MAX_DIRECT || end - at <= direct)
        {
            return Some(end);
        }
        if count > MAX_DIRECT {
            return None;
        }
        // The last pair may have half of it to spare.
        weights[count] = 0;
        put4(output, at, 127 + count as u32, 1);
        let (pairs, _) = weights.as_chunks::<2>();
        for (pair, [first, second]) in pairs.iter().take(direct - 1).enumerate() {
            put4(output, at + 1 + pair, u32::from(first << 4 | second), 1);
        }
        Some(at + direct)
    }

    #[inline(always)]
    fn describe_entropy(
        &mut self,
        weights: &[u8; 256],
        count: usize,
        output: &mut Output,
        at: usize,
    ) -> Option<usize> {
        let mut counts = [0_u16; SYMBOLS];
        let mut present = 0;
        for length in 1..=self.longest.min(MAX_LENGTH) {
            counts[self.longest + 1 - length] = self.per_length[length];
            present += self.per_length[length];
        }
        counts[usize::from(weights[count])] -= 1;
        counts[0] = count as u16 + 1 - present;
        let different = counts[..16].iter().filter(|&&count| count > 0).count() as u32;
        if different == 1 {
            // The format has no table for one weight.
            return None;
        }
        let log = fse::log_for(count as u32, different, WEIGHTS_LOG);
        let shares = fse::share(&counts, self.longest + 1, count as u32, log);
        let begin = shares.write(output, at + 1);
        self.table.fill(&shares);
        let mut bits = Bits::new(begin);
        // Two states take turns, the first has the weights with even indices.
        let table = &self.table;
        let weight = |index: usize| weights[index % 256];
        let (mut even, mut odd);
        let mut index = count & !1;
        if count.is_multiple_of(2) {
            even = table.last(weight(index - 2));
            odd = table.last(weight(index - 1));
            index -= 2;
        } else {
            even = table.last(weight(index));
            odd = table.last(weight(index - 1));
            even = table.encode(&mut bits, even, weight(index - 2));
            index -= 2;
        }
        while index > 0 {
            odd = table.encode(&mut bits, odd, weight(index - 1));
            even = table.encode(&mut bits, even, weight(index - 2));
            index -= 2;
            bits.flush(output);
        }
        table.end(&mut bits, odd);
        table.end(&mut bits, even);
        let end = bits.finish_backwards(output);
        let size = end - at - 1;
        put4(output, at, size as u32, 1);
        (size < 128).then_some(end)
    }

    /// Writes a stream of bytes, from the last to the first. Returns where it ends.
    #[inline(always)]
    pub(crate) fn write(&self, bytes: &[u8], output: &mut Output, at: usize) -> usize {
        let mut bits = Bits::new(at);
        let (head, groups) = bytes.as_rchunks::<5>();
        for group in groups.iter().rev() {
            // At most 7 + 5 * 10 bits.
            self.add(group, &mut bits);
            bits.flush(output);
        }
        self.add(head, &mut bits);
        bits.flush(output);
        bits.finish_backwards(output)
    }

    /// Adds a few bytes as one: adding one by one, each would wait for the one before.
    #[inline(always)]
    fn add(&self, bytes: &[u8], bits: &mut Bits) {
        let (mut value, mut width) = (0, 0);
        for &byte in bytes.iter().rev() {
            value |= u64::from(self.codes[usize::from(byte)]) << (width & 63);
            width += u32::from(self.lengths[usize::from(byte)]);
        }
        bits.add(value, width);
    }
}

/// The bytes that occur, each below how often it does.
fn compact(histogram: &Histogram, present: &mut [u32; 256]) -> usize {
    let mut len = 0;
    for (byte, &count) in histogram.iter().enumerate() {
        // Written in any case: whether a byte occurs cannot be guessed.
        present[len % 256] = u32::from(count) << 8 | byte as u32;
        len += usize::from(count > 0);
    }
    len
}

fn sort(present: &[u32], bytes: &mut [u8; 256], counts: &mut [u32]) {
    let bucket = |key: u32| ((key >> 8) as usize).min(FEW - 1);
    // Where bytes that occur so often go; first, how many there are.
    let mut starts = [0_u8; FEW];
    for &key in present {
        let start = &mut starts[bucket(key)];
        *start = start.wrapping_add(1);
    }
    let mut start = 0_u8;
    for few in &mut starts {
        let count = *few;
        *few = start;
        start = start.wrapping_add(count);
    }
    let often = usize::from(starts[FEW - 1]);
    for &key in present {
        let start = &mut starts[bucket(key)];
        let at = usize::from(*start);
        *start = start.wrapping_add(1);
        counts[at] = key >> 8;
        bytes[at] = key as u8;
    }
    // The few frequent ones by insertion.
    for index in often + 1..present.len() {
        let (count, byte) = (counts[index % 256], bytes[index % 256]);
        let mut to = index;
        while to > often && counts[(to - 1) % 256] > count {
            counts[to % 256] = counts[(to - 1) % 256];
            bytes[to % 256] = bytes[(to - 1) % 256];
            to -= 1;
        }
        counts[to % 256] = count;
        bytes[to % 256] = byte;
    }
}
