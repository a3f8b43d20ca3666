//! An encoder of LZO1X, written from the description of the bit stream in the kernel's
//! `Documentation/staging/lzo.rst`. Bit stream version 0 only: that is what readers of dumps decode.
//!
//! Greedy parsing over one hash table. Both buffers are fixed arrays larger than any index can become, so the inner
//! loop reads and writes whole words without bounds checks and without `unsafe`, and never calls `memcpy` for a few
//! bytes (musl's is slow at that).

/// Longest input in bytes: positions must fit the table's `u16`.
pub(crate) const MAX_INPUT: usize = 1 << 16;

/// log2 of the table's entries.
const HASH_BITS: u32 = 12;
/// Bytes that may be read behind the last position.
const INPUT_SLACK: usize = 64;
/// Index mask of the output buffer.
const OUTPUT_MASK: usize = (1 << 17) - 1;
const OUTPUT_SLACK: usize = 64;

/// The farthest copy a far instruction can name: 16384 + 15 bits.
const MAX_DISTANCE: usize = 16384 + 0x7fff;
const NEAR_DISTANCE: usize = 2048;
const MIDDLE_DISTANCE: usize = 16384;
/// The shortest match looked for.
const MIN_MATCH: usize = 4;
/// Inputs shorter than this are literals only.
const MIN_INPUT: usize = 16;
/// Literals skipped before the search strides wider: every 2^n literals the stride grows by one.
const STRIDE_BITS: u32 = 5;

type Input = [u8; MAX_INPUT + INPUT_SLACK];
type Output = [u8; OUTPUT_MASK + 1 + OUTPUT_SLACK];
type Table = [u16; 1 << HASH_BITS];

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
        // An empty entry names position 0, which is as good a candidate as any: candidates are compared.
        self.table.fill(0);
        let end = encode(&self.input, length, &mut self.output, &mut self.table);
        &self.output[..end]
    }
}

