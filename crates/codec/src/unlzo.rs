//! Decodes LZO1X, bit stream version 0, as the kernel's `Documentation/staging/lzo.rst` describes it.
//!
//! Kernel memory is many short copies and runs of literals: whole words are copied wherever both sides have room for them,
//! exact lengths only at the ends.

/// What is wrong with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It makes more than the page holds.
    TooLong,
    /// It copies from before the page's start.
    BeforeStart,
    /// It ends within an instruction.
    Cut,
    /// It goes on after its end, or its end is none.
    NoEnd,
}

/// Distance of a far copy that marks the end.
const END: usize = 16384;

/// Decodes `input` to the start of `page`, and says how many bytes that makes. What follows them in the page may be
/// overwritten.
pub(crate) fn decode(input: &[u8], page: &mut [u8]) -> Result<usize, Fault> {
    let mut from = Input { bytes: input, at: 0 };
    let mut at = 0;
    // Literals of the last instruction: what the smallest instructions mean depends on them. 4 stands for more.
    let mut before = 0;
    if let Some(first @ 18..) = input.first().copied().map(usize::from) {
        from.at = 1;
        at = from.literals(first - 17, page, at)?;
        before = (first - 17).min(4);
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
                let distance = END + (byte & 8) * 2048 + word / 4;
                if distance == END {
                    let ends = length == 3 && from.at == input.len();
                    return if ends { Ok(at) } else { Err(Fault::NoEnd) };
                }
                (length, distance, word % 4)
            }
            _ if before == 0 => {
                let count = from.length(byte, 15)? + 3;
                at = from.literals(count, page, at)?;
                before = 4;
                continue;
            }
            _ => {
                let near = from.byte()? * 4 + byte / 4 + 1;
                if before == 4 { (3, near + 2048, byte % 4) } else { (2, near, byte % 4) }
            }
        };
        at = repeat(page, at, length, distance)?;
        if literals > 0 {
            at = from.few_literals(literals, page, at)?;
        }
        before = literals;
    }
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    #[inline(always)]
    fn byte(&mut self) -> Result<usize, Fault> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::Cut)?;
        self.at += 1;
        Ok(byte.into())
    }

    /// Two bytes, the lower first.
    #[inline(always)]
    fn word(&mut self) -> Result<usize, Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        let word = rest.first_chunk().ok_or(Fault::Cut)?;
        self.at += 2;
        Ok(u16::from_le_bytes(*word).into())
    }

    /// A length that is `small`, or does not fit the instruction: then 255 for every zero byte, and the byte after them.
    #[inline(always)]
    fn length(&mut self, small: usize, most: usize) -> Result<usize, Fault> {
        if small > 0 {
            return Ok(small);
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
    fn literals(&mut self, count: usize, page: &mut [u8], at: usize) -> Result<usize, Fault> {
        match (chunk::<16>(self.bytes, self.at), page.get_mut(at..).and_then(<[u8]>::first_chunk_mut)) {
            (Some(word), Some(to)) if count <= 16 => *to = word,
            _ => {
                let bytes = self.bytes.get(self.at..self.at + count).ok_or(Fault::Cut)?;
                page.get_mut(at..at + count).ok_or(Fault::TooLong)?.copy_from_slice(bytes);
            }
        }
        self.at += count;
        Ok(at + count)
    }

    /// The same for at most 4 bytes.
    #[inline(always)]
    fn few_literals(&mut self, count: usize, page: &mut [u8], at: usize) -> Result<usize, Fault> {
        match (chunk::<4>(self.bytes, self.at), page.get_mut(at..).and_then(<[u8]>::first_chunk_mut)) {
            (Some(word), Some(to)) => *to = word,
            _ => return self.literals(count, page, at),
        }
        self.at += count;
        Ok(at + count)
    }
}

/// Copies `length` bytes from `distance` before `page[at..]` to there; the two may overlap, which repeats them. Returns where
/// they end.
#[inline(always)]
fn repeat(page: &mut [u8], at: usize, length: usize, distance: usize) -> Result<usize, Fault> {
    let start = at.checked_sub(distance).ok_or(Fault::BeforeStart)?;
    let end = at + length;
    if end > page.len() {
        return Err(Fault::TooLong);
    }
    if distance >= 16 && end + 16 <= page.len() {
        words::<16>(page, start, at..end);
    } else if distance >= 8 && end + 8 <= page.len() {
        words::<8>(page, start, at..end);
    } else {
        repeat_any(page, start, at..end);
    }
    Ok(end)
}

/// Copies whole words, at most one less a byte past the end of `to`; `from` is at least a word before it.
#[inline(always)]
fn words<const N: usize>(page: &mut [u8], mut from: usize, to: std::ops::Range<usize>) {
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

/// Copies where words do not fit: what is repeated doubles.
#[inline(never)]
fn repeat_any(page: &mut [u8], from: usize, to: std::ops::Range<usize>) {
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
    use crate::search::Encoder;

    fn decoded(input: &[u8], size: usize) -> Result<Vec<u8>, Fault> {
        let mut page = vec![0xee; size];
        let made = decode(input, &mut page)?;
        page.truncate(made);
        Ok(page)
    }

    #[test]
    fn every_instruction_is_understood() {
        for (input, output) in [
            (&[0x11, 0, 0][..], &b""[..]),
            (&[20, b'a', b'b', b'c', 0x11, 0, 0], b"abc"),
            // Four literals; then 3 from 2049 back cannot be, but 2 near ones after 3 literals can.
            (&[20, b'a', b'b', b'c', 0b0100, 0, 0x11, 0, 0], b"abcbc"),
            // One byte repeated, with three literals after it.
            (
                &[18, b'a', 32, 39 - 33, 3, 0, b'x', b'y', b'z', 0x11, 0, 0],
                &[[b'a'; 40].as_slice(), b"xyz"].concat(),
            ),
            // Three repeated bytes: neither a word nor a single one.
            (&[20, b'a', b'b', b'c', 0b1110_1000, 0, 0x11, 0, 0], b"abcabcabcab"),
            // A run of literals after a copy.
            (&[18, b'a', 0b0100_0000, 0, 1, b'w', b'x', b'y', b'z', 0x11, 0, 0], b"aaaawxyz"),
        ] {
            assert_eq!(decoded(input, 64).as_deref(), Ok(output), "{input:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        assert_eq!(decoded(&[], 8), Err(Fault::Cut));
        assert_eq!(decoded(&[20, b'a'], 8), Err(Fault::Cut));
        assert_eq!(decoded(&[20, b'a', b'b', b'c'], 8), Err(Fault::Cut));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x11, 0], 8), Err(Fault::Cut));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x11, 0, 0, 0], 8), Err(Fault::NoEnd));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x12, 0, 0], 8), Err(Fault::NoEnd));
        assert_eq!(decoded(&[20, b'a', b'b', b'c', 0x11, 0, 0], 2), Err(Fault::TooLong));
        assert_eq!(decoded(&[18, b'a', 32, 1, 0, 0, 0x11, 0, 0], 8), Err(Fault::TooLong));
        assert_eq!(decoded(&[18, b'a', 0b0100_0100, 0, 0x11, 0, 0], 8), Err(Fault::BeforeStart));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        /// On anything, it says what another decoder says.
        #[test]
        fn it_agrees_with_lzokay(
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
