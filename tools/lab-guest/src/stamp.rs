//! Pages that identify themselves.
//!
//! A stamped page holds, as little-endian 64-bit words: a magic number, the class, a sequence number
//! that is unique within the class, and from word 3 a pattern derived from both. The content alone reveals a page that
//! is in the wrong place, truncated, or mixed with another.

use crate::Class;

/// First word of every stamp: "PHSTAMP1" in a hex dump.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PHSTAMP1");

/// The pattern is incompressible up to this word and repeats after it: real pages compress to something between.
const RANDOM_WORDS: usize = 128;

/// The identity of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Class the page was filled for.
    pub class: Class,
    /// Number of the page within its class.
    pub sequence: u64,
}

/// What [`identify`] found in a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StampCheck {
    /// No stamp: wrong magic number or unknown class.
    Missing,
    /// A stamp with an intact pattern.
    Intact(Stamp),
    /// A stamp with a pattern that is wrong from this byte offset.
    Corrupt(Stamp, usize),
}

/// Returns the words of a stamped page, of any size.
fn words(stamp: Stamp) -> impl Iterator<Item = u64> {
    let seed = (u64::from(stamp.class as u32) << 40) ^ stamp.sequence;
    let mut state = seed;
    let mut word = 0;
    (0_usize..).map(move |i| {
        match i {
            0 => return MAGIC,
            1 => return u64::from(stamp.class as u32),
            2 => return stamp.sequence,
            _ => {}
        }
        if i < RANDOM_WORDS {
            // SplitMix64: neighbouring seeds give unrelated words.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
        }
        word
    })
}

/// Stamps `page`. A slice shorter than a page gets the start of the pattern.
pub fn fill(page: &mut [u8], stamp: Stamp) {
    for (bytes, word) in page.chunks_exact_mut(8).zip(words(stamp)) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Reads the stamp of `page`, and checks the pattern to the end of the slice.
pub fn identify(page: &[u8]) -> StampCheck {
    let word = |i: usize| page.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    if word(0) != Some(MAGIC) {
        return StampCheck::Missing;
    }
    let class = word(1).and_then(|n| u32::try_from(n).ok()).and_then(Class::from_number);
    let (Some(class), Some(sequence)) = (class, word(2)) else { return StampCheck::Missing };
    let stamp = Stamp { class, sequence };
    for (i, (bytes, expected)) in page.chunks_exact(8).zip(words(stamp)).enumerate() {
        if bytes != expected.to_le_bytes() {
            return StampCheck::Corrupt(stamp, i * 8);
        }
    }
    StampCheck::Intact(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    fn stamped(class: Class, sequence: u64) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        fill(&mut page, Stamp { class, sequence });
        page
    }

    #[test]
    fn a_stamp_reads_back() {
        for class in Class::ALL {
            let stamp = Stamp { class, sequence: 77 };
            assert_eq!(identify(&stamped(class, 77)), StampCheck::Intact(stamp));
        }
    }

    #[test]
    fn a_changed_word_is_found_at_its_offset() {
        let stamp = Stamp { class: Class::Cache, sequence: 5 };
        for offset in (24..PAGE).step_by(8) {
            let mut page = stamped(stamp.class, stamp.sequence);
            page[offset] ^= 1;
            assert_eq!(identify(&page), StampCheck::Corrupt(stamp, offset));
        }
    }

    #[test]
    fn a_page_joined_from_two_is_corrupt() {
        let mut page = stamped(Class::Anon, 1);
        page[2048..].copy_from_slice(&stamped(Class::Anon, 2)[2048..]);
        assert_eq!(identify(&page), StampCheck::Corrupt(Stamp { class: Class::Anon, sequence: 1 }, 2048));
    }

    #[test]
    fn other_pages_have_no_stamp() {
        assert_eq!(identify(&[0; PAGE]), StampCheck::Missing);
        assert_eq!(identify(&[]), StampCheck::Missing);
        assert_eq!(identify(b"PHSTAMP1"), StampCheck::Missing);
    }
}
