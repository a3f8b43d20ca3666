//! What is in the memory of the process that tests save.

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Page `index`: of each 10 MiB, 4 are random, 4 text and 2 zeros.
pub fn fill(index: usize, page: &mut [u8]) {
    let mut state = index as u64 + 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    match index / 256 % 10 {
        0..4 => {
            for word in page.as_chunks_mut::<8>().0 {
                *word = next().to_le_bytes();
            }
        }
        4..8 => {
            const WORDS: [&[u8]; 8] = [
                b"page ",
                b"thread ",
                b"memory ",
                b"of the ",
                b"core ",
                b"kernel\n",
                b"is stopped, ",
                b"0x7f00 ",
            ];
            let mut at = 0;
            while at < page.len() {
                let word = WORDS[(next() % 8) as usize];
                let length = word.len().min(page.len() - at);
                page[at..at + length].copy_from_slice(&word[..length]);
                at += length;
            }
        }
        _ => page.fill(0),
    }
}
