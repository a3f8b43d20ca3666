//! What a core says of itself, and whether it is undamaged.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use pagehaul_codec::FrameDecompressor;
use pagehaul_memory::notes;
use serde::Serialize;

use crate::elf::{self, Headers};
use crate::procfs::Pid;
use crate::seekable::{self, Frame};
use crate::threads::kind;
use crate::{ProcessError, Watch};

/// Most bytes of notes that are read: 1 TiB of threads' registers there is not.
const MOST_NOTES: u64 = 1 << 30;
/// Most bytes that one frame of ours holds.
const MOST_CONTENT: u64 = seekable::MOST_ZEROS;

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

/// What a look at every byte found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Frames looked at.
    pub frames: u64,
    /// Bytes they hold.
    pub bytes: u64,
    /// Damage: where it is and what, at most 16.
    pub damage: Vec<String>,
    /// Whether there are checksums at all: plain ELF has none.
    pub has_checksums: bool,
}

/// The bytes of a core, decompressed as they are asked for.
struct Reader {
    file: File,
    size: u64,
    /// None: plain ELF.
    frames: Option<Vec<Frame>>,
}

impl Reader {
    fn open(path: &Path) -> Result<Self, ProcessError> {
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

    fn read(&self, at: u64, len: usize) -> io::Result<Vec<u8>> {
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
}

/// Reads up to `len` bytes; fewer only at the end of the file.
fn read_at(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    // What a damaged table promises may be far beyond the end: nothing is allocated for that.
    let there = file.metadata()?.len().saturating_sub(at).min(len as u64);
    let mut bytes = vec![0; there as usize];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

fn decompressor() -> io::Result<FrameDecompressor> {
    FrameDecompressor::new().map_err(io::Error::other)
}

fn decompress(file: &File, frame: &Frame, decompressor: &mut FrameDecompressor) -> io::Result<Vec<u8>> {
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
    let mut start = [0; 4];
    let is_zstd = reader.file.read_exact_at(&mut start, 0).is_ok() && start == 0xfd2f_b528u32.to_le_bytes();
    if is_zstd && reader.frames.is_none() {
        let what = "it is zstd, but has no table of frames at its end: it was not written to its end, is cut, or is no \
                    core of pagehaul's; `zstd -d` gives what is there"
            .to_owned();
        return Err(ProcessError::Damaged { path: path.to_owned(), what });
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
    let Some(process) = notes::iter(&bytes).find(|note| note.name == b"CORE" && note.kind == kind::PRPSINFO)
    else {
        return Ok(None);
    };
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

fn incomplete(reader: &Reader, headers: &Headers) -> Option<String> {
    if headers.incomplete {
        return Some("its writer did not finish".into());
    }
    let needed = headers.loads.iter().map(|load| load.offset.saturating_add(load.stored)).max().unwrap_or(0);
    let there = match &reader.frames {
        Some(frames) => frames.last().map_or(0, |frame| frame.content.end),
        None => reader.size,
    };
    (there < needed).then(|| format!("it is cut: {} bytes are missing at its end", needed - there))
}

/// Looks at every byte of a core: each frame's checksum and size, on several threads.
pub fn verify(path: &Path, threads: usize, watch: &Watch) -> Result<Verified, ProcessError> {
    let reader = Reader::open(path)?;
    let Some(frames) = &reader.frames else {
        return Ok(Verified { frames: 0, bytes: 0, damage: Vec::new(), has_checksums: false });
    };
    let total = frames.last().map_or(0, |frame| frame.content.end);
    watch.expect(total);
    watch.enter(crate::Phase::Pack);
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let damage: Mutex<Vec<(u64, String)>> = Mutex::default();
    let report = |at: u64, what: String| {
        if let Ok(mut damage) = damage.lock() {
            damage.push((at, what));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let Ok(mut decompressor) = decompressor() else { return report(0, "out of memory".into()) };
                while let Some(frame) = frames.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if watch.stopped() {
                        return;
                    }
                    if let Err(error) = decompress(&reader.file, frame, &mut decompressor) {
                        let what = format!(
                            "the frame at byte {:#x} of the file (bytes {:#x} to {:#x} of the core) is damaged: {error}",
                            frame.stored.start, frame.content.start, frame.content.end
                        );
                        report(frame.stored.start, what);
                    }
                    let length = frame.content.end - frame.content.start;
                    bytes.fetch_add(length, Ordering::Relaxed);
                    watch.packed(length);
                }
            });
        }
    });
    let mut damage = damage.into_inner().unwrap_or_default();
    damage.sort();
    Ok(Verified {
        frames: frames.len() as u64,
        bytes: bytes.into_inner(),
        damage: damage.into_iter().take(16).map(|(_, what)| what).collect(),
        has_checksums: true,
    })
}
