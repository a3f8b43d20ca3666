//! Decodes LZO1X streams.
//!
//! Pages of kernel memory are many short copies and literal runs. The decoder copies whole words wherever
//! both sides have room for them, and exact lengths only at the ends.

/// Why a stream does not decode; named after liblzo2's `LZO_E_` codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The output is longer than the page.
    OutputOverrun,
    /// A copy starts before the page.
    LookbehindOverrun,
    /// The stream ends within an instruction.
    InputOverrun,
    /// Bytes follow the end of stream, or its length is not 3.
    EndNotFound,
}

/// Distance of a copy within 16..48 kB that stands for the end of stream.
const END_DISTANCE: usize = 16384;

/// Decodes `input` to the start of `page` and returns the number of bytes. The rest of the page may be
/// overwritten.
pub(crate) fn decode(input: &[u8], page: &mut [u8]) -> Result<usize, DecodeError> {
    let mut from = Input { bytes: input, at: 0 };
    let mut at = 0;
    // Number of literals that the last instruction copied, 4 for more: the meaning of instructions below 16
    // depends on it.
    let mut state = 0;
    if let Some(first @ 18..) = input.first().copied().map(usize::from) {
        from.at = 1;
        at = from.literals(first - 17, page, at)?;
        state = (first - 17).min(4);
    }
    loop {
        let byte = from.byte()?;
        let (length, distance, literals) = match byte {
            64.. => (byte / 32 + 1, from.byte()? * 8 + byte / 4 % 8 + 1, byte % 4),
            32..64 => {
                let length = from.length(byte % 32, 31)? + 2;
                let word = from.word()?;
                (length, word / 4 + 1, word % 4)
            }
            16..32 => {
                let length = from.length(byte % 8, 7)? + 2;
                let word = from.word()?;
                let distance = END_DISTANCE + (byte & 8) * 2048 + word / 4;
                if distance == END_DISTANCE {
                    let ends = length == 3 && from.at == input.len();
                    return if ends { Ok(at) } else { Err(DecodeError::EndNotFound) };
                }
                (length, distance, word % 4)
            }
            _ if state == 0 => {
                let count = from.length(byte, 15)? + 3;
                at = from.literals(count, page, at)?;
                state = 4;
                continue;
            }
            _ => {
                let near = from.byte()? * 4 + byte / 4 + 1;
                if state == 4 { (3, near + 2048, byte % 4) } else { (2, near, byte % 4) }
            }
        };
        at = copy_match(page, at, length, distance)?;
        if literals > 0 {
            at = from.few_literals(literals, page, at)?;
        }
        state = literals;
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Result<usize, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::InputOverrun)?;
        self.at += 1;
        Ok(byte.into())
    }

    /// Reads a little-endian word of two bytes.
    #[inline(always)]
    fn word(&mut self) -> Result<usize, DecodeError> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let word = rest.first_chunk().ok_or(DecodeError::InputOverrun)?;
        self.at += 2;
        Ok(u16::from_le_bytes(*word).into())
    }

    /// Returns the length in the instruction, `inline`; if that is 0, `most` plus 255 for each zero byte that
    /// follows, plus the byte after them.
    #[inline(always)]
    fn length(&mut self, inline: usize, most: usize) -> Result<usize, DecodeError> {
        if inline > 0 {
            return Ok(inline);
        }
        let mut length = most;
        loop {
            match self.byte()? {
                0 => length += 255,
                last => return Ok(length + last),
            }
        }
    }

    /// Copies `count` bytes to `page[at..]`. Returns where they end.
    #[inline(always)]
    fn literals(&mut self, count: usize, page: &mut [u8], at: usize) -> Result<usize, DecodeError> {
        match (chunk::<16>(self.bytes, self.at), page.get_mut(at..).and_then(<[u8]>::first_chunk_mut)) {
            (Some(word), Some(to)) if count <= 16 => *to = word,
            _ => {
                let bytes = self.bytes.get(self.at..self.at + count).ok_or(DecodeError::InputOverrun)?;
                page.get_mut(at..at + count).ok_or(DecodeError::OutputOverrun)?.copy_from_slice(bytes);
            }
        }
        self.at += count;
        Ok(at + count)
    }

    /// Does the same for at most 4 bytes.
    #[inline(always)]
    fn few_literals(&mut self, count: usize, page: &mut [u8], at: usize) -> Result<usize, DecodeError> {
        match (chunk::<4>(self.bytes, self.at), page.get_mut(at..).and_then(<[u8]>::first_chunk_mut)) {
            (Some(word), Some(to)) => *to = word,
            _ => return self.literals(count, page, at),
        }
        self.at += count;
        Ok(at + count)
    }
}

