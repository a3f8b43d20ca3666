//! What a core says of itself.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pagehaul_codec::FrameDecompressor;
use pagehaul_elfcore::notes;
use serde::Serialize;

use crate::ProcessError;
use crate::elf::{self, Headers};
use crate::procfs::Pid;
use crate::seekable::{self, Frame};
use crate::threads::kind;

/// Most bytes of notes that are read: the registers of tens of thousands of threads.
pub(crate) const MOST_NOTES: u64 = 256 << 20;
/// Most bytes that one frame of ours holds.
const MOST_CONTENT: u64 = seekable::MOST_ZEROS;

/// What is said of zstd that has no table of frames.
pub(crate) const NO_TABLE: &str = "it is zstd, but has no table of frames at its end: it was not written to its end, is \
                                   cut, or is no core of pagehaul's; `zstd -d` gives what is there";

/// What a core says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CoreInfo {
    /// "ELF core" or "ELF core in zstd frames".
    pub format: &'static str,
    /// Why it is not complete; none if it is.
    pub incomplete_because: Option<String>,
    /// The process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// Its arguments, at most 79 bytes of them.
    pub arguments: String,
    /// Its threads.
    pub threads: u64,
    /// Its mappings.
    pub mappings: u64,
    /// Bytes of these.
    pub mapped_bytes: u64,
    /// Bytes of these that are in the core, holes included.
    pub held_bytes: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// zstd frames.
    pub frames: u64,
}

/// The bytes of a core, decompressed as they are asked for.
pub(crate) struct Reader {
    pub(crate) file: File,
    pub(crate) size: u64,
    /// None: plain ELF.
    pub(crate) frames: Option<Vec<Frame>>,
}

impl Reader {
    pub(crate) fn open(path: &Path) -> Result<Self, ProcessError> {
        let failed = |action| {
            let path = path.to_owned();
            move |source| ProcessError::Output { path, action, source }
        };
        let file = File::open(path).map_err(failed("open"))?;
        let size = file.metadata().map_err(failed("examine"))?.len();
        let read = |at, len| read_at(&file, at, len);
        let frames = seekable::read_table(size, read).map_err(failed("read"))?;
        Ok(Self { file, size, frames })
    }

    /// Up to `len` bytes of the core; fewer only at its end.
    pub(crate) fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        let Some(frames) = &self.frames else { return read_at(&self.file, at, len) };
        let end = at.saturating_add(len as u64);
        let mut out = Vec::new();
        let first = frames.partition_point(|frame| frame.content.end <= at);
        for frame in frames.iter().skip(first).take_while(|frame| frame.content.start < end) {
            let content = decompress(&self.file, frame, &mut decompressor()?)?;
            let from = at.max(frame.content.start) - frame.content.start;
            let to = end.min(frame.content.end) - frame.content.start;
            out.extend_from_slice(content.get(from as usize..to as usize).unwrap_or_default());
        }
        Ok(out)
    }

    /// Whether it is zstd, but without the table of frames that a finished core has at its end.
    pub(crate) fn lacks_table(&self) -> bool {
        let mut start = [0; 4];
        self.frames.is_none()
            && self.file.read_exact_at(&mut start, 0).is_ok()
            && start == seekable::FRAME_MAGIC.to_le_bytes()
    }

    /// Bytes of the core that are there.
    pub(crate) fn there(&self) -> u64 {
        match &self.frames {
            Some(frames) => frames.last().map_or(0, |frame| frame.content.end),
            None => self.size,
        }
    }
}

/// Reads up to `len` bytes; fewer only at the end of the file.
fn read_at(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    // What a damaged table promises may be far beyond the end: nothing is allocated for that.
    let there = file.metadata()?.len().saturating_sub(at).min(len as u64);
    let mut bytes = vec![0; there as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

pub(crate) fn decompressor() -> io::Result<FrameDecompressor> {
    FrameDecompressor::new().map_err(io::Error::other)
}

/// Decompresses a frame and makes sure that it holds what the table says.
pub(crate) fn decompress(
    file: &File,
    frame: &Frame,
    decompressor: &mut FrameDecompressor,
) -> io::Result<Vec<u8>> {
    let content = frame.content.end - frame.content.start;
    let stored = frame.stored.end - frame.stored.start;
    if content > MOST_CONTENT || stored > 2 * MOST_CONTENT {
        return Err(io::Error::other(format!(
            "a frame of {content} bytes is larger than any pagehaul writes"
        )));
    }
    let bytes = read_at(file, frame.stored.start, stored as usize)?;
    let mut out = Vec::new();
    decompressor.decompress(&bytes, &mut out, content as usize).map_err(io::Error::other)?;
    if out.len() as u64 != content {
        return Err(io::Error::other(format!("it holds {} bytes instead of {content}", out.len())));
    }
    Ok(out)
}

/// Describes a core of a process. None if the file is something else (a vmcore too is an ELF core, but of no process).
pub fn describe(path: &Path) -> Result<Option<CoreInfo>, ProcessError> {
    let reader = Reader::open(path)?;
    if reader.lacks_table() {
        return Err(ProcessError::Damaged { path: path.to_owned(), what: NO_TABLE.into() });
    }
    let damaged = |what: String| ProcessError::Damaged { path: path.to_owned(), what };
    let headers = elf::parse(|at, len| reader.read(at, len)).map_err(|error| damaged(error.to_string()))?;
    let headers = match headers {
        Ok(headers) => headers,
        Err(why) if reader.frames.is_some() => return Err(damaged(why.to_owned())),
        Err(_) => return Ok(None),
    };
    let (at, len) = (headers.notes.0, headers.notes.1.min(MOST_NOTES));
    let bytes = reader.read(at, len as usize).map_err(|error| damaged(error.to_string()))?;
    let Some(process) = process_note(&bytes) else { return Ok(None) };
    let text = |range: std::ops::Range<usize>| {
        let bytes = process.desc.get(range).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    };
    let pid = process.desc.get(24..28).and_then(|id| id.try_into().ok()).map_or(0, i32::from_le_bytes);
    let sum = |part: fn(&elf::Load) -> u64| headers.loads.iter().map(part).fold(0u64, u64::saturating_add);
    Ok(Some(CoreInfo {
        format: if reader.frames.is_some() { "ELF core in zstd frames" } else { "ELF core" },
        incomplete_because: incomplete(&reader, &headers),
        pid,
        name: text(40..56),
        arguments: text(56..136),
        threads: u64::from(notes::cpu_count(&bytes)),
        mappings: headers.loads.len() as u64,
        mapped_bytes: sum(|load| load.size),
        held_bytes: sum(|load| load.stored),
        file_bytes: reader.size,
        frames: reader.frames.as_ref().map_or(0, |frames| frames.len() as u64),
    }))
}

/// The note that every core of a process has, and no vmcore.
pub(crate) fn process_note(bytes: &[u8]) -> Option<notes::Note<'_>> {
    notes::iter(bytes).find(|note| note.name == b"CORE" && note.kind == kind::PRPSINFO)
}

/// Why a core with these headers is not complete, if it isn't.
pub(crate) fn incomplete(reader: &Reader, headers: &Headers) -> Option<String> {
    if headers.incomplete {
        return Some("its writer did not finish".into());
    }
    let needed = headers.loads.iter().map(|load| load.offset.saturating_add(load.stored)).max().unwrap_or(0);
    let there = reader.there();
    (there < needed).then(|| format!("it is cut: {} bytes are missing at its end", needed - there))
}
