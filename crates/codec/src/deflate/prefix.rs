//! Prefix codes of least length (RFC 1951, 3.2.2).

use super::symbols::{END, FIRST_DISTANCE, FIRST_LENGTH, SYMBOLS};
use crate::lengths::Tree;

/// Counts from this on are rare, and sorted apart.
const MANY: usize = 32;

/// The codes of all symbols: the bits in the order in which they are written, and in the upper half how many they are.
pub(super) type Codes = [u32; SYMBOLS];

/// A code for up to `N` symbols, a power of two.
pub(super) struct Prefix<const N: usize> {
    /// The symbols that have a code, in ascending order, and in the upper half how often each occurs.
    used: [u32; N],
    count: usize,
    /// The same, the rarest first.
    sorted: [u32; N],
    /// How often these occur, and the tree.
    tree: Tree,
    /// Bits of the symbols that have a code.
    lengths: [u8; N],
}

impl<const N: usize> Prefix<N> {
    pub(super) fn new() -> Self {
        Self { used: [0; N], count: 0, sorted: [0; N], tree: Tree::new(), lengths: [0; N] }
    }

    /// The symbols that have a code, in ascending order, how often each occurs and its bits.
    #[inline(always)]
    pub(super) fn symbols(&self) -> impl Iterator<Item = (usize, u32, u8)> {
        self.used[..self.count].iter().map(|&leaf| {
            let symbol = (leaf & 0xffff) as usize % N;
            (symbol, leaf >> 16, self.lengths[symbol])
        })
    }

    /// The last symbol that has a code.
    pub(super) fn last(&self) -> usize {
        (self.used[(self.count - 1) % N] & 0xffff) as usize
    }

    /// Bits of all symbols.
    pub(super) fn bits(&self) -> u32 {
        self.symbols().map(|(_, count, length)| count * u32::from(length)).sum()
    }

    /// Bits of all symbols in other codes.
    pub(super) fn bits_in(&self, codes: &Codes, first: usize) -> u32 {
        self.symbols().map(|(symbol, count, _)| count * (codes[(first + symbol) % SYMBOLS] >> 16)).sum()
    }

    /// A code for symbols that occur so often, of `limit` bits at most. At least two symbols have one, so that every
    /// decoder finds the code complete.
    #[inline(never)]
    pub(super) fn make(&mut self, counts: &[u16], limit: usize) {
        let mut used = 0;
        for (symbol, &count) in counts.iter().enumerate().take(N) {
            self.used[used % N] = u32::from(count) << 16 | symbol as u32;
            used += usize::from(count > 0);
        }
        self.count = used;
        if used < 2 {
            // With the first symbol, or the second if the first is the one.
            let only = if used == 0 { 0 } else { self.used[0] };
            self.used[..2].copy_from_slice(&if only & 0xffff == 0 { [only, 1] } else { [0, only] });
            self.count = 2;
            for leaf in &self.used[..2] {
                self.lengths[(leaf & 0xffff) as usize % N] = 1;
            }
            return;
        }
        self.sort();
        let per_length = self.tree.lengths(used, limit);
        let mut at = 0;
        for length in (1..=limit).rev() {
            let end = (at + usize::from(per_length[length])).min(N);
            for &leaf in &self.sorted[at..end] {
                self.lengths[(leaf & 0xffff) as usize % N] = length as u8;
            }
            at = end;
        }
    }

