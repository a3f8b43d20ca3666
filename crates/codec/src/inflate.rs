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

/// Returns what streams of either format can begin with whose end is missing, at most `limit` bytes each. What contradicts a format, or
/// is whole, is none of these. libdeflate, which decompresses whole streams, does not keep what precedes an error.
pub fn inflate_cut(data: &[u8], limit: usize) -> Vec<Vec<u8>> {
    [true, false].into_iter().filter_map(|is_zlib| start_of(data, is_zlib, limit)).collect()
}

fn start_of(data: &[u8], is_zlib: bool, limit: usize) -> Option<Vec<u8>> {
    let mut context = Decompress::new(is_zlib);
    let mut out = Vec::new();
    loop {
        out.reserve(STEP);
        let (before, read) = (out.len(), context.total_in() as usize);
        let rest = data.get(read..).unwrap_or_default();
        let status = context.decompress_vec(rest, &mut out, FlushDecompress::None).ok()?;
        if status == Status::StreamEnd || out.len() > limit {
            return None;
        }
        if out.len() == before && context.total_in() as usize == read {
            return (!out.is_empty()).then_some(out);
        }
    }
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
                inflate_cut(data, 1 << 20).iter().all(|found| !found.starts_with(b"line 0 of")),
                "it is whole"
            );
            let mut last = 0;
            for length in (data.len() / 8..data.len() - 8).step_by(data.len() / 40) {
                assert_eq!(inflate(&data[..length], 1 << 20), None);
                let found = inflate_cut(&data[..length], 1 << 20);
                let start = found.iter().find(|found| text.starts_with(found)).unwrap();
                assert!(start.len() >= last, "{length}");
                last = start.len();
            }
            assert!(last > text.len() / 2);
            assert!(inflate_cut(&data[..data.len() / 2], 1000).is_empty());
        }
        // Damage is not a cut.
        let mut bad = zlib[..zlib.len() / 2].to_vec();
        bad[0] ^= 0x10;
        assert!(inflate_cut(&bad, 1 << 20).iter().all(|found| !found.starts_with(b"line 0 of")));
        assert!(inflate_cut(&[], 1 << 20).is_empty());
    }
}
