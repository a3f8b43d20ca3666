//! Finite State Entropy (RFC 8878, 4.1): normalized counts, their description, and encoding tables.

use crate::common::bit_writer::{BitWriter, Output};

/// More symbols than any alphabet here has.
pub(super) const MAX_SYMBOLS: usize = 64;
/// log2 of the size of the largest table made here. The format allows up to 9, which pays for thousands of
/// symbols; a page has hundreds.
const MAX_TABLE_LOG: u32 = 7;
/// Smallest table log (`Accuracy_Log`) that a table description can state.
const MIN_TABLE_LOG: u32 = 5;

const MAX_TABLE_SIZE: usize = 1 << MAX_TABLE_LOG;

/// How often each symbol occurs.
pub(super) type Counts = [u16; MAX_SYMBOLS];

/// Counts scaled so that their sum is the table size: the number of states of each symbol.
#[derive(Clone)]
pub(super) struct NormalizedCounts {
    pub(super) table_log: u32,
    /// One more than the last symbol that has states.
    pub(super) symbol_end: usize,
    pub(super) counts: [u8; MAX_SYMBOLS],
}

/// Returns the table log that suits `total` symbols, of which `distinct` are distinct.
pub(super) fn optimal_table_log(total: u32, distinct: u32, max: u32) -> u32 {
    // With one state per symbol all symbols would have the same probability.
    let least = distinct.ilog2() + 1;
    let useful = (total.ilog2()).saturating_sub(1);
    useful.max(least).clamp(MIN_TABLE_LOG, max)
}

/// Normalizes counts, which have at least two symbols and the sum `total`.
pub(super) fn normalize(counts: &Counts, symbol_end: usize, total: u32, table_log: u32) -> NormalizedCounts {
    const FRACTION: u32 = 16;
    let mut normalized = NormalizedCounts { table_log, symbol_end, counts: [0; MAX_SYMBOLS] };
    let size = 1_u32 << table_log;
    // Symbols with less than one and a half states get one; the others share the remaining states.
    let rare = (3 * total) >> (table_log + 1);
    let (mut states, mut rest) = (size, total);
    for &count in &counts[..symbol_end] {
        let is_rare = u32::from(count) <= rare;
        states -= u32::from(is_rare && count > 0);
        rest -= if is_rare { u32::from(count) } else { 0 };
    }
    let factor = (states << FRACTION).checked_div(rest).unwrap_or(0);
    let mut left = states as i32;
    let mut most = 0;
    for (symbol, (&count, states)) in counts.iter().zip(&mut normalized.counts).enumerate().take(symbol_end) {
        let count = u32::from(count);
        let scaled = ((count * factor + (1 << (FRACTION - 1))) >> FRACTION).max(1);
        let is_rare = count <= rare;
        let scaled = if is_rare { 0 } else { scaled };
        *states = scaled.max(u32::from(count > 0)) as u8;
        left -= scaled as i32;
        most = most.max(scaled << 8 | symbol as u32);
    }
    // The most frequent symbol absorbs the rounding error, unless it is large compared with its count.
    let largest = &mut normalized.counts[most as usize % MAX_SYMBOLS];
    let (most, left) = (i32::from(*largest), left);
    if -left * 4 <= most && most + left < size as i32 {
        *largest = (most + left) as u8;
    } else {
        correct_sum(&mut normalized, left);
    }
    normalized
}

/// Adds `left` states to the rarest symbols, or takes that many from the most frequent ones, one by one.
#[cold]
fn correct_sum(normalized: &mut NormalizedCounts, left: i32) {
    for _ in left..0 {
        if let Some(most) = normalized.counts.iter_mut().max() {
            *most -= 1;
        }
    }
    for _ in 0..left {
        if let Some(least) = normalized.counts.iter_mut().filter(|states| **states > 0).min() {
            *least += 1;
        }
    }
}

impl NormalizedCounts {
    /// Returns the bits that symbols with these counts take, in 256ths.
    pub(super) fn bit_cost(&self, counts: &Counts) -> u32 {
        let bits = |(&count, &states): (&u16, &u8)| {
            u32::from(count) * ((self.table_log << 8) - u32::from(LOG2[usize::from(states)]))
        };
        counts.iter().zip(&self.counts).map(bits).sum()
    }

