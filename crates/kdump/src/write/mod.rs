//! Writing kdump-compressed dumps: one file, a split set, a flattened stream.
//!
//! A machine may die, a disk may fill up, and a user may interrupt at any moment. Whatever is in the file then must
//! be a dump that [`KdumpFile`](crate::KdumpFile) and other readers take for what it is. Three invariants see to that:
//!
//! - **INCOMPLETE until synced.** The status word of the header has the INCOMPLETE bit from the first write. `finish`
//!   clears it after everything else is on the disk. A stream's status word is its last record, and a stream without
//!   one is incomplete. A raw disk may hold an older dump, so its header is zeroed first, and the new one is written
//!   once no descriptor of the older dump is left.
//! - **Data before its descriptor.** A descriptor is written after the bytes that it points to. Readers treat a
//!   descriptor of zeros as a missing page, but one that points past the end of the file makes some of them crash or
//!   return another page.
//! - **Tables change in one write.** Readers find a page's descriptor by counting bits of bitmap 2, so neither bitmap
//!   nor table can be corrected in place. A dump in one file that ends early gets new tables behind its data, and one
//!   4-byte write of `sub_hdr_size` makes them the dump's ([`SingleFileWriter`]). A part of a split set declares that it has no
//!   pages while its table moves ([`SplitPartWriter`]).
//!
//! Bitmap 2 is written before the pages, and announces what the descriptors then deliver. The bitmap of a killed capture
//! therefore claims pages that the dump lacks. This is on purpose: makedumpfile's incomplete dumps have the same form (a
//! descriptor of zeros and the INCOMPLETE bit), which other readers know. A bitmap of only the pages so far would change
//! the rank of all later pages with each page written.
//!
//! All pages of zeros share one page of data, the first behind the tables.

mod bitmaps;
mod flattened;
mod rank;
mod rearrange;
mod records;
mod relocate;
mod single;
mod split;
mod table;

use pagehaul_codec::Codec;
use pagehaul_machine::PageSize;
use pagehaul_output::{Output, OutputError, StoredPage, WriteError};

use crate::format::LayoutError;
use crate::format::{PageDesc, flags};

pub use bitmaps::BitmapWriter;
pub use flattened::FlattenedWriter;
pub use rearrange::{RearrangeError, Rearranged, rearrange};
pub use records::{FlattenedOutput, StreamTarget};
pub use single::SingleFileWriter;
pub use split::{SplitPartWriter, SplitUnit};

/// Descriptors that may wait for their pages' data to be in the file. Pages of zeros have no data that would fill a
/// chunk.
const MAX_PENDING: usize = 1 << 16;

/// Why a dump cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine does not fit the format.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The output failed.
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// Returns the descriptor flag of a codec.
pub fn codec_flag(codec: Codec) -> u32 {
    match codec {
        Codec::None => 0,
        Codec::Zlib => flags::ZLIB,
        Codec::Lzo => flags::LZO,
        Codec::Snappy => flags::SNAPPY,
        Codec::Zstd => flags::ZSTD,
    }
}

/// Blocks that a file system writes whole.
const BLOCK: usize = 4096;

/// Writes descriptors at file offset `at`. `is_new` returns whether the file lacks the descriptor of that index so far.
///
/// A write may end at any block (a full disk, SIGKILL), and a descriptor may lie in two blocks. If only its offset is
/// written, crash takes it for another page's; if only its size is, libkdumpfile takes it for the file's first page. So new
/// descriptors first get a size that both refuse; the second write has their offsets in the file before their sizes.
fn write_descriptors(
    output: &mut dyn Output,
    at: u64,
    descriptors: &mut [u8],
    is_new: impl Fn(usize) -> bool,
) -> Result<(), WriteError> {
    let mut split = Vec::new();
    for start in split_descriptors(at, descriptors.len()).filter(|start| is_new(*start)) {
        let descriptor = &mut descriptors[start..start + PageDesc::SIZE];
        if descriptor.iter().any(|&byte| byte != 0) {
            split.push((start, descriptor.to_vec()));
            descriptor.fill(0);
            descriptor[OFFSET_BYTES..OFFSET_BYTES + 4].fill(0xff);
        }
    }
    let refused = if split.is_empty() { Ok(()) } else { output.write(at, descriptors) };
    for (start, descriptor) in split {
        descriptors[start..start + PageDesc::SIZE].copy_from_slice(&descriptor);
    }
    refused?;
    output.write(at, descriptors)
}

