//! The seekable variant of zstd: frames one after the other, and a table of their sizes at the end, in a frame that
//! decompressors skip (`contrib/seekable_format/zstd_seekable_compression_format.md` of zstd).

use std::hash::Hasher;
use std::io;
use std::ops::Range;

use twox_hash::XxHash64;

use crate::units::PAGE;

/// Magic of the skippable frame that holds the table.
const TABLE_MAGIC: u32 = 0x184d_2a5e;
/// Last four bytes of the file.
const FOOTER_MAGIC: u32 = 0x8f92_eab1;
/// Bytes of the footer: count of frames, descriptor, magic.
const FOOTER: usize = 9;
/// First bytes of a frame (RFC 8878, 3.1.1).
pub(crate) const FRAME_MAGIC: u32 = 0xfd2f_b528;
/// Maximum size of a frame of zeros.
pub(crate) const MAX_ZEROS: u64 = 64 << 20;
/// Bytes between two lengths of zeros whose hashes are known.
const ZERO_STEP: u64 = 1 << 20;
/// Bytes of a block of zeros: the most a block of this window may have.
const ZERO_BLOCK: u64 = 128 << 10;
/// Blocks in a frame are raw, or one byte repeated (RFC 8878, 3.1.1.2).
const BLOCK_RAW: u32 = 0;
const BLOCK_REPEATED: u32 = 1;

/// The table of a file being written.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: Vec<(u32, u32)>,
}

impl Table {
    /// Adds a frame: its bytes in the file and its content's.
    pub(crate) fn push(&mut self, stored: usize, content: u64) {
        // Frames hold 64 MiB at most.
        self.entries.push((stored as u32, content as u32));
    }

    /// Encodes the table.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = self.entries.len() * 8 + FOOTER;
        let mut out = Vec::with_capacity(length + 8);
        out.extend(TABLE_MAGIC.to_le_bytes());
        out.extend((length as u32).to_le_bytes());
        for (stored, content) in &self.entries {
            out.extend(stored.to_le_bytes());
            out.extend(content.to_le_bytes());
        }
        out.extend((self.entries.len() as u32).to_le_bytes());
        // No checksums here: each frame has its own.
        out.push(0);
        out.extend(FOOTER_MAGIC.to_le_bytes());
        out
    }
}

/// A frame of a length that follows from its content's, so that it can be written again in place.
pub(crate) fn raw_frame(content: &[u8]) -> Vec<u8> {
    let mut out = frame_header(content.len() as u64);
    block(&mut out, BLOCK_RAW, content.len() as u32, true);
    out.extend(content);
    out.extend((XxHash64::oneshot(0, content) as u32).to_le_bytes());
    out
}

/// Frames of zeros. Their checksums are known from the start: a hash of 64 MiB takes milliseconds, for which the writer
/// would keep all who pack waiting.
pub(crate) struct Zeros {
    /// The hash after 0, 1, 2 and so on times [`ZERO_STEP`].
    hashes: Vec<XxHash64>,
}

impl Zeros {
    pub(crate) fn new() -> Self {
        let step = vec![0; ZERO_STEP as usize];
        let mut hasher = XxHash64::with_seed(0);
        let mut hashes = vec![hasher.clone()];
        for _ in 0..MAX_ZEROS / ZERO_STEP {
            hasher.write(&step);
            hashes.push(hasher.clone());
        }
        Self { hashes }
    }

    /// A frame of `length` zeros, [`MAX_ZEROS`] at most.
    pub(crate) fn frame(&self, length: u64) -> Vec<u8> {
        let mut out = frame_header(length);
        let mut rest = length;
        loop {
            let part = rest.min(ZERO_BLOCK);
            rest -= part;
            block(&mut out, BLOCK_REPEATED, part as u32, rest == 0);
            out.push(0);
            if rest == 0 {
                break;
            }
        }
        out.extend((self.checksum(length) as u32).to_le_bytes());
        out
    }

    fn checksum(&self, length: u64) -> u64 {
        let known = (length / ZERO_STEP).min(MAX_ZEROS / ZERO_STEP);
        let mut hasher = self.hashes.get(known as usize).cloned().unwrap_or_default();
        let zeros = [0; PAGE as usize];
        let mut rest = length - known * ZERO_STEP;
        while rest > 0 {
            let part = rest.min(PAGE);
            hasher.write(&zeros[..part as usize]);
            rest -= part;
        }
        hasher.finish()
    }
}

