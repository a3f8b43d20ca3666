//! Finite state entropy: counts made to add up to a power of two, their description, and the encoder's tables.

use crate::bits::{Bits, Output};

/// More than any alphabet here has.
pub(crate) const SYMBOLS: usize = 64;
/// log2 of the states of the largest table made here. The format allows 9 bits, which pays for thousands of symbols;
/// a page has hundreds.
pub(crate) const MAX_LOG: u32 = 7;
/// log2 of the states of the smallest table that can be described.
pub(crate) const MIN_LOG: u32 = 5;

const MAX_STATES: usize = 1 << MAX_LOG;

/// How often each symbol occurs.
pub(crate) type Counts = [u16; SYMBOLS];

/// How many of a table's states belong to each symbol.
#[derive(Clone)]
pub(crate) struct Shares {
    pub(crate) log: u32,
    /// Symbols from here on have no states.
    pub(crate) end: usize,
    pub(crate) states: [u8; SYMBOLS],
}

/// The `log` that suits `total` symbols, of which `different` differ.
pub(crate) fn log_for(total: u32, different: u32, max: u32) -> u32 {
    // One state per symbol would leave nothing to tell them apart by.
    let least = different.ilog2() + 1;
    let useful = (total.ilog2()).saturating_sub(1);
    useful.max(least).clamp(MIN_LOG, max)
}

/// Shares out the states of a table by counts, which have at least two symbols and the sum `total`.
pub(crate) fn share(counts: &Counts, end: usize, total: u32, log: u32) -> Shares {
    const FRACTION: u32 = 16;
    let mut shares = Shares { log, end, states: [0; SYMBOLS] };
    let size = 1_u32 << log;
    // Symbols with less than one and a half states get one; the others share what remains.
    let rare = (3 * total) >> (log + 1);
    let (mut states, mut rest) = (size, total);
    for &count in &counts[..end] {
        let is_rare = u32::from(count) <= rare;
        states -= u32::from(is_rare && count > 0);
        rest -= if is_rare { u32::from(count) } else { 0 };
    }
    let factor = (states << FRACTION).checked_div(rest).unwrap_or(0);
    let mut left = states as i32;
    let mut most = 0;
    for (symbol, (&count, states)) in counts.iter().zip(&mut shares.states).enumerate().take(end) {
        let count = u32::from(count);
        let share = ((count * factor + (1 << (FRACTION - 1))) >> FRACTION).max(1);
        let is_rare = count <= rare;
        let share = if is_rare { 0 } else { share };
        *states = share.max(u32::from(count > 0)) as u8;
        left -= share as i32;
        most = most.max(share << 8 | symbol as u32);
    }
    // What rounding left or took too much falls on the largest, unless that is much for it.
    let largest = &mut shares.states[most as usize % SYMBOLS];
    let (most, left) = (i32::from(*largest), left);
    if -left * 4 <= most && most + left < size as i32 {
        *largest = (most + left) as u8;
    } else {
        adjust(&mut shares, left);
    }
    shares
}

/// Gives states to the rarest or takes them from whoever has most, one by one.
#[cold]
fn adjust(shares: &mut Shares, left: i32) {
    for _ in left..0 {
        if let Some(most) = shares.states.iter_mut().max() {
            *most -= 1;
        }
    }
    for _ in 0..left {
        if let Some(least) = shares.states.iter_mut().filter(|states| **states > 0).min() {
            *least += 1;
        }
    }
}

impl Shares {
    /// How many bits symbols so distributed take, in 256ths.
    pub(crate) fn cost(&self, counts: &Counts) -> u32 {
        let bits = |(&count, &states): (&u16, &u8)| {
            u32::from(count) * ((self.log << 8) - u32::from(LOG2[usize::from(states)]))
        };
        counts.iter().zip(&self.states).map(bits).sum()
    }

    /// Describes the distribution. Returns where the output ends.
    pub(crate) fn write(&self, output: &mut Output, at: usize) -> usize {
        let mut bits = Bits::new(at);
        bits.add(u64::from(self.log - MIN_LOG), 4);
        let mut left = 1_u32 << self.log;
        let mut symbol = 0;
        while left > 0 {
            let states = u32::from(self.states[symbol % SYMBOLS]);
            symbol += 1;
            // A value from 0 (for "less than one state") to `left` + 1; the smaller ones take a bit less.
            let value = states + 1;
            let width = (left + 1).ilog2() + 1;
            let short = (1 << width) - 2 - left;
            let high = u32::from(value >= 1 << (width - 1));
            bits.add(u64::from(value + high * short), width - u32::from(value < short));
            left -= states;
            if states == 0 {
                let mut more = 0;
                while self.states[symbol % SYMBOLS] == 0 {
                    symbol += 1;
                    more += 1;
                }
                while more >= 3 {
                    bits.add(3, 2);
                    bits.flush(output);
                    more -= 3;
                }
                bits.add(more, 2);
            }
            bits.flush(output);
        }
        bits.finish(output)
    }
}

/// What a symbol does to the state.
#[derive(Clone, Copy, Default)]
struct Step {
    /// Added to a state it makes, above 16 bits, the number of bits to write.
    width: u32,
    /// Added to the rest of a state it makes an index of the next.
    find: u32,
}