/// Bytes of a descriptor's offset, its first field. The size follows, in four bytes.
const OFFSET_BYTES: usize = 8;

/// Returns where those descriptors start whose offset ends a block, of `length` bytes of descriptors at file offset `at`.
/// The other ends of blocks are between two descriptors, or within the last field, which is always 0.
fn split_descriptors(at: u64, length: usize) -> impl Iterator<Item = usize> + Clone {
    (0..length)
        .step_by(PageDesc::SIZE)
        .filter(move |start| (at + (start + OFFSET_BYTES) as u64).is_multiple_of(BLOCK as u64))
}

/// Returns the descriptor of a page of `size` whose bytes, if it has any, are at file offset `at`.
fn descriptor(page: StoredPage, size: PageSize, at: u64, zero_page: u64) -> PageDesc {
    match page {
        StoredPage::Zero => PageDesc::new(zero_page, size.bytes() as u32, 0),
        StoredPage::Raw => PageDesc::new(at, size.bytes() as u32, 0),
        StoredPage::Compressed(method, size) => PageDesc::new(at, size.into(), codec_flag(method.codec())),
        StoredPage::Unreadable => PageDesc::new(0, 0, 0),
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;

    /// What is in a file after each write, if every write may end at any block.
    struct Torn {
        file: Vec<u8>,
        states: Vec<Vec<u8>>,
    }

    impl Output for Torn {
        fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
            for (at, byte) in (offset as usize..).zip(bytes) {
                if at.is_multiple_of(BLOCK) {
                    self.states.push(self.file.clone());
                }
                self.file[at] = *byte;
            }
            self.states.push(self.file.clone());
            Ok(())
        }

        fn reserve(&mut self, _: u64, _: u64) -> Result<(), WriteError> {
            Ok(())
        }

        fn end(&self) -> u64 {
            self.file.len() as u64
        }

        fn sync(&mut self) -> Result<(), WriteError> {
            Ok(())
        }

        fn is_sparse(&self) -> bool {
            true
        }

        fn can_rewrite(&self) -> bool {
            true
        }
    }

    #[test]
    fn no_descriptor_has_an_offset_without_its_size_or_a_size_without_its_offset() {
        for first in [0, 1, 340, 341, 342] {
            let table: Vec<PageDesc> = (0..2000).map(|at| PageDesc::new(0x1_2345_0000 + at, 99, 2)).collect();
            let mut bytes = table.as_bytes().to_vec();
            let start = first * PageDesc::SIZE;
            let mut out = Torn { file: vec![0; start + bytes.len()], states: Vec::new() };
            write_descriptors(&mut out, start as u64, &mut bytes, |_| true).unwrap();
            let states = out.states.split_off(0);
            // Written once more, as with others of the same blocks: they stay whole.
            write_descriptors(&mut out, start as u64, &mut bytes, |_| false).unwrap();
            for state in &out.states {
                assert_eq!(&state[start..], table.as_bytes());
            }
            assert_eq!(&out.file[start..], table.as_bytes());
            assert_eq!(bytes, table.as_bytes());
            for state in states {
                for (index, bytes) in state[start..].chunks(PageDesc::SIZE).enumerate() {
                    let found = PageDesc::read_from_bytes(bytes).unwrap();
                    let refused = bytes == [0; PageDesc::SIZE] || found.size.get() == u32::MAX;
                    assert!(refused || bytes == table[index].as_bytes(), "{first}: {index}");
                }
            }
        }
    }
}
