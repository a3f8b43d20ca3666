//! Contents of pages.

/// Bytes in a page.
pub const PAGE: usize = 4096;

/// One page's bytes.
pub type PageBytes = [u8; PAGE];

/// Contents of a page, generated when read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Content {
    #[default]
    Zero,
    /// Words of a text, different on every page: compresses well.
    Text,
    /// Noise: does not compress.
    Random,
    /// 64 bytes that name the PFN, repeated: a misplaced page names its place.
    Stamp,
    /// These bytes.
    Bytes(Box<PageBytes>),
}

/// Length of what [`Content::Stamp`] repeats.
pub(crate) const STAMP: usize = 64;

const WORDS: [&str; 16] = [
    "page", "of", "memory", "the", "kernel", "crashed", "and", "left", "a", "dump", "behind", "for", "those",
    "who", "come", "later",
];

impl Content {
    /// Returns the bytes of page `pfn` with this content.
    pub fn page(&self, pfn: u64) -> PageBytes {
        let mut page = [0; PAGE];
        match self {
            Content::Zero => {}
            Content::Text => {
                let mut noise = Noise::new(pfn);
                let mut at = 0;
                while at < PAGE {
                    let word = WORDS[(noise.next() % 16) as usize].as_bytes();
                    let end = PAGE.min(at + word.len());
                    page[at..end].copy_from_slice(&word[..end - at]);
                    if end < PAGE {
                        page[end] = b' ';
                    }
                    at = end + 1;
                }
            }
            Content::Random => {
                let mut noise = Noise::new(!pfn);
                for word in page.chunks_exact_mut(8) {
                    word.copy_from_slice(&noise.next().to_le_bytes());
                }
            }
            Content::Stamp => {
                for stamp in page.chunks_exact_mut(STAMP) {
                    stamp[..16].copy_from_slice(format!("PFN {pfn:<12x}").as_bytes());
                    stamp[16..24].copy_from_slice(&pfn.to_le_bytes());
                    stamp[24..32].copy_from_slice(&Noise::new(pfn).next().to_le_bytes());
                }
            }
            Content::Bytes(bytes) => page = **bytes,
        }
        page
    }
}

/// splitmix64: reproducible pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// Returns the generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "endless: an Option would only be unwrapped")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns the next number modulo `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// Spreads the bits of a number over a word: the output function of splitmix64.
pub fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