    /// Writes the FSE table description (RFC 8878, 4.1.1). Returns where the output ends.
    pub(super) fn write(&self, output: &mut Output, at: usize) -> usize {
        let mut bits = BitWriter::new(at);
        bits.add(u64::from(self.table_log - MIN_TABLE_LOG), 4);
        let mut left = 1_u32 << self.table_log;
        let mut symbol = 0;
        while left > 0 {
            let states = u32::from(self.counts[symbol % MAX_SYMBOLS]);
            symbol += 1;
            // A value from 0 (for a probability "less than 1") to `left` + 1; the smaller ones take one bit
            // less.
            let value = states + 1;
            let width = (left + 1).ilog2() + 1;
            let short = (1 << width) - 2 - left;
            let high = u32::from(value >= 1 << (width - 1));
            bits.add(u64::from(value + high * short), width - u32::from(value < short));
            left -= states;
            if states == 0 {
                // Repeat flags: how many more symbols have no states.
                let mut zeros = 0;
                while self.counts[symbol % MAX_SYMBOLS] == 0 {
                    symbol += 1;
                    zeros += 1;
                }
                while zeros >= 3 {
                    bits.add(3, 2);
                    bits.flush(output);
                    zeros -= 3;
                }
                bits.add(zeros, 2);
            }
            bits.flush(output);
        }
        bits.finish(output)
    }
}

/// How encoding a symbol changes the state (libzstd's `FSE_symbolCompressionTransform`).
#[derive(Clone, Copy, Default)]
struct SymbolTransform {
    /// Added to a state, makes the number of bits to write, in the upper 16 bits.
    delta_nb_bits: u32,
    /// Added to the remaining bits of a state, makes the index of the next state.
    delta_find_state: u32,
}

/// Encoding table. A state is at least the table size and less than double that.
#[derive(Clone)]
pub(super) struct EncodingTable {
    table_log: u32,
    transforms: [SymbolTransform; MAX_SYMBOLS],
    next_states: [u16; MAX_TABLE_SIZE],
}

impl EncodingTable {
    pub(super) const fn new() -> Self {
        Self {
            table_log: 0,
            transforms: [SymbolTransform { delta_nb_bits: 0, delta_find_state: 0 }; MAX_SYMBOLS],
            next_states: [0; MAX_TABLE_SIZE],
        }
    }

    /// Builds the table that a decoder builds from the same normalized counts (RFC 8878, 4.1.1).
    #[inline(always)]
    pub(super) fn build(&mut self, normalized: &NormalizedCounts) {
        self.table_log = normalized.table_log;
        let size = 1_usize << normalized.table_log;
        // Symbols, each as often as it has states: written in steps, each over the excess of the one before.
        let mut symbols = [0_u8; MAX_TABLE_SIZE + 8];
        // Index of the next state of each symbol.
        let mut starts = [0_u8; MAX_SYMBOLS];
        let mut start = 0;
        let tables = self.transforms.iter_mut().zip(&mut starts);
        for (symbol, (&states, (transform, first))) in
            normalized.counts.iter().zip(tables).enumerate().take(normalized.symbol_end)
        {
            let states = u32::from(states);
            *first = start as u8;
            *transform = symbol_transform(states, start, normalized.table_log);
            for at in (start..start + states.max(1)).step_by(8) {
                let at = at as usize % MAX_TABLE_SIZE;
                symbols[at..at + 8].fill(symbol as u8);
            }
            start += states;
        }
        // The decoder spreads the symbols with a stride; stepping by its inverse visits them in the decoder's
        // order.
        let inverse = STRIDE_INVERSES[normalized.table_log as usize % STRIDE_INVERSES.len()];
        let mut at = 0;
        for state in size..2 * size {
            let start = &mut starts[usize::from(symbols[at % MAX_TABLE_SIZE]) % MAX_SYMBOLS];
            self.next_states[usize::from(*start) % MAX_TABLE_SIZE] = state as u16;
            *start += 1;
            at = (at + inverse) & (size - 1);
        }
    }

