//! An encoder of LZO1X, written from the description of the bit stream in the kernel's
//! `Documentation/staging/lzo.rst`. Bit stream version 0 only: that is what readers of dumps decode.
//!
//! Greedy parsing over one hash table. What costs time is the processor guessing wrong, so choices that depend on the
//! data are made by arithmetic where possible. Both buffers are fixed arrays larger than any index can become, and
//! indices are masked: whole words are read and written without a bounds check and without `unsafe`, also past the
//! end of what counts, and `memcpy` is never called for a few bytes (musl's is slow at that).

/// Longest input in bytes: positions must fit the table's `u16`.
pub(crate) const MAX_INPUT: usize = 1 << 16;

/// Bytes that may be read behind the last position.
const INPUT_SLACK: usize = 64;
/// Masks an index of the output. The worst case, literals only, is some 260 bytes longer than the input.
const OUTPUT_MASK: usize = 2 * MAX_INPUT - 1;
const OUTPUT_SLACK: usize = 64;

/// Largest page that the small table serves.
const SMALL_INPUT: usize = 4096;
/// log2 of the table's entries for small pages. 12 bits make them 0.4 % smaller and take 2 % longer.
const SMALL_BITS: u32 = 11;
const LARGE_BITS: u32 = 14;

/// Farthest back that the three kinds of copy reach.
const NEAR: usize = 2048;
const MIDDLE: usize = 16384;
const FAR: usize = 16384 + 0x7fff;
/// Longest copies that need no byte more for their length.
const MIDDLE_SHORT: usize = 33;
const FAR_SHORT: usize = 9;
/// Longest run of literals after a copy whose length fits the instruction's byte.
const LITERALS_SHORT: usize = 18;
/// Longest run of literals before the first copy whose length fits the stream's first byte.
const FIRST_LITERALS_SHORT: usize = 238;

/// The shortest match looked for.
const MIN_MATCH: usize = 4;
/// Inputs shorter than this are literals only.
const MIN_INPUT: usize = 16;
/// Every 2^n literals without a match, the search strides wider by one.
const STRIDE_BITS: u32 = 5;
/// A far copy of distance 16384, which is no distance.
const END: u32 = 0x00_00_11;

type Input = [u8; MAX_INPUT + INPUT_SLACK];
type Output = [u8; OUTPUT_MASK + 1 + OUTPUT_SLACK];
type Table = [u16; 1 << LARGE_BITS];

/// Buffers and hash table of the encoder. Only the parts that a page reaches are ever touched.
pub(crate) struct Encoder {
    input: Box<Input>,
    output: Box<Output>,
    table: Box<Table>,
}

/// A zeroed array on the heap that never was on the stack.
fn zeroed<T: Copy + Default, const N: usize>() -> Box<[T; N]> {
    let Ok(array) = vec![T::default(); N].into_boxed_slice().try_into() else {
        unreachable!("the vector was made with the array's length")
    };
    array
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { input: zeroed(), output: zeroed(), table: zeroed() }
    }

    /// Encodes up to [`MAX_INPUT`] bytes (what lies behind is left out) and returns the stream.
    pub(crate) fn encode(&mut self, page: &[u8]) -> &[u8] {
        let length = page.len().min(MAX_INPUT);
        self.input[..length].copy_from_slice(&page[..length]);
        let end = if length <= SMALL_INPUT {
            encode::<SMALL_BITS>(&self.input, length, &mut self.output, &mut self.table)
        } else {
            encode::<LARGE_BITS>(&self.input, length, &mut self.output, &mut self.table)
        };
        &self.output[..end]
    }
}

fn encode<const BITS: u32>(input: &Input, length: usize, output: &mut Output, table: &mut Table) -> usize {
    // An empty entry names position 0, which is as good a candidate as any: candidates are compared.
    table[..1 << BITS].fill(0);
    let mut at = 0;
    // Where the literals not yet written start.
    let mut pending = 0;
    if length >= MIN_INPUT {
        let last = length - MIN_MATCH;
        let mut position = 1;
        'search: loop {
            let mut candidate;
            let mut reach = position - pending + (1 << STRIDE_BITS);
            loop {
                if position > last {
                    break 'search;
                }
                let word = word4(input, position);
                let entry = &mut table[hash::<BITS>(word)];
                candidate = usize::from(*entry);
                *entry = position as u16;
                let in_reach = length <= FAR || position - candidate <= FAR;
                if word4(input, candidate) == word && in_reach {
                    break;
                }
                let stride = reach >> STRIDE_BITS;
                position += stride;
                reach += stride;
            }
            at = put_literals(input, pending, position - pending, output, at);
            let end = agree(input, candidate + MIN_MATCH, position + MIN_MATCH, length);
            at = put_match(output, at, end - position, position - candidate);
            position = end;
            pending = position;
        }
    }
    if pending < length {
        at = put_literals(input, pending, length - pending, output, at);
    }
    put4(output, at, END);
    at + 3
}

#[inline(always)]
fn hash<const BITS: u32>(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize
}