/// An encoder's table. A state is at least the table's size and less than double that.
#[derive(Clone)]
pub(crate) struct Table {
    pub(crate) log: u32,
    steps: [Step; SYMBOLS],
    next: [u16; MAX_STATES],
}

impl Table {
    pub(crate) const fn new() -> Self {
        Self { log: 0, steps: [Step { width: 0, find: 0 }; SYMBOLS], next: [0; MAX_STATES] }
    }

    #[inline(always)]
    pub(crate) fn fill(&mut self, shares: &Shares) {
        self.log = shares.log;
        let size = 1_usize << shares.log;
        // Symbols, each as often as it has states: written in steps, over what the one before wrote too much.
        let mut symbols = [0_u8; MAX_STATES + 8];
        // Index of the next state of each symbol.
        let mut starts = [0_u8; SYMBOLS];
        let mut start = 0;
        let tables = self.steps.iter_mut().zip(&mut starts);
        for (symbol, (&states, (own, first))) in shares.states.iter().zip(tables).enumerate().take(shares.end)
        {
            let states = u32::from(states);
            *first = start as u8;
            *own = step(states, start, shares.log);
            for at in (start..start + states.max(1)).step_by(8) {
                let at = at as usize % MAX_STATES;
                symbols[at..at + 8].fill(symbol as u8);
            }
            start += states;
        }
        // The decoder spreads them with this stride; going backwards with its inverse meets them in its order.
        let inverse = INVERSES[shares.log as usize % INVERSES.len()];
        let mut at = 0;
        for state in size..2 * size {
            let start = &mut starts[usize::from(symbols[at % MAX_STATES]) % SYMBOLS];
            self.next[usize::from(*start) % MAX_STATES] = state as u16;
            *start += 1;
            at = (at + inverse) & (size - 1);
        }
    }

    /// Makes a table of a distribution that has symbols with "less than one state", given as -1.
    pub(crate) fn of(distribution: &[i8], log: u32) -> Self {
        let mut table = Self::new();
        table.log = log;
        let size = 1_usize << log;
        let stride = (size >> 1) + (size >> 3) + 3;
        let mut symbols = [0_u8; MAX_STATES];
        let mut high = size;
        for (symbol, &states) in distribution.iter().enumerate() {
            if states < 0 {
                high -= 1;
                symbols[high] = symbol as u8;
            }
        }
        let mut at = 0;
        let mut start = 0;
        let mut starts = [0_usize; SYMBOLS];
        for (symbol, &states) in distribution.iter().enumerate() {
            starts[symbol] = start as usize;
            table.steps[symbol] = step(u32::from(states.unsigned_abs()), start, log);
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
            table.next[*start] = (size + state) as u16;
            *start += 1;
        }
        table
    }

    /// The state that a stream's last symbol leaves, which costs nothing.
    #[inline(always)]
    pub(crate) fn last(&self, symbol: u8) -> u32 {
        let step = self.steps[usize::from(symbol) % SYMBOLS];
        // The symbol's first state. Of its states that needs most bits, never 0 of them: a decoder of weights
        // notices the end by bits that are missing.
        let width = (step.width + (1 << 15)) >> 16;
        let state = (width << 16).wrapping_sub(step.width);
        self.state((state >> width).wrapping_add(step.find))
    }

    /// Writes what tells the state before `symbol` from that after it, and returns the new state.
    #[inline(always)]
    pub(crate) fn encode(&self, bits: &mut Bits, state: u32, symbol: u8) -> u32 {
        let step = self.steps[usize::from(symbol) % SYMBOLS];
        let width = (state + step.width) >> 16;
        // States have at most 8 bits.
        bits.add(u64::from(state), width);
        self.state((state >> (width & 31)).wrapping_add(step.find))
    }

    #[inline(always)]
    fn state(&self, index: u32) -> u32 {
        u32::from(self.next[index as usize % MAX_STATES])
    }

    /// Ends a state: its place in the table.
    #[inline(always)]
    pub(crate) fn end(&self, bits: &mut Bits, state: u32) {
        bits.add(u64::from(state & ((1 << self.log) - 1)), self.log);
    }
}

/// The number that, times the stride of a table of that log2, is 1 modulo its size.
static INVERSES: [usize; 8] = {
    let mut inverses = [0; 8];
    let mut log = MIN_LOG;
    while log <= MAX_LOG {
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

/// The step of a symbol with `states` states, the first of which has the index `start`.
#[inline(always)]
fn step(states: u32, start: u32, log: u32) -> Step {
    // States are told apart by `width` bits or by one less, those below `states << width` by one less.
    let width = log - (states.wrapping_sub(1) | 1).ilog2().min(log);
    Step { width: (width << 16).wrapping_sub(states << width), find: start.wrapping_sub(states) }
}

/// log2 in 256ths of 0 (not used) to 255.
static LOG2: [u16; 256] = {
    let mut table = [0; 256];
    let mut n = 1;
    while n < 256 {
        // Bit by bit: squaring a number doubles its logarithm.
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
