//! Zero-page detection. It does not use `==`, which calls `memcmp`: musl compares byte by byte.

/// Bytes tested before each branch: most pages with contents have some at the start.
const BLOCK: usize = 256;

/// Returns whether every byte is zero; true for an empty slice. Runs at memory bandwidth.
pub fn is_zero(page: &[u8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the only requirement of the function.
        return unsafe { is_zero_avx2(page) };
    }
    blocks_are_zero(page)
}

/// The same code, compiled for wider registers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn is_zero_avx2(page: &[u8]) -> bool {
    blocks_are_zero(page)
}

#[inline(always)]
fn blocks_are_zero(page: &[u8]) -> bool {
    let (blocks, rest) = page.as_chunks::<BLOCK>();
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        if words.iter().fold(0, |any, word| any | u64::from_ne_bytes(*word)) != 0 {
            return false;
        }
    }
    rest.iter().fold(0, |any, byte| any | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_anywhere_is_found() {
        let mut page = vec![0; 4096 + 77];
        for length in [0, 1, 7, 8, 255, 256, 257, 511, 4096, page.len()] {
            assert!(is_zero(&page[..length]));
        }
        for at in 0..page.len() {
            page[at] = 1 << (at % 8);
            assert!(!is_zero(&page) && !blocks_are_zero(&page), "byte {at}");
            assert!(is_zero(&page[..at]) && is_zero(&page[at + 1..]), "around byte {at}");
            page[at] = 0;
        }
    }
}
