//! DEFLATE of unknown length, raw or in zlib's format: records of pstore.

use flate2::{Decompress, FlushDecompress, Status};
use libdeflater::{DecompressionError, Decompressor};

/// Bytes by which room is made for the start of a stream.
const STEP: usize = 64 << 10;

/// Returns what `data` decompresses to, at most `limit` bytes. `None` if it is in neither format, or longer. Kernels write pstore in one or
/// the other, by release.
pub fn inflate(data: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut context = Decompressor::new();
    let mut out = vec![0; data.len().saturating_mul(8).clamp(1, limit)];
    loop {
        let mut is_short = false;
        for is_zlib in [true, false] {
            let attempt = match is_zlib {
                true => context.zlib_decompress(data, &mut out),
                false => context.deflate_decompress(data, &mut out),
            };
            match attempt {
                Ok(length) => {
                    out.truncate(length);
                    return Some(out);
                }
                Err(error) => is_short |= error == DecompressionError::InsufficientSpace,
            }
        }
        if !is_short || out.len() >= limit {
            return None;
        }
        out.resize(out.len().saturating_mul(4).min(limit), 0);
    }
}

/// Why only the start of a stream is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its end is missing.
    Cut,
    /// What follows contradicts the format.
    Damaged {
        /// Bytes of the compressed data before that.
        read: usize,
    },
    /// It is whole, but its checksum (Adler-32, of zlib's format) is that of other bytes.
    Checksum,
    /// It is longer than the limit.
    TooLong,
}

/// The start of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What it decompresses to.
    pub bytes: Vec<u8>,
    /// Why this is not all of it.
    pub ending: Ending,
}

/// Returns the start of streams of either format that are not whole, at most `limit` bytes each: those that are cut, damaged, longer, or
/// followed by other bytes, which [`inflate`] does not notice. libdeflate, which decompresses whole streams, does not keep what precedes
/// an error.
pub fn inflate_start(data: &[u8], limit: usize) -> Vec<Start> {
    [true, false].into_iter().filter_map(|is_zlib| start_of(data, is_zlib, limit)).collect()
}

fn start_of(data: &[u8], is_zlib: bool, limit: usize) -> Option<Start> {
    let mut context = Decompress::new(is_zlib);
    let mut bytes = Vec::new();
    let ending = loop {
        bytes.reserve(STEP);
        let (before, read) = (bytes.len(), context.total_in() as usize);
        let rest = data.get(read..).unwrap_or_default();
        let status = context.decompress_vec(rest, &mut bytes, FlushDecompress::None);
        let now = context.total_in() as usize;
        if bytes.len() > limit {
            bytes.truncate(limit);
            break Ending::TooLong;
        }
        match status {
            // Only zeros can be padding.
            Ok(Status::StreamEnd) => {
                match data.get(now..).unwrap_or_default().iter().all(|byte| *byte == 0) {
                    true => return None,
                    false => break Ending::Damaged { read: now },
                }
            }
            Err(_) if is_zlib && is_whole(data, bytes.len()) => break Ending::Checksum,
            Err(_) => break Ending::Damaged { read: now },
            Ok(_) if bytes.len() == before && now == read => break Ending::Cut,
            Ok(_) => {}
        }
    };
    (!bytes.is_empty()).then_some(Start { bytes, ending })
}

/// Returns whether data in zlib's format has a whole stream of `length` bytes, whatever its checksum says.
fn is_whole(data: &[u8], length: usize) -> bool {
    let stream = data.get(2..).unwrap_or_default();
    let mut out = vec![0; length];
    Decompressor::new().deflate_decompress(stream, &mut out).is_ok_and(|found| found == length)
}

#[cfg(test)]
mod tests {
    use libdeflater::{CompressionLvl, Compressor};

    use super::*;