/// Magic, descriptor (8-byte content size, checksum), a window of 128 KiB, the content's size.
fn frame_header(content: u64) -> Vec<u8> {
    let mut out = FRAME_MAGIC.to_le_bytes().to_vec();
    out.push(3 << 6 | 1 << 2);
    // Exponent 7: 2^(10+7).
    out.push(7 << 3);
    out.extend(content.to_le_bytes());
    out
}

fn block(out: &mut Vec<u8>, kind: u32, size: u32, last: bool) {
    let header = u32::from(last) | kind << 1 | size << 3;
    out.extend(&header.to_le_bytes()[..3]);
}

/// One frame of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Where it is in the file.
    pub(crate) stored: Range<u64>,
    /// Where its content is in the decompressed file.
    pub(crate) content: Range<u64>,
}

/// Reads the table of a file of `size` bytes through `read`. None if the file does not end with one.
pub(crate) fn read_table(
    size: u64,
    mut read: impl FnMut(u64, usize) -> io::Result<Vec<u8>>,
) -> io::Result<Option<Vec<Frame>>> {
    let Some(footer_at) = size.checked_sub(FOOTER as u64) else { return Ok(None) };
    let footer = read(footer_at, FOOTER)?;
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let descriptor = footer.get(4).copied().unwrap_or(0);
    if word(&footer, 5) != FOOTER_MAGIC || descriptor & 0x7f != 0 {
        return Ok(None);
    }
    // With a checksum of our neighbours' kind, entries have four bytes more.
    let entry = if descriptor & 0x80 != 0 { 12 } else { 8 };
    let length = u64::from(word(&footer, 0)) * entry as u64;
    let Some(start) = footer_at.checked_sub(length + 8) else { return Ok(None) };
    let head = read(start, 8)?;
    if word(&head, 0) != TABLE_MAGIC || u64::from(word(&head, 4)) != length + FOOTER as u64 {
        return Ok(None);
    }
    let table = read(start + 8, length as usize)?;
    let mut frames = Vec::with_capacity(table.len() / entry);
    let (mut stored, mut content) = (0u64, 0u64);
    for bytes in table.chunks_exact(entry) {
        let next = (stored + u64::from(word(bytes, 0)), content + u64::from(word(bytes, 4)));
        frames.push(Frame { stored: stored..next.0, content: content..next.1 });
        (stored, content) = next;
    }
    Ok((stored == start).then_some(frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagehaul_codec::FrameDecompressor;
    use proptest::prelude::*;

    fn decompressed(frame: &[u8], length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        FrameDecompressor::new().unwrap().decompress(frame, &mut out, length).unwrap();
        out
    }

    #[test]
    fn handmade_frames_are_zstd() {
        let frames = Zeros::new();
        for length in [1, 4096, ZERO_BLOCK, ZERO_BLOCK + 1, 5 << 20, (7 << 20) + 8191, MAX_ZEROS] {
            let zeros = decompressed(&frames.frame(length), length as usize);
            assert!(zeros.len() as u64 == length && pagehaul_codec::is_zero(&zeros), "{length}");
        }
        assert!(frames.frame(MAX_ZEROS).len() < 4096);
        let header: Vec<u8> = (0..64).collect();
        assert_eq!(decompressed(&raw_frame(&header), 64), header);
        let mut damaged = raw_frame(&header);
        damaged[30] ^= 1;
        assert!(FrameDecompressor::new().unwrap().decompress(&damaged, &mut Vec::new(), 64).is_err());
    }

    fn reread(bytes: &[u8]) -> Option<Vec<Frame>> {
        read_table(bytes.len() as u64, |at, len| {
            let start = (at as usize).min(bytes.len());
            Ok(bytes[start..(start + len).min(bytes.len())].to_vec())
        })
        .unwrap()
    }

    #[test]
    fn tables_are_read_as_written() {
        let mut table = Table::default();
        let mut file = Vec::new();
        let zeros = Zeros::new();
        for length in [5000, 70_000, 1 << 20] {
            let frame = zeros.frame(length);
            table.push(frame.len(), length);
            file.extend(frame);
        }
        let data = file.len() as u64;
        file.extend(table.encode());
        let frames = reread(&file).unwrap();
        assert_eq!(frames.len(), 3);
        assert_eq!(frames[2].content, 75_000..75_000 + (1 << 20));
        assert_eq!(frames[2].stored.end, data);
        assert_eq!(reread(&file[..file.len() - 1]), None);
        assert_eq!(reread(&file[1..]), None, "sizes do not add up to where the table is");
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_reason_to_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), footer: bool) {
            if footer {
                bytes.extend(FOOTER_MAGIC.to_le_bytes());
            }
            let _ = reread(&bytes);
        }
    }
}
