//! zstd frames of single pages of 4 KiB, about as small as libzstd's level 1 makes them (RFC 8878).
//!
//! An encoder for streams of any length spends half of its time per page on work that does not depend on the
//! page's length: contexts, tables for the longest matches and codes. This one knows that a page has 4 KiB:
//! positions and counts fit `u16`, and FSE tables are small.
//!
//! [`search`] finds matches and fills a [`Parse`], which is all that the entropy coder ([`literals`],
//! [`sequences`]) reads. Another match finder can replace it: it clears the parse, then adds literals and
//! sequences in order.

mod codes;
mod fse;
mod huffman;
mod limits;
mod literals;
mod parse;
mod search;
mod sequences;

#[cfg(test)]
mod tests;

use crate::common::bit_writer::{Output, put4};
use crate::common::zeroed;
use limits::PAGE;
use parse::Parse;

/// Magic number and frame header (RFC 8878, 3.1.1 and 3.1.1.1): a descriptor without flags, then a window of
/// 4 KiB. libzstd writes the same without a content size, which readers of dumps know.
const FRAME_HEADER: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0, 2 << 3];
/// Where the content of the only block starts: after the block header of three bytes.
const BLOCK_CONTENT: usize = FRAME_HEADER.len() + 3;
/// `Last_Block` and the `Block_Type` of a compressed block, in a block header (RFC 8878, 3.1.1.2).
const LAST_BLOCK: u32 = 1;
const COMPRESSED_BLOCK: u32 = 2 << 1;

/// Buffers and tables of an encoder.
pub(crate) struct Encoder {
    match_finder: search::MatchFinder,
    parse: Parse,
    literals: literals::LiteralsEncoder,
    sequences: sequences::SequencesEncoder,
    output: Box<Output>,
    #[cfg(target_arch = "x86_64")]
    has_bmi2_avx2: bool,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self {
            match_finder: search::MatchFinder::new(),
            parse: Parse::new(),
            literals: literals::LiteralsEncoder::new(),
            sequences: sequences::SequencesEncoder::new(),
            output: zeroed(),
            #[cfg(target_arch = "x86_64")]
            has_bmi2_avx2: has_bmi2_avx2(),
        }
    }

    /// Encodes a page as a frame. Returns `None` if the frame is not shorter than the page.
    pub(crate) fn encode(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        #[cfg(target_arch = "x86_64")]
        if self.has_bmi2_avx2 {
            // SAFETY: the processor has every feature that the function is compiled for.
            return unsafe { self.encode_bmi2_avx2(page) };
        }
        self.encode_portable(page)
    }

    /// Does the same with instructions that not every processor has. Those that shift and count bits make it
    /// 3 % faster.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt,avx2")]
    fn encode_bmi2_avx2(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        self.encode_portable(page)
    }

    #[inline(always)]
    fn encode_portable(&mut self, page: &[u8; PAGE]) -> Option<&[u8]> {
        self.match_finder.parse(page, &mut self.parse);
        self.encode_parse()
    }

    /// Encodes `parse` as a frame of one block.
    #[inline(always)]
    fn encode_parse(&mut self) -> Option<&[u8]> {
        let Self { parse, literals, sequences, output, .. } = self;
        let at = literals.write(parse.literals(), output, BLOCK_CONTENT)?;
        let end = sequences.write(&parse.sequences, output, at);
        if end >= PAGE {
            return None;
        }
        let size = (end - BLOCK_CONTENT) as u32;
        put4(output, FRAME_HEADER.len(), (size << 3) | COMPRESSED_BLOCK | LAST_BLOCK, 3);
        output[..FRAME_HEADER.len()].copy_from_slice(&FRAME_HEADER);
        Some(&output[..end])
    }
}

/// Returns whether [`Encoder::encode_bmi2_avx2`] may be called.
#[cfg(target_arch = "x86_64")]
fn has_bmi2_avx2() -> bool {
    is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("avx2")
}