/// Where the bytes from `a` and those from `b` > `a` stop to agree, told for `b`, which stays within `end`.
#[inline(always)]
fn agree(input: &Input, mut a: usize, mut b: usize, end: usize) -> usize {
    // What lies behind the end is left from earlier pages; it can make the answer too large, but `end` limits it.
    loop {
        let differ = word16(input, a) ^ word16(input, b);
        if differ != 0 {
            return end.min(b + (differ.trailing_zeros() / 8) as usize);
        }
        a += 16;
        b += 16;
        if b >= end {
            return end;
        }
    }
}

/// Literals before a match or the end. `at` is behind the instruction before them, if any.
#[inline(always)]
fn put_literals(input: &Input, from: usize, count: usize, output: &mut Output, at: usize) -> usize {
    if at == 0 {
        return put_first_literals(input, from, count, output);
    }
    if count > LITERALS_SHORT {
        return put_many_literals(input, from, count, output, at);
    }
    // Up to 3 ride in the two low bits of the previous instruction's last but one byte; more have a byte of their
    // own. Both are done without a branch.
    let few = count <= 3;
    output[(at - 2) & OUTPUT_MASK] |= if few { count as u8 } else { 0 };
    put1(output, at, (count as u8).wrapping_sub(3));
    let at = at + usize::from(!few);
    copy16(input, from, output, at);
    copy16(input, from + 16, output, at + 16);
    at + count
}

#[inline(never)]
fn put_first_literals(input: &Input, from: usize, count: usize, output: &mut Output) -> usize {
    if count > FIRST_LITERALS_SHORT {
        return put_many_literals(input, from, count, output, 0);
    }
    put1(output, 0, 17 + count as u8);
    copy(input, from, count, output, 1)
}

#[inline(never)]
fn put_many_literals(input: &Input, from: usize, count: usize, output: &mut Output, at: usize) -> usize {
    put1(output, at, 0);
    let at = put_length(output, at + 1, count - LITERALS_SHORT);
    copy(input, from, count, output, at)
}

/// A match of `length` bytes, at least [`MIN_MATCH`], `distance` back, at most [`FAR`].
#[inline(always)]
fn put_match(output: &mut Output, at: usize, length: usize, distance: usize) -> usize {
    if length > MIDDLE_SHORT + 255 || distance > MIDDLE {
        return put_long_match(output, at, length, distance);
    }
    // Three encodings of 2, 3 and 4 bytes: make all, pick one without a branch.
    let back = (distance - 1) as u32;
    let long = length > MIDDLE_SHORT;
    let near = length <= 8 && distance <= NEAR;
    let two = ((length as u32 - 1) << 5) | ((back & 7) << 2) | ((back >> 3) << 8);
    let three = 32 | (length as u32 - 2) | (back << 10);
    let four = 32 | ((length as u32).wrapping_sub(MIDDLE_SHORT as u32) << 8) | (back << 18);
    let more = if long { four } else { three };
    put4(output, at, if near { two } else { more });
    at + 3 + usize::from(long) - usize::from(near)
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

#[inline(always)]
fn word4(input: &Input, at: usize) -> u32 {
    let at = at & (MAX_INPUT - 1);
    u32::from_le_bytes([input[at], input[at + 1], input[at + 2], input[at + 3]])
}

#[inline(always)]
fn word16(input: &Input, at: usize) -> u128 {
    let at = at & (MAX_INPUT - 1);
    let mut word = [0; 16];
    word.copy_from_slice(&input[at..at + 16]);
    u128::from_le_bytes(word)
}

#[inline(always)]
fn put1(output: &mut Output, at: usize, byte: u8) {
    output[at & OUTPUT_MASK] = byte;
}

#[inline(always)]
fn put4(output: &mut Output, at: usize, word: u32) {
    let at = at & OUTPUT_MASK;
    output[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

#[inline(always)]
fn copy16(input: &Input, from: usize, output: &mut Output, to: usize) {
    let from = from & (MAX_INPUT - 1);
    let to = to & OUTPUT_MASK;
    output[to..to + 16].copy_from_slice(&input[from..from + 16]);
}

/// Copies `count` bytes, in steps of 16.
#[inline(always)]
fn copy(input: &Input, from: usize, count: usize, output: &mut Output, to: usize) -> usize {
    for done in (0..count).step_by(16) {
        copy16(input, from + done, output, to + done);
    }
    to + count
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // One literal, a copy of 15 from 1 back that three literals ride on.
        let mut page = vec![b'a'; 16];
        page.extend_from_slice(b"xyz");
        assert_eq!(encoder.encode(&page), [18, b'a', 32 | 13, 3, 0, b'x', b'y', b'z', 0x11, 0, 0]);
        // The longest run with the first byte's length, and the shortest without.
        let page: Vec<u8> = (0..=255).collect();
        assert_eq!(encoder.encode(&page[..238])[..2], [255, 0]);
        assert_eq!(encoder.encode(&page[..239])[..3], [0, 221, 0]);
    }
}