/// Copies `length` bytes from `distance` before `page[at..]` to there; if they overlap, the bytes repeat.
/// Returns where the copy ends.
#[inline(always)]
fn copy_match(page: &mut [u8], at: usize, length: usize, distance: usize) -> Result<usize, DecodeError> {
    let start = at.checked_sub(distance).ok_or(DecodeError::LookbehindOverrun)?;
    let end = at + length;
    if end > page.len() {
        return Err(DecodeError::OutputOverrun);
    }
    if distance >= 16 && end + 16 <= page.len() {
        copy_words::<16>(page, start, at..end);
    } else if distance >= 8 && end + 8 <= page.len() {
        copy_words::<8>(page, start, at..end);
    } else {
        copy_overlapping(page, start, at..end);
    }
    Ok(end)
}

/// Copies whole words, up to one byte less than a word past the end of `to`; `from` is at least a word before
/// it.
#[inline(always)]
fn copy_words<const N: usize>(page: &mut [u8], mut from: usize, to: std::ops::Range<usize>) {
    let mut at = to.start;
    while at < to.end {
        let (Some(word), Some(place)) =
            (chunk::<N>(page, from), page.get_mut(at..).and_then(<[u8]>::first_chunk_mut))
        else {
            return;
        };
        *place = word;
        (from, at) = (from + N, at + N);
    }
}

/// Copies where words do not fit: each step copies twice as many bytes as the one before.
#[inline(never)]
fn copy_overlapping(page: &mut [u8], from: usize, to: std::ops::Range<usize>) {
    let mut at = to.start;
    if at - from == 1 {
        let byte = page[from];
        return page[to].fill(byte);
    }
    while at < to.end {
        let count = (at - from).min(to.end - at);
        page.copy_within(from..from + count, at);
        at += count;
    }
}

#[inline(always)]
fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lzo::Encoder;

    fn decoded(input: &[u8], size: usize) -> Result<Vec<u8>, DecodeError> {
        let mut page = vec![0xee; size];
        let made = decode(input, &mut page)?;
        page.truncate(made);
        Ok(page)
    }

    #[test]
    fn decodes_every_instruction() {
        for (input, output) in [
            (&[0x11, 0, 0][..], &b""[..]),
            (&[20, b'a', b'b', b'c', 0x11, 0, 0], b"abc"),
            // Three literals, then a copy of 2 bytes within 1 kB.
            (&[20, b'a', b'b', b'c', 0b0100, 0, 0x11, 0, 0], b"abcbc"),
            // One byte repeated, with three literals in the state.
            (
                &[18, b'a', 32, 39 - 33, 3, 0, b'x', b'y', b'z', 0x11, 0, 0],
                &[[b'a'; 40].as_slice(), b"xyz"].concat(),
            ),
            // Three repeated bytes: neither a word nor a single byte.
            (&[20, b'a', b'b', b'c', 0b1110_1000, 0, 0x11, 0, 0], b"abcabcabcab"),
            // A literal run after a copy.
            (&[18, b'a', 0b0100_0000, 0, 1, b'w', b'x', b'y', b'z', 0x11, 0, 0], b"aaaawxyz"),
        ] {
            assert_eq!(decoded(input, 64).as_deref(), Ok(output), "{input:?}");
        }
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(decoded(&[], 8), Err(DecodeError::InputOverrun));
        assert_eq!(decoded(&[20, b'a'], 8), Err(DecodeError::InputOverrun));
        assert_eq!(decoded(&[20, b'a', b'b', b'c'], 8), Err(DecodeError::InputOverrun));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x11, 0], 8), Err(DecodeError::InputOverrun));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x11, 0, 0, 0], 8), Err(DecodeError::EndNotFound));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x12, 0, 0], 8), Err(DecodeError::EndNotFound));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x11, 0, 0], 2), Err(DecodeError::OutputOverrun));
        assert_eq!(decoded(&[18, b'a', 32, 1, 0, 0, 0x11, 0, 0], 8), Err(DecodeError::OutputOverrun));
        assert_eq!(decoded(&[18, b'a', 0b0100_0100, 0, 0x11, 0, 0], 8), Err(DecodeError::LookbehindOverrun));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        /// Accepts and refuses the same streams as another decoder, and makes the same bytes.
        #[test]
        fn agrees_with_lzokay(
            page in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..600),
            copies in proptest::collection::vec((0usize..600, 1usize..300), 0..20),
            flip in proptest::option::of((any::<prop::sample::Index>(), 0..8u8)),
            size in 0usize..6000,
        ) {
            let mut page = page;
            for (from, count) in copies {
                for at in from..from + count {
                    page.push(page.get(at).copied().unwrap_or(7));
                }
            }
            let mut stream = Encoder::new().encode(&page).to_vec();
            if let Some((at, bit)) = flip {
                let at = at.index(stream.len());
                stream[at] ^= 1 << bit;
            } else {
                prop_assert_eq!(decoded(&stream, page.len()), Ok(page));
            }
            let mut theirs = vec![0; size];
            let theirs = lzokay::decompress::decompress(&stream, &mut theirs).map(|made| theirs[..made].to_vec());
            prop_assert_eq!(decoded(&stream, size).ok(), theirs.ok());
        }
    }
}