    #[test]
    fn both_formats_are_read_up_to_the_limit() {
        let text: Vec<u8> = b"a line of the log\n".repeat(5000);
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut zlib = vec![0; compressor.zlib_compress_bound(text.len())];
        let length = compressor.zlib_compress(&text, &mut zlib).unwrap();
        zlib.truncate(length);
        let mut raw = vec![0; compressor.deflate_compress_bound(text.len())];
        let length = compressor.deflate_compress(&text, &mut raw).unwrap();
        raw.truncate(length);
        for data in [&zlib, &raw] {
            assert!(inflate(data, 1 << 20).is_some_and(|found| found == text));
            assert_eq!(inflate(data, text.len() - 1), None);
        }
        assert_eq!(inflate(b"Panic#1 Part1\n", 1 << 20), None);
        assert_eq!(inflate(&[], 1 << 20), None);
    }

    #[test]
    fn streams_that_are_cut_keep_their_start() {
        let text: Vec<u8> =
            (0..20_000).flat_map(|number| format!("line {number} of a log\n").into_bytes()).collect();
        let mut compressor = Compressor::new(CompressionLvl::default());
        let mut raw = vec![0; compressor.deflate_compress_bound(text.len())];
        let length = compressor.deflate_compress(&text, &mut raw).unwrap();
        raw.truncate(length);
        let mut zlib = vec![0; compressor.zlib_compress_bound(text.len())];
        let length = compressor.zlib_compress(&text, &mut zlib).unwrap();
        zlib.truncate(length);
        for data in [&raw, &zlib] {
            assert!(
                inflate_start(data, 1 << 20).iter().all(|found| !found.bytes.starts_with(b"line 0 of")),
                "it is whole"
            );
            let mut last = 0;
            for length in (data.len() / 8..data.len() - 8).step_by(data.len() / 40) {
                assert_eq!(inflate(&data[..length], 1 << 20), None);
                let found = inflate_start(&data[..length], 1 << 20);
                let start = found.iter().find(|found| text.starts_with(&found.bytes)).unwrap();
                assert!(start.bytes.len() >= last && start.ending == Ending::Cut, "{length}");
                last = start.bytes.len();
            }
            assert!(last > text.len() / 2);
            let found = inflate_start(data, 1000);
            let too_long = Start { bytes: text[..1000].to_vec(), ending: Ending::TooLong };
            assert!(found.contains(&too_long));
        }
        // Damage is not a cut.
        let mut bad = zlib[..zlib.len() / 2].to_vec();
        bad[0] ^= 0x10;
        assert!(inflate_start(&bad, 1 << 20).iter().all(|found| !found.bytes.starts_with(b"line 0 of")));
        assert!(inflate_start(&[], 1 << 20).is_empty());
        // All but the checksum.
        let last = zlib.len() - 1;
        zlib[last] ^= 1;
        assert_eq!(inflate(&zlib, 1 << 20), None);
        let found = inflate_start(&zlib, 1 << 20);
        assert!(found.contains(&Start { bytes: text.clone(), ending: Ending::Checksum }));
        zlib[last] ^= 1;
        // A block of the reserved type follows one that is stored.
        let mut reserved = vec![0, 3, 0, !3, !0];
        reserved.extend(b"log\x06");
        let start = Start { bytes: b"log".to_vec(), ending: Ending::Damaged { read: 9 } };
        assert_eq!(inflate_start(&reserved, 1 << 20), [start]);
        // Damage can pass for the end of the stream.
        let followed = [&zlib[..], b"\0x"].concat();
        let start = Start { bytes: text.clone(), ending: Ending::Damaged { read: zlib.len() } };
        assert!(inflate_start(&followed, 1 << 20).contains(&start));
        assert!(inflate_start(&[&zlib[..], &[0]].concat(), 1 << 20).iter().all(|found| found.bytes != text));
        // With any bit flipped, what precedes it stays.
        for at in (zlib.len() / 8..zlib.len()).step_by(zlib.len() / 50) {
            let mut flipped = zlib.clone();
            flipped[at] ^= 1 << (at % 8);
            let found = inflate_start(&flipped, 1 << 20);
            let kept =
                |start: &Start| text.iter().zip(&start.bytes).take_while(|(one, other)| one == other).count();
            let kept = found.iter().map(kept).max().unwrap_or(0);
            assert!(kept > text.len() * at / zlib.len() / 2, "{at}: {kept}");
        }
    }
}