    /// Builds a table from a distribution in which -1 stands for a probability "less than 1".
    pub(super) fn from_distribution(distribution: &[i8], table_log: u32) -> Self {
        let mut table = Self::new();
        table.table_log = table_log;
        let size = 1_usize << table_log;
        let stride = (size >> 1) + (size >> 3) + 3;
        let mut symbols = [0_u8; MAX_TABLE_SIZE];
        let mut high = size;
        for (symbol, &states) in distribution.iter().enumerate() {
            if states < 0 {
                high -= 1;
                symbols[high] = symbol as u8;
            }
        }
        let mut at = 0;
        let mut start = 0;
        let mut starts = [0_usize; MAX_SYMBOLS];
        for (symbol, &states) in distribution.iter().enumerate() {
            starts[symbol] = start as usize;
            table.transforms[symbol] = symbol_transform(u32::from(states.unsigned_abs()), start, table_log);
            start += u32::from(states.unsigned_abs());
            for _ in 0..states {
                symbols[at] = symbol as u8;
                at = (at + stride) & (size - 1);
                while at >= high {
                    at = (at + stride) & (size - 1);
                }
            }
        }
        for (state, &symbol) in symbols[..size].iter().enumerate() {
            let start = &mut starts[usize::from(symbol)];
            table.next_states[*start] = (size + state) as u16;
            *start += 1;
        }
        table
    }

    /// Returns the state after the last symbol of a stream, which is encoded first and takes no bits.
    #[inline(always)]
    pub(super) fn init_state(&self, symbol: u8) -> u32 {
        let transform = self.transforms[usize::from(symbol) % MAX_SYMBOLS];
        // The symbol's first state. Of its states it takes the most bits, never 0: a decoder of Huffman
        // weights recognizes the end by missing bits.
        let nb_bits = (transform.delta_nb_bits + (1 << 15)) >> 16;
        let state = (nb_bits << 16).wrapping_sub(transform.delta_nb_bits);
        self.state((state >> nb_bits).wrapping_add(transform.delta_find_state))
    }

    /// Writes the bits by which a decoder gets from the state of `symbol` back to `state`. Returns the new
    /// state.
    #[inline(always)]
    pub(super) fn encode(&self, bits: &mut BitWriter, state: u32, symbol: u8) -> u32 {
        let transform = self.transforms[usize::from(symbol) % MAX_SYMBOLS];
        let nb_bits = (state + transform.delta_nb_bits) >> 16;
        // States have at most 8 bits.
        bits.add(u64::from(state), nb_bits);
        self.state((state >> (nb_bits & 31)).wrapping_add(transform.delta_find_state))
    }

    #[inline(always)]
    fn state(&self, index: u32) -> u32 {
        u32::from(self.next_states[index as usize % MAX_TABLE_SIZE])
    }

    /// Writes the final state, from which a decoder starts: its index in the table.
    #[inline(always)]
    pub(super) fn write_state(&self, bits: &mut BitWriter, state: u32) {
        bits.add(u64::from(state & ((1 << self.table_log) - 1)), self.table_log);
    }
}

/// By table log: the multiplicative inverse of the stride, modulo the table size.
static STRIDE_INVERSES: [usize; 8] = {
    let mut inverses = [0; 8];
    let mut log = MIN_TABLE_LOG;
    while log <= MAX_TABLE_LOG {
        let size = 1 << log;
        let stride = (size >> 1) + (size >> 3) + 3;
        let mut inverse = 1;
        while inverse * stride % size != 1 {
            inverse += 2;
        }
        inverses[log as usize] = inverse;
        log += 1;
    }
    inverses
};

/// Returns the transform of a symbol with `states` states, the first of which has the index `start`.
#[inline(always)]
fn symbol_transform(states: u32, start: u32, table_log: u32) -> SymbolTransform {
    // A state takes `nb_bits` bits, one less if it is below `states << nb_bits`.
    let nb_bits = table_log - (states.wrapping_sub(1) | 1).ilog2().min(table_log);
    SymbolTransform {
        delta_nb_bits: (nb_bits << 16).wrapping_sub(states << nb_bits),
        delta_find_state: start.wrapping_sub(states),
    }
}

/// log2 in 256ths of 0 (not used) to 255.
static LOG2: [u16; 256] = {
    let mut table = [0; 256];
    let mut n = 1;
    while n < 256 {
        // One bit at a time: squaring a number doubles its logarithm.
        let whole = (n as u64).ilog2();
        let mut x = (n as u64) << (32 - whole);
        let mut log = whole as u16;
        let mut bit = 0;
        while bit < 8 {
            x = ((x as u128 * x as u128) >> 32) as u64;
            log *= 2;
            if x >> 33 > 0 {
                x >>= 1;
                log += 1;
            }
            bit += 1;
        }
        table[n] = log;
        n += 1;
    }
    table
};
