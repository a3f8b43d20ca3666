//! zstd for single pages of 4 KiB at about the size of libzstd's level 1, written from RFC 8878.
//!
//! A library that compresses streams of any length spends half of its time per page on what does not grow with the
//! page: contexts, tables for the longest matches and codes. Everything here knows that a page has 4 KiB: positions
//! and counts fit `u16`, and tables of probabilities are small.
//!
//! [`search`] makes a [`Parse`] of a page, which is all that the entropy coder ([`literals`], [`sequences`]) sees. Any
//! other search can stand in its place: it clears the parse, then adds literals and sequences in order.

mod codes;
mod fse;
mod huffman;
mod literals;
mod parse;
mod search;
mod sequences;

#[cfg(test)]
mod tests;

use crate::bits::{Output, put4};
use crate::output::zeroed;
use parse::{PAGE, Parse};

/// Magic number, then a descriptor without flags, then a window of 4 KiB: what libzstd writes for a page when told to
/// leave out the content's size, which readers of dumps know.
const HEADER: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, 2 << 3];
/// Where the one block's content starts: behind its own header of three bytes.
const BLOCK: usize = HEADER.len() + 3;
/// Marks a block as the frame's last, and as compressed.
const LAST: u32 = 1;
const COMPRESSED: u32 = 2 << 1;

/// Buffers and tables of an encoder.
pub(crate) struct Encoder {
    searcher: search::Searcher,
    parse: Parse,
    literals: literals::Coder,
    sequences: sequences::Coder,
    output: Box<Output>,
    #[cfg(target_arch = "x86_64")]
    is_modern: bool,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self {
            searcher: search::Searcher::new(),
            parse: Parse::new(),
            literals: literals::Coder::new(),
            sequences: sequences::Coder::new(),
            output: zeroed(),
            #[cfg(target_arch = "x86_64")]
            is_modern: is_modern(),
        }
    }

    /// Encodes a page as a frame. `None`: it does not shrink.
    pub(crate) fn encode(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        #[cfg(target_arch = "x86_64")]
        if self.is_modern {
            // SAFETY: the processor was found to have all that this is compiled for.
            return unsafe { self.encode_modern(page) };
        }
        self.encode_any(page)
    }

    /// The same with instructions that not every processor has, of which those that shift and count bits matter: 3 %
    /// faster.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
    fn encode_modern(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        self.encode_any(page)
    }

    #[inline(always)]
    fn encode_any(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        self.searcher.search(page, &mut self.parse);
        self.encode_parse()
    }

    /// Encodes what a search left in `parse`.
    #[inline(always)]
    fn encode_parse(&mut self) -> Option<&[u8]> {
        let Self { parse, literals, sequences, output, .. } = self;
        let at = literals.encode(parse.literals(), output, BLOCK)?;
        let end = sequences.encode(&parse.codes, output, at);
        if end >= PAGE {
            return None;
        }
        let size = (end - BLOCK) as u32;
        put4(output, BLOCK - 3, (size << 3) | COMPRESSED | LAST, 3);
        output[..HEADER.len()].copy_from_slice(&HEADER);
        Some(&output[..end])
    }
}

/// Whether [`Encoder::encode_modern`] may be called.
#[cfg(target_arch = "x86_64")]
fn is_modern() -> bool {
    is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("avx2")
}
