//! Turns a flattened stream into the file that it describes, in one pass: the stream may come from a pipe.

use std::io::{self, Read};

use pagehaul_output::{Output, WriteError};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::STATUS_OFFSET;
use crate::format::{FLAT_SIGNATURE, FlatHeader, FlatRecord, SIGNATURE, flags};

/// Bytes read and written at a time.
const PIECE: usize = 1 << 20;
/// Offset of `e_flags` in an ELF64 header; bit 0 marks an incomplete dump.
const ELF_FLAGS: usize = 48;

/// How a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rearranged {
    /// With its terminator.
    Complete,
    /// With its terminator; the dump in it is marked incomplete.
    MarkedIncomplete,
    /// Before its terminator. The file is marked incomplete.
    Truncated(String),
    /// The file could not take the rest of it, for this reason. It is marked incomplete.
    Unwritten(String),
}

/// Why a stream does not become a file.
#[derive(Debug, thiserror::Error)]
pub enum RearrangeError {
    /// It does not start like one.
    #[error("this is not a flattened dump: expected \"makedumpfile\" at the start")]
    NotFlattened,
    /// Nothing in it says what kind of file it describes.
    #[error("the flattened dump ends before the header of the dump in it")]
    NoHeader,
    /// The file cannot be written, or not be marked incomplete.
    #[error("cannot write the dump: {0}")]
    Output(#[from] WriteError),
}

/// Reads a stream up to its terminator, and writes each record to its offset. Bytes after the terminator stay unread. A
/// stream that ends or fails before leaves a file marked incomplete, and so does a full disk.
pub fn rearrange(input: &mut dyn Read, output: &mut dyn Output) -> Result<Rearranged, RearrangeError> {
    let mut header = FlatHeader::new_zeroed();
    input.read_exact(header.as_mut_bytes()).map_err(|_| RearrangeError::NotFlattened)?;
    if header.signature != FLAT_SIGNATURE || header.kind.get() != 1 || header.version.get() != 1 {
        return Err(RearrangeError::NotFlattened);
    }
    let mut head = Head([0; HEAD]);
    let copied = copy(input, output, &mut head).and_then(|()| Ok(output.sync()?));
    let Err(cut) = copied else {
        let marked = head.mark().is_some_and(|(_, _, marked)| marked);
        return Ok(if marked { Rearranged::MarkedIncomplete } else { Rearranged::Complete });
    };
    let Some((offset, bytes, _)) = head.mark() else {
        return Err(match cut {
            Cut::Input(_) => RearrangeError::NoHeader,
            Cut::Output(error) => error.into(),
        });
    };
    output.write(offset, &bytes)?;
    output.sync()?;
    Ok(match cut {
        Cut::Input(why) => Rearranged::Truncated(why),
        Cut::Output(error) => Rearranged::Unwritten(error.to_string()),
    })
}

/// Why a stream was not copied to its terminator.
enum Cut {
    /// It ends or cannot be read: a sentence.
    Input(String),
    /// The file does not take it.
    Output(WriteError),
}

impl From<WriteError> for Cut {
    fn from(error: WriteError) -> Self {
        Self::Output(error)
    }
}

/// Copies records until the terminator.
fn copy(input: &mut dyn Read, output: &mut dyn Output, head: &mut Head) -> Result<(), Cut> {
    let mut buffer = vec![0; PIECE];
    let mut end = 0_u64;
    loop {
        let mut record = FlatRecord::new_zeroed();
        if let Err(error) = input.read_exact(record.as_mut_bytes()) {
            return Err(Cut::Input(truncated(&error)));
        }
        let (offset, size) = (record.offset.get(), record.size.get());
        if (offset, size) == (FlatRecord::END, FlatRecord::END) {
            return Ok(());
        }
        let (Ok(offset), Ok(size)) = (u64::try_from(offset), u64::try_from(size)) else {
            return Err(Cut::Input(format!("the flattened dump is damaged after {end} bytes")));
        };
        if size == 0 || offset.checked_add(size).is_none_or(|end| end > i64::MAX as u64) {
            return Err(Cut::Input(format!("the flattened dump is damaged after {end} bytes")));
        }
        let mut done = 0;
        while done < size {
            let piece = usize::try_from(size - done).unwrap_or(PIECE).min(PIECE);
            let (count, error) = fill(input, &mut buffer[..piece]);
            let bytes = &buffer[..count];
            let wrote = output.write(offset + done, bytes);
            let written = wrote.as_ref().map_or_else(WriteError::written, |()| count);
            head.remember(offset + done, &bytes[..written.min(count)]);
            wrote?;
            done += count as u64;
            end = end.max(offset + done);
            if let Some(error) = error {
                return Err(Cut::Input(truncated(&error)));
            }
        }
    }
}

/// Fills `buffer`. Returns how many bytes came, and the error if these are not all.
fn fill(input: &mut dyn Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut done = 0;
    while done < buffer.len() {
        match input.read(&mut buffer[done..]) {
            Ok(0) => return (done, Some(io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, None)
}

fn truncated(error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        "the flattened dump ends before its end record".into()
    } else {
        format!("the flattened dump cannot be read to its end: {error}")
    }
}

/// Bytes that hold the header of an ELF or kdump-compressed file.
const HEAD: usize = 4096;

/// The start of the file, as written so far.
struct Head([u8; HEAD]);

impl Head {
    fn remember(&mut self, offset: u64, bytes: &[u8]) {
        let Ok(start) = usize::try_from(offset) else { return };
        if let Some(room) = self.0.get_mut(start..) {
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
        }
    }

    /// Returns offset and bytes of the word that marks this dump incomplete, and whether it does already.
    fn mark(&self) -> Option<(u64, [u8; 4], bool)> {
        let (offset, big_endian, bit) = if self.0.starts_with(&SIGNATURE) {
            // The format has no byte order mark: its version is a small number.
            let version = u32::from_le_bytes(self.word(SIGNATURE.len()));
            (STATUS_OFFSET as usize, version > 0xffff, flags::INCOMPLETE)
        } else if self.0.starts_with(b"\x7fELF") {
            (ELF_FLAGS, self.0[5] == 2, 1)
        } else {
            return None;
        };
        let word = self.word(offset);
        let status = if big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) };
        let marked = status | bit;
        let bytes = if big_endian { marked.to_be_bytes() } else { marked.to_le_bytes() };
        Some((offset as u64, bytes, status & bit != 0))
    }

    fn word(&self, offset: usize) -> [u8; 4] {
        self.0[offset..].first_chunk().copied().unwrap_or_default()
    }
}
