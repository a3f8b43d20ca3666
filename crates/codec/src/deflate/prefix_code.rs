//! Huffman codes in the canonical form of RFC 1951, 3.2.2.

use super::alphabet::{END_OF_BLOCK, FIRST_CODE_LENGTH, FIRST_DISTANCE, MAX_SYMBOLS};
use crate::common::code_lengths::HuffmanTree;

/// Counts below this are sorted by counting them; few symbols occur more often.
const COUNTING_SORT_LIMIT: usize = 32;

/// The codes of all symbols: the bits in the order in which they are written, the length in the upper half.
pub(super) type Codes = [u32; MAX_SYMBOLS];

/// A prefix code of up to `N` symbols, a power of two.
pub(super) struct PrefixCode<const N: usize> {
    /// The symbols that have a code, ascending, with their counts in the upper half.
    used: [u32; N],
    count: usize,
    /// The same by ascending count.
    sorted: [u32; N],
    tree: HuffmanTree,
    /// Code lengths of the symbols that have a code.
    lengths: [u8; N],
}

impl<const N: usize> PrefixCode<N> {
    pub(super) fn new() -> Self {
        Self { used: [0; N], count: 0, sorted: [0; N], tree: HuffmanTree::new(), lengths: [0; N] }
    }

    /// Returns the symbols that have a code, ascending, each with its count and code length.
    #[inline(always)]
    pub(super) fn symbols(&self) -> impl Iterator<Item = (usize, u32, u8)> {
        self.used[..self.count].iter().map(|&leaf| {
            let symbol = (leaf & 0xffff) as usize % N;
            (symbol, leaf >> 16, self.lengths[symbol])
        })
    }

    /// Returns the last symbol that has a code.
    pub(super) fn last_symbol(&self) -> usize {
        (self.used[(self.count - 1) % N] & 0xffff) as usize
    }

    /// Returns the bits that all symbols take.
    pub(super) fn bit_cost(&self) -> u32 {
        self.symbols().map(|(_, count, length)| count * u32::from(length)).sum()
    }

    /// Returns the bits that all symbols take with other codes.
    pub(super) fn bit_cost_with(&self, codes: &Codes, first: usize) -> u32 {
        self.symbols().map(|(symbol, count, _)| count * (codes[(first + symbol) % MAX_SYMBOLS] >> 16)).sum()
    }

    /// Builds an optimal code of symbols with these counts, of `limit` bits at most. At least two symbols get
    /// a code, so that every decoder finds it complete.
    #[inline(never)]
    pub(super) fn build(&mut self, counts: &[u16], limit: usize) {
        let mut used = 0;
        for (symbol, &count) in counts.iter().enumerate().take(N) {
            self.used[used % N] = u32::from(count) << 16 | symbol as u32;
            used += usize::from(count > 0);
        }
        self.count = used;
        if used < 2 {
            // The other is symbol 0, or symbol 1 if symbol 0 occurs.
            let only = if used == 0 { 0 } else { self.used[0] };
            self.used[..2].copy_from_slice(&if only & 0xffff == 0 { [only, 1] } else { [0, only] });
            self.count = 2;
            for leaf in &self.used[..2] {
                self.lengths[(leaf & 0xffff) as usize % N] = 1;
            }
            return;
        }
        self.sort();
        let per_length = self.tree.count_lengths(used, limit);
        let mut at = 0;
        for length in (1..=limit).rev() {
            let end = (at + usize::from(per_length[length])).min(N);
            for &leaf in &self.sorted[at..end] {
                self.lengths[(leaf & 0xffff) as usize % N] = length as u8;
            }
            at = end;
        }
    }

    /// Sorts the symbols and their counts. Most symbols are rare, and sorted by counting.
    fn sort(&mut self) {
        let used = &self.used[..self.count];
        let mut places = [0_u16; COUNTING_SORT_LIMIT];
        for &leaf in used {
            places[(leaf as usize >> 16).min(COUNTING_SORT_LIMIT - 1)] += 1;
        }
        let mut sum = 0;
        for place in &mut places {
            sum += std::mem::replace(place, sum);
        }
        let frequent = usize::from(places[COUNTING_SORT_LIMIT - 1]);
        for &leaf in used {
            let place = &mut places[(leaf as usize >> 16).min(COUNTING_SORT_LIMIT - 1)];
            self.sorted[usize::from(*place) % N] = leaf;
            *place += 1;
        }
        self.sorted[frequent..self.count].sort_unstable();
        for (count, leaf) in self.tree.counts.iter_mut().zip(&self.sorted[..self.count]) {
            *count = leaf >> 16;
        }
    }

