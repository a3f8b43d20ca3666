//! LZO1X, written from the description of the bit stream in the kernel's `Documentation/staging/lzo.rst`. Bit stream
//! version 0 only: that is what readers of dumps decode.

use crate::output::{Literals, Output, add_bits, put_all, put1, put4, put16};

/// Farthest back that the three kinds of copy reach.
const NEAR: usize = 2048;
const MIDDLE: usize = 16384;
pub(crate) const FAR: usize = 16384 + 0x7fff;
/// Longest copies that need no byte more for their length.
const MIDDLE_SHORT: usize = 33;
const FAR_SHORT: usize = 9;
/// Longest run of literals after a copy whose length fits the instruction's byte.
const LITERALS_SHORT: usize = 18;
/// Longest run of literals before the first copy whose length fits the stream's first byte.
const FIRST_LITERALS_SHORT: usize = 238;
/// A far copy of distance 16384, which is no distance.
const END: u32 = 0x00_00_11;

/// Writes literals, then a match of `length` bytes, at least 4, `distance` back, at most [`FAR`]. Returns where the
/// output ends.
#[inline(always)]
pub(crate) fn put(
    output: &mut Output,
    at: usize,
    literals: Literals<'_>,
    length: usize,
    distance: usize,
) -> usize {
    let at = put_literals(output, at, literals);
    put_match(output, at, length, distance)
}

/// Writes the literals at the end, if any, and the end itself.
pub(crate) fn finish(output: &mut Output, at: usize, literals: Literals<'_>) -> usize {
    let at = if literals.count == 0 { at } else { put_literals(output, at, literals) };
    put4(output, at, END);
    at + 3
}

/// Literals before a match or the end. `at` is behind the instruction before them, if any.
#[inline(always)]
fn put_literals(output: &mut Output, at: usize, literals: Literals<'_>) -> usize {
    let count = literals.count;
    if count > 16 || at == 0 {
        return put_many_literals(output, at, literals.input, literals.from, count);
    }
    // Up to 3 ride in the two low bits of the previous instruction's last but one byte; more have a byte of their
    // own. Which it is cannot be guessed, so both are done without a branch.
    let few = count <= 3;
    add_bits(output, at - 2, if few { count as u8 } else { 0 });
    put1(output, at, (count as u8).wrapping_sub(3));
    let at = at + usize::from(!few);
    put16(output, at, literals, 0);
    at + count
}

#[inline(never)]
fn put_many_literals(output: &mut Output, at: usize, input: &[u8], from: usize, count: usize) -> usize {
    let at = if at == 0 && count <= FIRST_LITERALS_SHORT {
        put1(output, 0, 17 + count as u8);
        1
    } else if count <= LITERALS_SHORT {
        put1(output, at, count as u8 - 3);
        at + 1
    } else {
        put1(output, at, 0);
        put_length(output, at + 1, count - LITERALS_SHORT)
    };
    put_all(output, at, Literals { input, from, count })
}

#[inline(always)]
fn put_match(output: &mut Output, at: usize, length: usize, distance: usize) -> usize {
    let back = distance as u32 - 1;
    if length <= 8 && distance <= NEAR {
        put4(output, at, ((length as u32 - 1) << 5) | ((back & 7) << 2) | ((back >> 3) << 8));
        return at + 2;
    }
    if length <= MIDDLE_SHORT && distance <= MIDDLE {
        put4(output, at, 32 | (length as u32 - 2) | (back << 10));
        return at + 3;
    }
    put_long_match(output, at, length, distance)
}

#[inline(never)]
fn put_long_match(output: &mut Output, at: usize, length: usize, distance: usize) -> usize {
    let (opcode, short, back) = if distance <= MIDDLE {
        (32, MIDDLE_SHORT, distance - 1)
    } else {
        let back = distance - MIDDLE;
        (16 | (back >> 14) << 3, FAR_SHORT, back & 0x3fff)
    };
    let at = if length <= short {
        put1(output, at, (opcode | (length - 2)) as u8);
        at + 1
    } else {
        put1(output, at, opcode as u8);
        put_length(output, at + 1, length - short)
    };
    put4(output, at, (back as u32) << 2);
    at + 2
}

/// The part of a length that did not fit the instruction, at least 1: 255 per zero byte, then the rest.
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
    use crate::output::zeroed;
    use crate::search::Encoder;

    #[test]
    fn instructions_are_those_of_the_description() {
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
            (4, FAR, &[0b0001_1010, 0xfc, 0xff]),
        ] {
            let end = put_match(&mut output, 0, length, distance);
            assert_eq!(&output[..end], bytes, "{length} bytes, {distance} back");
        }
    }

    #[test]
    fn literals_ride_or_have_a_byte_of_their_own() {
        let mut encoder = Encoder::new();
        assert_eq!(encoder.encode(b""), [0x11, 0, 0]);
        assert_eq!(encoder.encode(b"abc"), [20, b'a', b'b', b'c', 0x11, 0, 0]);
        // One literal, a copy of 39 from 1 back that three literals ride on.
        let mut page = vec![b'a'; 40];
        page.extend_from_slice(b"xyz");
        assert_eq!(encoder.encode(&page), [18, b'a', 32, 39 - 33, 3, 0, b'x', b'y', b'z', 0x11, 0, 0]);
        // The longest run with the first byte's length, and the shortest without.
        let page: Vec<u8> = (0..=255).collect();
        assert_eq!(encoder.encode(&page[..238])[..2], [255, 0]);
        assert_eq!(encoder.encode(&page[..239])[..3], [0, 221, 0]);
    }
}
