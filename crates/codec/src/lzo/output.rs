//! The output of the LZO encoder.

/// Longest input in bytes: positions must fit the table's `u16`.
pub(crate) const MAX_INPUT: usize = 1 << 16;
/// Masks an index of the output. LZO's worst case, literals only, is some 260 bytes longer than the longest
/// input.
const MASK: usize = 2 * MAX_INPUT - 1;
const SLACK: usize = 16;

/// Buffer that a stream is written to.
///
/// It is larger than any index can become, and indices are masked: whole words are written without a bounds
/// check and without `unsafe`, also past the end of the stream. `memcpy` is never called for a few bytes
/// (musl's is slow at that). It is an array, not a type around a box, whose pointer would be read again for
/// every byte.
pub(super) type Output = [u8; MASK + 1 + SLACK];

#[inline(always)]
pub(super) fn put1(output: &mut Output, at: usize, byte: u8) {
    output[at & MASK] = byte;
}

/// Sets bits of a byte already written.
#[inline(always)]
pub(super) fn add_bits(output: &mut Output, at: usize, bits: u8) {
    output[at & MASK] |= bits;
}

#[inline(always)]
pub(super) fn put4(output: &mut Output, at: usize, word: u32) {
    let at = at & MASK;
    output[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

/// Writes 16 bytes, beginning `skip` bytes into the literals. Bytes past the literals are without meaning.
#[inline(always)]
pub(super) fn put16(output: &mut Output, at: usize, literals: Literals<'_>, skip: usize) {
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
pub(super) fn put_all(output: &mut Output, at: usize, literals: Literals<'_>) -> usize {
    for done in (0..literals.count).step_by(16) {
        put16(output, at + done, literals, done);
    }
    at + literals.count
}

/// Bytes of the input that no match covers.
#[derive(Clone, Copy)]
pub(super) struct Literals<'a> {
    pub(super) input: &'a [u8],
    pub(super) from: usize,
    pub(super) count: usize,
}
