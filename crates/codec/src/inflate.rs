//! DEFLATE of unknown length, raw or in zlib's format: records of pstore.

use libdeflater::{DecompressionError, Decompressor};

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
}
