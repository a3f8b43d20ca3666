//! Reading a core file: ELF as it is, or in zstd frames.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pagehaul_codec::{CodecError, FrameDecompressor};
use pagehaul_elfcore::{ElfError, ElfHeaders, PT_LOAD, PT_NOTE, ProgramHeader};
use pagehaul_physmem::file::open_regular;

use crate::arch;
use crate::error::ProcessError;
use crate::error::failed;
use crate::seekable::{self, Frame};

/// Maximum size of the notes that are read: the registers of tens of thousands of threads.
pub(crate) const MAX_NOTES: u64 = 256 << 20;
/// Maximum number of program headers that are read: a kernel has at most 65,530 mappings per process by default
/// (`vm.max_map_count`), but it can be raised.
const MAX_HEADERS: u64 = 4 << 20;
/// Maximum size of a frame's content.
const MAX_CONTENT: u64 = seekable::MAX_ZEROS;

/// Why bytes of a core cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error("a frame of {0} bytes is larger than any pagehaul writes")]
    Large(u64),
    #[error("it holds {found} bytes instead of {expected}")]
    Length { found: u64, expected: u64 },
}

/// A core file, decompressed where it is read.
pub(crate) struct CoreFile {
    file: File,
    /// Bytes of the file.
    pub(crate) size: u64,
    /// `None` for plain ELF.
    pub(crate) frames: Option<Vec<Frame>>,
}

/// `EM_386` and `EM_ARM` (<linux/elf-em.h>): processes of 32 bits on x86_64 and arm64.
const MACHINES_OF_32_BITS: [u16; 2] = [3, 40];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CoreHeaders {
    /// Whether it is of 64 bits.
    pub(crate) wide: bool,
    pub(crate) incomplete: bool,
    pub(crate) limited: bool,
    pub(crate) note: ProgramHeader,
    pub(crate) loads: Vec<ProgramHeader>,
}

impl CoreFile {
    pub(crate) fn open(path: &Path) -> Result<Self, ProcessError> {
        let file = open_regular(path).map_err(failed(path, "open"))?;
        let size = file.metadata().map_err(failed(path, "examine"))?.len();
        let read = |at, len| read_at(&file, at, len);
        let frames = seekable::read_table(size, read).map_err(failed(path, "read"))?;
        Ok(Self { file, size, frames })
    }

    /// Reads up to `len` bytes of the core; fewer only at its end.
    pub(crate) fn read(&self, at: u64, len: u64) -> Result<Vec<u8>, ReadError> {
        let Some(frames) = &self.frames else { return Ok(read_at(&self.file, at, len as usize)?) };
        let end = at.saturating_add(len);
        let mut out = Vec::new();
        let first = frames.partition_point(|frame| frame.content.end <= at);
        for frame in frames.iter().skip(first).take_while(|frame| frame.content.start < end) {
            let content = self.decompress(frame, &mut FrameDecompressor::new()?)?;
            let from = at.max(frame.content.start) - frame.content.start;
            let to = end.min(frame.content.end) - frame.content.start;
            out.extend_from_slice(content.get(from as usize..to as usize).unwrap_or_default());
        }
        Ok(out)
    }

    /// Decompresses a frame, and verifies that it holds what the table says.
    pub(crate) fn decompress(
        &self,
        frame: &Frame,
        decompressor: &mut FrameDecompressor,
    ) -> Result<Vec<u8>, ReadError> {
        let expected = frame.content.end - frame.content.start;
        let stored = frame.stored.end - frame.stored.start;
        if expected > MAX_CONTENT || stored > 2 * MAX_CONTENT {
            return Err(ReadError::Large(expected));
        }
        let bytes = read_at(&self.file, frame.stored.start, stored as usize)?;
        let mut out = Vec::new();
        decompressor.decompress(&bytes, &mut out, expected as usize)?;
        let found = out.len() as u64;
        if found == expected { Ok(out) } else { Err(ReadError::Length { found, expected }) }
    }

    /// Reads the headers of a core of a process, whatever machine it ran on.
    pub(crate) fn headers(&self) -> Result<CoreHeaders, ElfError<ReadError>> {
        let fill = |at: u64, buf: &mut [u8]| {
            let bytes = self.read(at, buf.len() as u64)?;
            let found = bytes.len() as u64;
            let expected = buf.len() as u64;
            if found < expected {
                return Err(ReadError::Length { found, expected });
            }
            buf.copy_from_slice(&bytes);
            Ok(())
        };
        let elf = ElfHeaders::open(self.content_size(), fill)?;
        let is_known = match elf.wide {
            true => arch::is_known(elf.machine),
            // The core handler keeps those of 32-bit processes as the kernel writes them.
            false => MACHINES_OF_32_BITS.contains(&elf.machine),
        };
        if !is_known || elf.big_endian || elf.count > MAX_HEADERS {
            return Err(ElfError::NotCore);
        }
        let (mut note, mut loads) = (ProgramHeader::default(), Vec::new());
        elf.for_each(|_, header| {
            match header.kind {
                PT_NOTE => note = header,
                PT_LOAD => loads.push(header),
                _ => {}
            }
            Ok::<_, ElfError<ReadError>>(())
        })?;
        // No core of 32 bits is marked.
        let (incomplete, limited) = (elf.wide && elf.incomplete, elf.wide && elf.limited);
        Ok(CoreHeaders { wide: elf.wide, incomplete, limited, note, loads })
    }

    /// Returns whether it is zstd without the table of frames that a finished core has at its end.
    pub(crate) fn lacks_table(&self) -> bool {
        let mut start = [0; 4];
        self.frames.is_none()
            && self.file.read_exact_at(&mut start, 0).is_ok()
            && start == seekable::FRAME_MAGIC.to_le_bytes()
    }

    /// Bytes of the core that the file holds, decompressed.
    pub(crate) fn content_size(&self) -> u64 {
        match &self.frames {
            Some(frames) => frames.last().map_or(0, |frame| frame.content.end),
            None => self.size,
        }
    }

    /// Returns why a core with these headers is incomplete, if it is.
    pub(crate) fn incomplete_because(&self, headers: &CoreHeaders) -> Option<String> {
        if headers.incomplete {
            return Some("its writer did not finish".into());
        }
        let ends = headers.loads.iter().map(|load| load.offset.saturating_add(load.file_size));
        let missing = ends.max().unwrap_or(0).saturating_sub(self.content_size());
        if missing > 0 {
            return Some(format!("it is truncated: {missing} bytes are missing at its end"));
        }
        headers.limited.then(|| "memory was left out because of a limit (max_core, RLIMIT_CORE)".into())
    }
}

/// Reads up to `len` bytes; fewer only at the end of the file.
fn read_at(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    // What a damaged table promises may be far beyond the end: nothing is allocated for that.
    let size = file.metadata()?.len().saturating_sub(at).min(len as u64);
    let mut bytes = vec![0; size as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
