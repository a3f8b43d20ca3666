//! The Huffman code of the literals, and the Huffman tree description (RFC 8878, 4.2).

use super::fse::{self, EncodingTable, MAX_SYMBOLS};
use crate::common::bit_writer::{BitWriter, Output, put4};
use crate::common::code_lengths::{HuffmanTree, MAX_LENGTHS};

/// Longest code in bits (`Max_Number_of_Bits`). The format allows 11, but with the tree description pages are
/// smaller with 10.
const MAX_NUMBER_OF_BITS: usize = 10;
/// Largest table log of the weights' FSE table. The format allows 6, which is not smaller, and slower.
const MAX_WEIGHTS_TABLE_LOG: u32 = 5;
/// Most weights that can be written directly, in four bits each.
const MAX_DIRECT_WEIGHTS: usize = 128;
/// Counts below this are sorted by counting them; few bytes of a page occur more often.
const COUNTING_SORT_LIMIT: usize = 128;

pub(super) type Histogram = [u16; 256];

/// A Huffman code for bytes.
pub(super) struct HuffmanCode {
    /// Code of each byte.
    codes: [u16; 256],
    /// `Number_of_Bits` of each byte.
    lengths: [u8; 256],
    /// How many codes have each length.
    per_length: [u16; MAX_LENGTHS],
    /// Length of the longest code.
    longest: usize,
    /// One more than the last byte that occurs.
    symbol_end: usize,
    weights_table: EncodingTable,
    scratch: Box<Scratch>,
}

/// What is only needed to build a code.
struct Scratch {
    /// The bytes that occur, ascending, with their counts in the upper 24 bits.
    present: [u32; 256],
    /// The bytes that occur by ascending count; the tree holds the counts.
    sorted: [u8; 256],
    tree: HuffmanTree,
    count: usize,
}

impl HuffmanCode {
    pub(super) fn new() -> Self {
        Self {
            codes: [0; 256],
            lengths: [0; 256],
            per_length: [0; MAX_LENGTHS],
            longest: 0,
            symbol_end: 0,
            weights_table: EncodingTable::new(),
            scratch: Box::new(Scratch {
                present: [0; 256],
                sorted: [0; 256],
                tree: HuffmanTree::new(),
                count: 0,
            }),
        }
    }

    /// Builds the optimal code of at least two distinct bytes.
    #[inline(always)]
    pub(super) fn build(&mut self, histogram: &Histogram) {
        let Scratch { present, sorted, tree, count } = &mut *self.scratch;
        *count = list_present(histogram, present);
        sort_by_count(&present[..*count], sorted, &mut tree.counts);
        self.per_length = tree.count_lengths(*count, MAX_NUMBER_OF_BITS);
        self.assign_codes();
    }

