//! Bit sets over PFNs as dumps keep them: bit *n* of byte *n* / 8 is `1 << (n % 8)`, which on little-endian words is
//! bit *n* % 64 of word *n* / 64.

/// Sets the bits `from..to`.
pub fn set_range(bits: &mut [u64], from: usize, to: usize) {
    apply(bits, from, to, |word, mask| *word |= mask);
}

/// Clears the bits `from..to`.
pub fn clear_range(bits: &mut [u64], from: usize, to: usize) {
    apply(bits, from, to, |word, mask| *word &= !mask);
}

fn apply(bits: &mut [u64], from: usize, to: usize, change: impl Fn(&mut u64, u64)) {
    let mut at = from;
    while at < to {
        let word = at / 64;
        let end = to.min((word + 1) * 64);
        let width = end - at;
        let mask = if width == 64 { u64::MAX } else { ((1 << width) - 1) << (at % 64) };
        change(&mut bits[word], mask);
        at = end;
    }
}

/// Returns whether bit `index` is set; bits past the end are clear.
pub fn get(bits: &[u64], index: usize) -> bool {
    bits.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

/// Returns the number of set bits.
pub fn count(bits: &[u64]) -> u64 {
    bits.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Iterates over the set bits in ascending order.
pub fn ones(bits: &[u64]) -> impl Iterator<Item = usize> + '_ {
    bits.iter().enumerate().flat_map(|(index, &word)| {
        let mut rest = word;
        std::iter::from_fn(move || {
            (rest != 0).then(|| {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                index * 64 + bit
            })
        })
    })
}

/// Iterates over the runs of set bits as `start..end`, in ascending order.
pub fn runs(bits: &[u64]) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next(bits, at, true)?;
        let end = next(bits, start, false).unwrap_or(bits.len() * 64);
        at = end;
        Some(start..end)
    })
}

/// Returns the first bit at or after `from` that is set (`wanted`) or clear (not `wanted`).
pub fn next(bits: &[u64], from: usize, wanted: bool) -> Option<usize> {
    let flip = if wanted { 0 } else { u64::MAX };
    let mut word = from / 64;
    let mut rest = (bits.get(word)? ^ flip) & (u64::MAX << (from % 64));
    while rest == 0 {
        word += 1;
        rest = bits.get(word)? ^ flip;
    }
    Some(word * 64 + rest.trailing_zeros() as usize)
}

/// Sets each bit of `out` if one of `group` bits of `bits` is set, and clears it if none is. `group` is a power of two up to 64.
pub(crate) fn any_of_each(bits: &[u64], group: usize, out: &mut [u64]) {
    let mask = if group == 64 { u64::MAX } else { (1 << group) - 1 };
    let per_word = 64 / group;
    for (out, words) in out.iter_mut().zip(bits.chunks(group)) {
        *out = 0;
        for (place, word) in words.iter().enumerate().filter(|(_, word)| **word != 0) {
            for bit in 0..per_word {
                let any = word >> (bit * group) & mask != 0;
                *out |= u64::from(any) << (place * per_word + bit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_words() {
        let mut bits = [0u64; 4];
        set_range(&mut bits, 60, 200);
        assert_eq!(count(&bits), 140);
        assert!(
            !get(&bits, 59) && get(&bits, 60) && get(&bits, 199) && !get(&bits, 200) && !get(&bits, 9999)
        );
        clear_range(&mut bits, 64, 128);
        assert_eq!(runs(&bits).collect::<Vec<_>>(), [60..64, 128..200]);
        assert_eq!(ones(&bits).count(), 76);
        assert_eq!(next(&bits, 0, true), Some(60));
        assert_eq!(next(&bits, 60, false), Some(64));
        assert_eq!(next(&bits, 200, true), None);
    }

    #[test]
    fn groups_of_bits_become_one() {
        for group in [1, 4, 16, 64] {
            let mut bits = vec![0; 2 * group];
            let set = [0, 5, 63, 64, 2 * group * 64 - 1];
            set.iter().for_each(|&bit| set_range(&mut bits, bit.min(2 * group * 64 - 1), bit + 1));
            let mut out = [u64::MAX; 2];
            any_of_each(&bits, group, &mut out);
            let mut expected: Vec<usize> = set.iter().map(|bit| bit / group).collect();
            expected.dedup();
            assert_eq!(ones(&out).collect::<Vec<_>>(), expected, "groups of {group}");
        }
    }

    #[test]
    fn a_run_may_end_with_the_set() {
        assert!(runs(&[u64::MAX, u64::MAX]).eq(std::iter::once(0..128)));
        assert_eq!(runs(&[]).count(), 0);
    }
}
