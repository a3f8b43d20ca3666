//! Words of a page, and the lengths of matches.

/// Returns the four bytes at an index, 0 beyond the end.
#[inline(always)]
pub(crate) fn word4(input: &[u8], at: usize) -> u32 {
    input.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Returns the eight bytes at an index, 0 beyond the end.
#[inline(always)]
pub(crate) fn word8(input: &[u8], at: usize) -> u64 {
    input.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Returns the end of the match of the bytes from `b` with those from `a` < `b`.
#[inline(always)]
pub(crate) fn match_end(input: &[u8], mut a: usize, mut b: usize) -> usize {
    while b + 8 <= input.len() {
        let differ = word8(input, a) ^ word8(input, b);
        if differ != 0 {
            return b + differ.trailing_zeros() as usize / 8;
        }
        a += 8;
        b += 8;
    }
    while b < input.len() && input[a] == input[b] {
        a += 1;
        b += 1;
    }
    b
}
