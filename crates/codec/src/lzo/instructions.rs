//! Encodes LZO1X instructions: literal runs and copies ("Byte sequences" of `lzo.rst`).

use super::output::{Literals, Output, add_bits, put_all, put1, put4, put16};

/// Largest distance of an instruction `0 1 L D D D S S` or `1 L L D D D S S`: a copy "within 2kB distance".
const MAX_DISTANCE_2K: usize = 2048;
/// Largest distance of an instruction `0 0 1 L L L L L`: a copy "within 16kB distance".
const MAX_DISTANCE_16K: usize = 16384;
/// Largest distance of an instruction `0 0 0 1 H L L L`: a copy "within 16..48kB distance".
pub(super) const MAX_DISTANCE: usize = 16384 + 0x7fff;
/// Longest copies within 16 kB and 48 kB whose length fits the instruction's first byte.
const MAX_INLINE_LENGTH_16K: usize = 33;
const MAX_INLINE_LENGTH_48K: usize = 9;
/// Longest literal run whose length fits the byte of its instruction, `0 0 0 0 L L L L`.
const MAX_INLINE_LITERALS: usize = 18;
/// Longest literal run whose length fits the first byte of the stream ("First byte encoding").
const MAX_FIRST_LITERALS: usize = 238;
/// End of stream: the instruction of a copy within 16..48 kB, length 3, with the distance 16384.
const END_OF_STREAM: u32 = 0x00_00_11;

/// Writes literals, then a copy of `length` bytes, at least 4, from `distance` back, at most
/// [`MAX_DISTANCE`]. Returns where the output ends.
#[inline(always)]
pub(super) fn put_copy(
    output: &mut Output,
    at: usize,
    literals: Literals<'_>,
    length: usize,
    distance: usize,
) -> usize {
    let at = put_literals(output, at, literals);
    put_copy_instruction(output, at, length, distance)
}

/// Writes the last literals, if any, and the end of stream. Returns where the output ends.
pub(super) fn finish(output: &mut Output, at: usize, literals: Literals<'_>) -> usize {
    let at = if literals.count == 0 { at } else { put_literals(output, at, literals) };
    put4(output, at, END_OF_STREAM);
    at + 3
}

/// Writes the literals before a copy or the end. `at` is the end of the previous instruction; 0 if there is
/// none.
#[inline(always)]
fn put_literals(output: &mut Output, at: usize, literals: Literals<'_>) -> usize {
    let count = literals.count;
    if count > 16 || at == 0 {
        return put_literal_run(output, at, literals.input, literals.from, count);
    }
    // A count up to 3 goes into the state bits (S S) of the previous copy, in its last but one byte; a larger
    // one has an instruction. Which it is cannot be predicted, so both are done without a branch.
    let few = count <= 3;
    add_bits(output, at - 2, if few { count as u8 } else { 0 });
    put1(output, at, (count as u8).wrapping_sub(3));
    let at = at + usize::from(!few);
    put16(output, at, literals, 0);
    at + count
}

#[inline(never)]
fn put_literal_run(output: &mut Output, at: usize, input: &[u8], from: usize, count: usize) -> usize {
    let at = if at == 0 && count <= MAX_FIRST_LITERALS {
        put1(output, 0, 17 + count as u8);
        1
    } else if count <= MAX_INLINE_LITERALS {
        put1(output, at, count as u8 - 3);
        at + 1
    } else {
        put1(output, at, 0);
        put_length(output, at + 1, count - MAX_INLINE_LITERALS)
    };
    put_all(output, at, Literals { input, from, count })
}

#[inline(always)]
fn put_copy_instruction(output: &mut Output, at: usize, length: usize, distance: usize) -> usize {
    let back = distance as u32 - 1;
    if length <= 8 && distance <= MAX_DISTANCE_2K {
        put4(output, at, ((length as u32 - 1) << 5) | ((back & 7) << 2) | ((back >> 3) << 8));
        return at + 2;
    }
    if length <= MAX_INLINE_LENGTH_16K && distance <= MAX_DISTANCE_16K {
        put4(output, at, 32 | (length as u32 - 2) | (back << 10));
        return at + 3;
    }
    put_long_copy(output, at, length, distance)
}

#[inline(never)]
fn put_long_copy(output: &mut Output, at: usize, length: usize, distance: usize) -> usize {
    let (opcode, inline_length, back) = if distance <= MAX_DISTANCE_16K {
        (32, MAX_INLINE_LENGTH_16K, distance - 1)
    } else {
        let back = distance - MAX_DISTANCE_16K;
        (16 | (back >> 14) << 3, MAX_INLINE_LENGTH_48K, back & 0x3fff)
    };
    let at = if length <= inline_length {
        put1(output, at, (opcode | (length - 2)) as u8);
        at + 1
    } else {
        put1(output, at, opcode as u8);
        put_length(output, at + 1, length - inline_length)
    };
    put4(output, at, (back as u32) << 2);
    at + 2
}

/// Writes the part of a length that did not fit the instruction, at least 1: a zero byte for each 255, then
/// the rest.
#[inline]
fn put_length(output: &mut Output, mut at: usize, mut rest: usize) -> usize {
    while rest > 255 {
        put1(output, at, 0);
        at += 1;
        rest -= 255;
    }
    put1(output, at, rest as u8);
    at + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::zeroed;
    use crate::lzo::Encoder;

    #[test]
    fn copies_are_encoded_as_documented() {
        let mut output: Box<Output> = zeroed();
        for (length, distance, bytes) in [
            (4, 1, &[0b0110_0000, 0][..]),
            (8, 2048, &[0b1111_1100, 255]),
            (4, 2049, &[0b0010_0010, 0, 0x20]),
            (33, 16384, &[0b0011_1111, 0xfc, 0xff]),
            (34, 1, &[32, 1, 0, 0]),
            (288, 7, &[32, 255, 6 << 2, 0]),
            (289, 7, &[32, 0, 1, 6 << 2, 0]),
            (9, 16385, &[0b0001_0111, 4, 0]),
            (10, 16384 + 0x4000, &[0b0001_1000, 1, 0, 0]),
            (4, MAX_DISTANCE, &[0b0001_1010, 0xfc, 0xff]),
        ] {
            let end = put_copy_instruction(&mut output, 0, length, distance);
            assert_eq!(&output[..end], bytes, "{length} bytes, {distance} back");
        }
    }

    #[test]
    fn literals_go_into_the_state_or_an_instruction() {
        let mut encoder = Encoder::new();
        assert_eq!(encoder.encode(b""), [0x11, 0, 0]);
        assert_eq!(encoder.encode(b"abc"), [20, b'a', b'b', b'c', 0x11, 0, 0]);
        // One literal, a copy of 39 from distance 1 with three literals in its state.
        let mut page = vec![b'a'; 40];
        page.extend_from_slice(b"xyz");
        assert_eq!(encoder.encode(&page), [18, b'a', 32, 39 - 33, 3, 0, b'x', b'y', b'z', 0x11, 0, 0]);
        // The longest literal run with its length in the first byte, and the shortest without.
        let page: Vec<u8> = (0..=255).collect();
        assert_eq!(encoder.encode(&page[..238])[..2], [255, 0]);
        assert_eq!(encoder.encode(&page[..239])[..3], [0, 221, 0]);
    }
}