    /// Most symbols are rare: these are counted into place.
    fn sort(&mut self) {
        let used = &self.used[..self.count];
        let mut places = [0_u16; MANY];
        for &leaf in used {
            places[(leaf as usize >> 16).min(MANY - 1)] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        let many = usize::from(places[MANY - 1]);
        for &leaf in used {
            let place = &mut places[(leaf as usize >> 16).min(MANY - 1)];
            self.sorted[usize::from(*place) % N] = leaf;
            *place += 1;
        }
        self.sorted[many..self.count].sort_unstable();
        for (count, leaf) in self.tree.counts.iter_mut().zip(&self.sorted[..self.count]) {
            *count = leaf >> 16;
        }
    }

    /// The codes of these lengths, of which the first symbol's is the `first` of all.
    #[inline(never)]
    pub(super) fn write(&self, codes: &mut Codes, first: usize) {
        let mut of_length = [0_u16; 16];
        for (_, _, length) in self.symbols() {
            of_length[usize::from(length & 15)] += 1;
        }
        let mut next = [0_u16; 16];
        for length in 1..16 {
            next[length] = (next[length - 1] + of_length[length - 1]) << 1;
        }
        for (symbol, _, length) in self.symbols() {
            let length = length & 15;
            let place = &mut next[usize::from(length)];
            let reversed = place.reverse_bits() >> ((16 - u32::from(length)) & 15);
            *place += 1;
            codes[(first + symbol) % SYMBOLS] = u32::from(length) << 16 | u32::from(reversed);
        }
    }
}

/// The codes that every decoder knows (RFC 1951, 3.2.6).
pub(super) fn fixed() -> Codes {
    let mut codes = [0; SYMBOLS];
    for (symbol, place) in codes.iter_mut().enumerate().take(FIRST_LENGTH) {
        let (code, length) = match symbol {
            FIRST_DISTANCE.. => (symbol - FIRST_DISTANCE, 5),
            280.. => (0b1100_0000 + symbol - 280, 8),
            END.. => (symbol - END, 7),
            144.. => (0b1_1001_0000 + symbol - 144, 9),
            _ => (0b0011_0000 + symbol, 8),
        };
        *place = length << 16 | (code as u32).reverse_bits() >> (32 - length);
    }
    codes
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn make(counts: &[u16], limit: usize) -> Prefix<512> {
        let mut prefix = Prefix::new();
        prefix.make(counts, limit);
        // Complete, and within the limit.
        let taken: u32 = prefix.symbols().map(|(_, _, length)| 1 << (limit - usize::from(length))).sum();
        assert_eq!(taken, 1 << limit);
        for (symbol, count, _) in prefix.symbols() {
            assert_eq!(count, u32::from(counts[symbol]));
        }
        prefix
    }

    /// Least bits without a limit: a node's weight is paid once per level.
    fn least(counts: &[u16]) -> u32 {
        let mut heap: BinaryHeap<_> =
            counts.iter().filter(|&&count| count > 0).map(|&count| Reverse(u32::from(count))).collect();
        let mut bits = 0;
        while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
            bits += a + b;
            heap.push(Reverse(a + b));
        }
        bits
    }

    #[test]
    fn fewer_than_two_symbols_are_made_two() {
        for (counts, used) in
            [([0, 0, 0], [0, 1]), ([7, 0, 0], [0, 1]), ([0, 7, 0], [0, 1]), ([0, 0, 7], [0, 2])]
        {
            let prefix = make(&counts, 15);
            assert!(prefix.symbols().map(|(symbol, ..)| symbol).eq(used));
            assert_eq!(prefix.last(), used[1]);
            assert_eq!(prefix.bits(), u32::from(counts.iter().sum::<u16>()));
        }
    }

    #[test]
    fn the_deepest_trees_are_cut() {
        // Of all counts that make a page, these make the deepest tree.
        let mut counts = vec![1_u16, 1];
        while counts.iter().sum::<u16>() + counts[counts.len() - 1] + counts[counts.len() - 2] <= 4097 {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        let deepest = |limit| make(&counts, limit).symbols().map(|(_, _, length)| length).max();
        assert_eq!(make(&counts, 30).bits(), least(&counts));
        assert_eq!(deepest(30), Some(counts.len() as u8 - 1));
        for limit in 4..15 {
            assert_eq!(deepest(limit), Some(limit as u8));
        }
    }

    proptest! {
        #[test]
        fn codes_are_the_shortest(
            counts in vec(prop_oneof![2 => Just(0_u16), 3 => 1..5_u16, 2 => 1..100_u16, 1 => 1..2000_u16], 3..286),
        ) {
            let mut counts = counts;
            counts[1] += 1;
            counts[2] += 1;
            // Twice the depth of what a page can have.
            prop_assert_eq!(make(&counts, 31).bits(), least(&counts));
            prop_assert!(make(&counts, 9).bits() >= least(&counts));
        }

        #[test]
        fn no_code_begins_another(counts in vec(0..300_u16, 3..286)) {
            let prefix = make(&counts, 15);
            let mut codes = [0; SYMBOLS];
            prefix.write(&mut codes, 0);
            let codes: Vec<_> = prefix.symbols().map(|(symbol, ..)| codes[symbol]).collect();
            for (at, a) in codes.iter().enumerate() {
                for b in &codes[at + 1..] {
                    let shared = (1 << (a >> 16).min(b >> 16)) - 1;
                    prop_assert!(a & shared != b & shared);
                }
            }
        }
    }
}
