//! Decompression of arbitrary bytes, and of compressed pages.

use std::cell::RefCell;

use pagehaul_codec::{Codec, Compressor, Decompressor, Method, is_zero};

const PAGE: usize = 4096;

thread_local! {
    static COMPRESSORS: RefCell<Vec<Compressor>> = RefCell::new(
        // Level 1 of zstd is an encoder of its own.
        Codec::ALL
            .into_iter()
            .map(Method::from)
            .chain(Method::new(Codec::Zstd, 1))
            .map(|method| Compressor::new(method).expect("memory for a context"))
            .collect(),
    );
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut page = [0; PAGE];
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        for codec in Codec::ALL {
            let _ = decompressor.decompress(codec, data, &mut page);
        }
        let mut original = [0; PAGE];
        for (index, byte) in original.iter_mut().enumerate() {
            *byte = data.get(index % data.len().max(1)).copied().unwrap_or(0);
        }
        assert_eq!(is_zero(&original), original.iter().all(|&byte| byte == 0));
        COMPRESSORS.with_borrow_mut(|compressors| {
            for compressor in compressors {
                let mut out = [0; PAGE];
                let Some(count) = compressor.compress(&original, &mut out) else { continue };
                let codec = compressor.method().codec();
                decompressor.decompress(codec, &out[..count], &mut page).expect("our own bytes");
                assert!(page == original, "{codec} does not come back");
            }
        });
    });
}