    /// Assigns codes from their lengths (RFC 1951, 3.2.2) to symbols from `first` of `codes`.
    #[inline(never)]
    pub(super) fn assign_codes(&self, codes: &mut Codes, first: usize) {
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
            codes[(first + symbol) % MAX_SYMBOLS] = u32::from(length) << 16 | u32::from(reversed);
        }
    }
}

/// Returns the fixed Huffman codes (RFC 1951, 3.2.6).
pub(super) fn fixed_codes() -> Codes {
    let mut codes = [0; MAX_SYMBOLS];
    for (symbol, place) in codes.iter_mut().enumerate().take(FIRST_CODE_LENGTH) {
        let (code, length) = match symbol {
            FIRST_DISTANCE.. => (symbol - FIRST_DISTANCE, 5),
            280.. => (0b1100_0000 + symbol - 280, 8),
            END_OF_BLOCK.. => (symbol - END_OF_BLOCK, 7),
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

    fn build(counts: &[u16], limit: usize) -> PrefixCode<512> {
        let mut code = PrefixCode::new();
        code.build(counts, limit);
        // Complete, and within the limit.
        let taken: u32 = code.symbols().map(|(_, _, length)| 1 << (limit - usize::from(length))).sum();
        assert_eq!(taken, 1 << limit);
        for (symbol, count, _) in code.symbols() {
            assert_eq!(count, u32::from(counts[symbol]));
        }
        code
    }

    /// Least bits without a length limit: the sum of all internal nodes.
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
    fn codes_have_at_least_two_symbols() {
        for (counts, used) in
            [([0, 0, 0], [0, 1]), ([7, 0, 0], [0, 1]), ([0, 7, 0], [0, 1]), ([0, 0, 7], [0, 2])]
        {
            let code = build(&counts, 15);
            assert!(code.symbols().map(|(symbol, ..)| symbol).eq(used));
            assert_eq!(code.last_symbol(), used[1]);
            assert_eq!(code.bit_cost(), u32::from(counts.iter().sum::<u16>()));
        }
    }

    #[test]
    fn deep_trees_are_limited() {
        // Fibonacci numbers make the deepest tree of a page.
        let mut counts = vec![1_u16, 1];
        while counts.iter().sum::<u16>() + counts[counts.len() - 1] + counts[counts.len() - 2] <= 4097 {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        let deepest = |limit| build(&counts, limit).symbols().map(|(_, _, length)| length).max();
        assert_eq!(build(&counts, 30).bit_cost(), least(&counts));
        assert_eq!(deepest(30), Some(counts.len() as u8 - 1));
        for limit in 4..15 {
            assert_eq!(deepest(limit), Some(limit as u8));
        }
    }

    proptest! {
        #[test]
        fn codes_are_optimal(
            counts in vec(prop_oneof![2 => Just(0_u16), 3 => 1..5_u16, 2 => 1..100_u16, 1 => 1..2000_u16], 3..286),
        ) {
            let mut counts = counts;
            counts[1] += 1;
            counts[2] += 1;
            // Twice the depth of what a page can have.
            prop_assert_eq!(build(&counts, 31).bit_cost(), least(&counts));
            prop_assert!(build(&counts, 9).bit_cost() >= least(&counts));
        }

        #[test]
        fn no_code_is_a_prefix_of_another(counts in vec(0..300_u16, 3..286)) {
            let code = build(&counts, 15);
            let mut codes = [0; MAX_SYMBOLS];
            code.assign_codes(&mut codes, 0);
            let codes: Vec<_> = code.symbols().map(|(symbol, ..)| codes[symbol]).collect();
            for (at, a) in codes.iter().enumerate() {
                for b in &codes[at + 1..] {
                    let shared = (1 << (a >> 16).min(b >> 16)) - 1;
                    prop_assert!(a & shared != b & shared);
                }
            }
        }
    }
}
