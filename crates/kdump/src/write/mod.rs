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
use pagehaul_output::{OutputError, StoredPage};
use pagehaul_physmem::PAGE_SIZE;

use crate::LayoutError;
use crate::format::{PageDesc, flags};

pub use bitmaps::BitmapWriter;
pub use flattened::FlattenedWriter;
pub use rearrange::{RearrangeError, Rearranged, rearrange};
pub use records::FlattenedOutput;
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

/// Returns the descriptor of a page whose bytes, if it has any, are at file offset `at`.
fn descriptor(page: StoredPage, at: u64, zero_page: u64) -> PageDesc {
    match page {
        StoredPage::Zero => PageDesc::new(zero_page, PAGE_SIZE as u32, 0),
        StoredPage::Raw => PageDesc::new(at, PAGE_SIZE as u32, 0),
        StoredPage::Compressed(method, size) => PageDesc::new(at, size.into(), codec_flag(method.codec())),
        StoredPage::Unreadable => PageDesc::new(0, 0, 0),
    }
}