#[inline(always)]
fn word4(bytes: &Input, at: usize) -> u32 {
    let at = at & (MAX_INPUT - 1);
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline(always)]
fn word8(bytes: &Input, at: usize) -> u64 {
    let at = at & (MAX_INPUT - 1);
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[inline(always)]
fn hash(word: u32) -> usize {
    (word.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}

/// Writes 4 bytes at `at`.
#[inline(always)]
fn put4(output: &mut Output, at: usize, word: u32) {
    let at = at & OUTPUT_MASK;
    output[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

#[inline(always)]
fn put1(output: &mut Output, at: usize, byte: u8) {
    output[at & OUTPUT_MASK] = byte;
}

/// Copies 16 bytes.
#[inline(always)]
fn copy16(input: &Input, from: usize, output: &mut Output, to: usize) {
    let from = from & (MAX_INPUT - 1);
    let to = to & OUTPUT_MASK;
    output[to..to + 16].copy_from_slice(&input[from..from + 16]);
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

/// Literals before a match. `at` is behind the instruction before them, if any.
#[inline(always)]
fn put_literals(input: &Input, from: usize, count: usize, output: &mut Output, at: usize) -> usize {
    if at == 0 {
        return put_first_literals(input, from, count, output);
    }
    if count > 16 {
        return put_many_literals(input, from, count, output, at);
    }
    // Up to 3 ride in the two low bits of the previous instruction's last but one byte; more have a byte of their
    // own. Both are done without a branch: which one it is cannot be predicted.
    let few = count <= 3;
    let riding = if few { count as u8 } else { 0 };
    output[(at - 2) & OUTPUT_MASK] |= riding;
    put1(output, at, (count as u8).wrapping_sub(3));
    let at = at + usize::from(!few);
    copy16(input, from, output, at);
    at + count
}

#[inline(never)]
fn put_first_literals(input: &Input, from: usize, count: usize, output: &mut Output) -> usize {
    if count == 0 {
        return 0;
    }
    if count <= 238 {
        put1(output, 0, 17 + count as u8);
        return copy_literals(input, from, count, output, 1);
    }
    put_many_literals(input, from, count, output, 0)
}

#[inline(never)]
fn put_many_literals(input: &Input, from: usize, count: usize, output: &mut Output, mut at: usize) -> usize {
    if count <= 18 {
        put1(output, at, (count - 3) as u8);
        at += 1;
    } else {
        put1(output, at, 0);
        at = put_length(output, at + 1, count - 18);
    }
    copy_literals(input, from, count, output, at)
}

#[inline(always)]
fn copy_literals(input: &Input, from: usize, count: usize, output: &mut Output, at: usize) -> usize {
    let mut done = 0;
    while done < count {
        copy16(input, from + done, output, at + done);
        done += 16;
    }
    at + count
}

/// A match of `length` ≥ 3 bytes (2 where it is far), `distance` bytes back.
#[inline(always)]
fn put_match(output: &mut Output, at: usize, length: usize, distance: usize) -> usize {
    if length > 33 || distance > MIDDLE_DISTANCE {
        return put_long_match(output, at, length, distance);
    }
    let back = (distance - 1) as u32;
    let near = ((length as u32 - 1) << 5) | ((back & 7) << 2) | ((back >> 3) << 8);
    let middle = 32 | (length as u32 - 2) | (back << 10);
    let is_near = (length <= 8) & (distance <= NEAR_DISTANCE);
    put4(output, at, if is_near { near } else { middle });
    at + 3 - usize::from(is_near)
}

#[inline(never)]
fn put_long_match(output: &mut Output, mut at: usize, length: usize, distance: usize) -> usize {
    let (opcode, short, back) = if distance <= MIDDLE_DISTANCE {
        (32, 33, distance - 1)
    } else {
        let back = distance - MIDDLE_DISTANCE;
        (16 | (back >> 14) << 3, 9, back & 0x3fff)
    };
    if length <= short {
        put1(output, at, (opcode | (length - 2)) as u8);
        at += 1;
    } else {
        put1(output, at, opcode as u8);
        at = put_length(output, at + 1, length - short);
    }
    put4(output, at, (back as u32) << 2);
    at + 2
}

/// How many bytes at `a` and at `b` > `a` agree, `b` staying below `end`.
#[inline(always)]
fn agree(input: &Input, mut a: usize, mut b: usize, end: usize) -> usize {
    let start = b;
    while b < end {
        let differ = word8(input, a) ^ word8(input, b);
        if differ != 0 {
            b += (differ.trailing_zeros() / 8) as usize;
            break;
        }
        a += 8;
        b += 8;
    }
    b.min(end) - start
}

fn encode(input: &Input, length: usize, output: &mut Output, table: &mut Table) -> usize {
    let mut at = 0;
    // Where the literals not yet written start.
    let mut pending = 0;
    if length >= MIN_INPUT {
        // The last position with a whole word, of which the last byte is no match's concern.
        let last = length - MIN_MATCH;
        let mut position = 1;
        'search: loop {
            let mut candidate;
            loop {
                if position > last {
                    break 'search;
                }
                let word = word4(input, position);
                let entry = &mut table[hash(word)];
                candidate = usize::from(*entry);
                *entry = position as u16;
                if word4(input, candidate) == word && position - candidate <= MAX_DISTANCE {
                    break;
                }
                position += 1 + ((position - pending) >> STRIDE_BITS);
            }
            at = put_literals(input, pending, position - pending, output, at);
            let count = MIN_MATCH + agree(input, candidate + MIN_MATCH, position + MIN_MATCH, length);
            at = put_match(output, at, count, position - candidate);
            position += count;
            pending = position;
        }
    }
    if pending < length {
        at = put_literals(input, pending, length - pending, output, at);
    }
    put4(output, at, 0x0000_0011);
    at + 3
}