    /// Assigns codes from the numbers of codes of each length (RFC 8878, 4.2.1.3).
    fn assign_codes(&mut self) {
        let Scratch { present, sorted, count, .. } = &*self.scratch;
        let present = &present[..*count];
        // Lengths by ascending count: written in steps, each over the excess of the one before.
        let mut by_rank = [0_u8; 256 + 16];
        let mut at = 0;
        // Codes are numbered from the longest to the shortest, and those of one length in the order of their
        // bytes.
        let mut next = [0_u16; 16];
        let mut number = 0;
        self.longest = 0;
        for length in (1..=MAX_NUMBER_OF_BITS).rev() {
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
        self.symbol_end = present.last().map_or(0, |&key| usize::from(key as u8) + 1);
    }

    /// Returns the number of bits that bytes with this histogram take.
    pub(super) fn bit_cost(&self, histogram: &Histogram) -> usize {
        histogram
            .iter()
            .zip(&self.lengths)
            .map(|(&count, &length)| u32::from(count) * u32::from(length))
            .sum::<u32>() as usize
    }

    /// Writes the Huffman tree description (RFC 8878, 4.2.1). Returns where the output ends, or `None` if the
    /// format has no description of this code.
    #[inline(always)]
    pub(super) fn write_description(&mut self, output: &mut Output, at: usize) -> Option<usize> {
        // The last weight is implied: it completes the code.
        let count = self.symbol_end - 1;
        let mut weights = [0_u8; 256];
        let above = self.longest as u8 + 1;
        for (weight, &length) in weights.iter_mut().zip(&self.lengths) {
            *weight = if length == 0 { 0 } else { above - length };
        }
        let direct = 1 + count.div_ceil(2);
        if count >= 8
            && let Some(end) = self.write_fse_weights(&weights, count, output, at)
            && (count > MAX_DIRECT_WEIGHTS || end - at <= direct)
        {
            return Some(end);
        }
        if count > MAX_DIRECT_WEIGHTS {
            return None;
        }
        // The second half of the last pair may be unused.
        weights[count] = 0;
        put4(output, at, 127 + count as u32, 1);
        let (pairs, _) = weights.as_chunks::<2>();
        for (pair, [first, second]) in pairs.iter().take(direct - 1).enumerate() {
            put4(output, at + 1 + pair, u32::from(first << 4 | second), 1);
        }
        Some(at + direct)
    }

    /// Writes the weights FSE-compressed (RFC 8878, 4.2.1.2), if the format can express that.
    #[inline(always)]
    fn write_fse_weights(
        &mut self,
        weights: &[u8; 256],
        count: usize,
        output: &mut Output,
        at: usize,
    ) -> Option<usize> {
        let mut counts = [0_u16; MAX_SYMBOLS];
        let mut present = 0;
        for length in 1..=self.longest.min(MAX_NUMBER_OF_BITS) {
            counts[self.longest + 1 - length] = self.per_length[length];
            present += self.per_length[length];
        }
        counts[usize::from(weights[count])] -= 1;
        counts[0] = count as u16 + 1 - present;
        let distinct = counts[..16].iter().filter(|&&count| count > 0).count() as u32;
        if distinct == 1 {
            // The format has no table for a single weight.
            return None;
        }
        let table_log = fse::optimal_table_log(count as u32, distinct, MAX_WEIGHTS_TABLE_LOG);
        let normalized = fse::normalize(&counts, self.longest + 1, count as u32, table_log);
        let begin = normalized.write(output, at + 1);
        self.weights_table.build(&normalized);
        let mut bits = BitWriter::new(begin);
        // Two interleaved states: the first encodes the weights with even indices.
        let table = &self.weights_table;
        let weight = |index: usize| weights[index % 256];
        let (mut even, mut odd);
        let mut index = count & !1;
        if count.is_multiple_of(2) {
            even = table.init_state(weight(index - 2));
            odd = table.init_state(weight(index - 1));
            index -= 2;
        } else {
            even = table.init_state(weight(index));
            odd = table.init_state(weight(index - 1));
            even = table.encode(&mut bits, even, weight(index - 2));
            index -= 2;
        }
        while index > 0 {
            odd = table.encode(&mut bits, odd, weight(index - 1));
            even = table.encode(&mut bits, even, weight(index - 2));
            index -= 2;
            bits.flush(output);
        }
        table.write_state(&mut bits, odd);
        table.write_state(&mut bits, even);
        let end = bits.finish_backward(output);
        let size = end - at - 1;
        put4(output, at, size as u32, 1);
        (size < 128).then_some(end)
    }

    /// Writes a Huffman-coded stream (RFC 8878, 4.2.2), from the last byte to the first. Returns where it
    /// ends.
    #[inline(always)]
    pub(super) fn write_stream(&self, bytes: &[u8], output: &mut Output, at: usize) -> usize {
        let mut bits = BitWriter::new(at);
        let (head, groups) = bytes.as_rchunks::<5>();
        for group in groups.iter().rev() {
            // At most 7 + 5 * 10 bits.
            self.add(group, &mut bits);
            bits.flush(output);
        }
        self.add(head, &mut bits);
        bits.flush(output);
        bits.finish_backward(output)
    }

    /// Adds the codes of a few bytes as one value: added one by one, each would wait for the one before.
    #[inline(always)]
    fn add(&self, bytes: &[u8], bits: &mut BitWriter) {
        let (mut value, mut width) = (0, 0);
        for &byte in bytes.iter().rev() {
            value |= u64::from(self.codes[usize::from(byte)]) << (width & 63);
            width += u32::from(self.lengths[usize::from(byte)]);
        }
        bits.add(value, width);
    }
}

/// Lists the bytes that occur, with their counts in the upper 24 bits. Returns how many there are.
fn list_present(histogram: &Histogram, present: &mut [u32; 256]) -> usize {
    let mut len = 0;
    for (byte, &count) in histogram.iter().enumerate() {
        // Written in any case: whether a byte occurs cannot be predicted.
        present[len % 256] = u32::from(count) << 8 | byte as u32;
        len += usize::from(count > 0);
    }
    len
}

/// Sorts the bytes that occur, and their counts, by ascending count.
fn sort_by_count(present: &[u32], bytes: &mut [u8; 256], counts: &mut [u32]) {
    let bucket = |key: u32| ((key >> 8) as usize).min(COUNTING_SORT_LIMIT - 1);
    // Number of bytes with each count, then the index where the next one goes.
    let mut starts = [0_u8; COUNTING_SORT_LIMIT];
    for &key in present {
        let start = &mut starts[bucket(key)];
        *start = start.wrapping_add(1);
    }
    let mut start = 0_u8;
    for bucket in &mut starts {
        let count = *bucket;
        *bucket = start;
        start = start.wrapping_add(count);
    }
    let frequent = usize::from(starts[COUNTING_SORT_LIMIT - 1]);
    for &key in present {
        let start = &mut starts[bucket(key)];
        let at = usize::from(*start);
        *start = start.wrapping_add(1);
        counts[at] = key >> 8;
        bytes[at] = key as u8;
    }
    // Insertion sort of the few frequent bytes.
    for index in frequent + 1..present.len() {
        let (count, byte) = (counts[index % 256], bytes[index % 256]);
        let mut to = index;
        while to > frequent && counts[(to - 1) % 256] > count {
            counts[to % 256] = counts[(to - 1) % 256];
            bytes[to % 256] = bytes[(to - 1) % 256];
            to -= 1;
        }
        counts[to % 256] = count;
        bytes[to % 256] = byte;
    }
}
