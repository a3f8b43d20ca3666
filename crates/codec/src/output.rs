//! What the encoder of LZO writes to, and what all encoders read words with.

/// Masks an index of the output. LZO's worst case, literals only, is some 260 bytes longer than the longest input.
const MASK: usize = 2 * crate::search::MAX_INPUT - 1;
const SLACK: usize = 16;

/// A stream being written. Larger than any index can become, and indices are masked: whole words are written without
/// a bounds check and without `unsafe`, also past the end of what counts. `memcpy` is never called for a few bytes
/// (musl's is slow at that). An array, not a type around a box, whose pointer would be read again for every byte.
pub(crate) type Output = [u8; MASK + 1 + SLACK];

#[inline(always)]
pub(crate) fn put1(output: &mut Output, at: usize, byte: u8) {
    output[at & MASK] = byte;
}

/// Sets bits of a byte already written.
#[inline(always)]
pub(crate) fn add_bits(output: &mut Output, at: usize, bits: u8) {
    output[at & MASK] |= bits;
}

#[inline(always)]
pub(crate) fn put4(output: &mut Output, at: usize, word: u32) {
    let at = at & MASK;
    output[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Writes 16 bytes, beginning `skip` bytes into the literals; what lies behind them does not count.
#[inline(always)]
pub(crate) fn put16(output: &mut Output, at: usize, literals: Literals<'_>, skip: usize) {
    let at = at & MASK;
    let from = literals.from + skip;
    let to = &mut output[at..at + 16];
    if let Some(word) = literals.input.get(from..from + 16) {
        to.copy_from_slice(word);
    } else {
        let rest = literals.input.get(from..).unwrap_or(&[]);
        to[..rest.len()].copy_from_slice(rest);
    }
}

/// Writes literals in steps of 16 bytes. Returns where they end.
#[inline(always)]
pub(crate) fn put_all(output: &mut Output, at: usize, literals: Literals<'_>) -> usize {
    for done in (0..literals.count).step_by(16) {
        put16(output, at + done, literals, done);
    }
    at + literals.count
}

/// Bytes of the input that no match covers.
#[derive(Clone, Copy)]
pub(crate) struct Literals<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) from: usize,
    pub(crate) count: usize,
}

/// A zeroed array on the heap that never was on the stack.
pub(crate) fn zeroed<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    let Ok(array) = vec![T::default(); N].into_boxed_slice().try_into() else {
        unreachable!("the vector was made with the array's length")
    };
    array
}

/// The four bytes at an index, 0 beyond the end.
#[inline(always)]
pub(crate) fn word4(input: &[u8], at: usize) -> u32 {
    input.get(at..at + 4).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// The eight bytes at an index, 0 beyond the end.
#[inline(always)]
pub(crate) fn word8(input: &[u8], at: usize) -> u64 {
    input.get(at..at + 8).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Where the bytes from `a` and those from `b` > `a` stop to agree, told for `b`.
#[inline(always)]
pub(crate) fn agree(input: &[u8], mut a: usize, mut b: usize) -> usize {
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
