//! Images by LiME, the Linux Memory Extractor, format `lime` version 1: a header and bytes for each range of System RAM.
//!
//! A header has 32 bytes, little-endian: magic, version (4 bytes each), first and last address of the range (8 bytes each), 8 bytes
//! of zeros (LiME, doc/README.md).

use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{OpenError, Piece};

use super::limits::{END_OF_MEMORY, MAX_MISSING};

/// "EMiL" in the file.
pub(crate) const MAGIC: [u8; 4] = 0x4c69_4d45_u32.to_le_bytes();

const HEADER: u64 = 32;
const VERSION: u32 = 1;
/// Ranges that are read. Machines have a few dozen of System RAM.
const MAX_RANGES: usize = 65_536;

/// Returns the ranges, and what is wrong with the file. A header that contradicts itself ends the ranges: where the next one is depends
/// on it.
pub(crate) fn pieces(file: &dyn ReadAt) -> Result<(Vec<Piece>, Vec<String>), OpenError> {
    let (mut pieces, mut faults) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < file.size() {
        if pieces.len() == MAX_RANGES {
            faults.push(format!("only its first {MAX_RANGES} ranges are read"));
            break;
        }
        match piece(file, at)? {
            Ok(piece) => {
                pieces.push(piece);
                // It cannot overflow: both are less than 2^63.
                at = piece.offset + piece.stored;
            }
            Err(why) if pieces.is_empty() => {
                return Err(OpenError::Format { path: file.path().to_owned(), offset: at, what: why });
            }
            Err(why) => {
                faults.push(format!("{why}: what follows is not read"));
                break;
            }
        }
    }
    Ok((pieces, faults))
}

/// Reads the header at `at`. Returns its range, or what is wrong with it.
fn piece(file: &dyn ReadAt, at: u64) -> Result<Result<Piece, String>, OpenError> {
    let mut header = [0; HEADER as usize];
    match file.read_exact_at(at, &mut header) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
            return Ok(Err(format!("the file ends in the LiME header at {at:#x}")));
        }
        Err(source) => {
            return Err(OpenError::Io {
                path: file.path().to_owned(),
                action: "read the LiME headers of",
                source,
            });
        }
    }
    let word = |at: usize| {
        header.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
    };
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let (version, first, last) = (word(4), long(8), long(16));
    Ok(if header.first_chunk() != Some(&MAGIC) {
        Err(format!("no LiME header is at {at:#x}, where the last range ends"))
    } else if version != VERSION {
        Err(format!("the LiME header at {at:#x} has version {version}; only version 1 is read"))
    } else if first > last || last >= END_OF_MEMORY || last - first >= file.size().saturating_add(MAX_MISSING)
    {
        Err(format!("the LiME header at {at:#x} has the impossible range {first:#x} to {last:#x}"))
    } else {
        let size = last - first + 1;
        Ok(Piece { start: first, end: last + 1, stored: size, offset: at + HEADER })
    })
}
