//! Whether a core is as it was written.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use pagehaul_elfcore::notes;
use pagehaul_pool::share_work;
use pagehaul_run::{Phase, Progress};
use serde::Serialize;

use crate::ProcessError;
use crate::elf;
use crate::inspect::{MOST_NOTES, NO_TABLE, Reader, decompress, decompressor, incomplete, process_note};

/// Faults that are told one by one.
const TOLD: usize = 16;

/// What a look at every byte found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// "ELF core", "ELF core in zstd frames" or "checkpoint".
    pub format: &'static str,
    /// Frames or blocks looked at.
    pub frames: u64,
    /// Bytes they hold, decompressed.
    pub bytes: u64,
    /// What is wrong, and where; the first 16.
    pub faults: Vec<String>,
    /// How many things are wrong.
    pub fault_count: u64,
    /// Whether there are checksums at all: plain ELF has none.
    pub has_checksums: bool,
}

impl Verified {
    /// For a format, with what is wrong in the order of where it is.
    pub(crate) fn new(format: &'static str, has_checksums: bool, mut faults: Vec<(u64, String)>) -> Self {
        faults.sort();
        let fault_count = faults.len() as u64;
        let faults = faults.into_iter().take(TOLD).map(|(_, what)| what).collect();
        Self { format, frames: 0, bytes: 0, faults, fault_count, has_checksums }
    }

    /// Whether nothing is wrong.
    pub fn is_intact(&self) -> bool {
        self.fault_count == 0
    }
}

/// Looks at every byte of a core: its structure, and each frame's checksum and size, on several threads. None if the
/// file is something else.
pub fn verify(path: &Path, threads: usize, progress: &Progress) -> Result<Option<Verified>, ProcessError> {
    let reader = Reader::open(path)?;
    if reader.lacks_table() {
        return Ok(Some(Verified::new("zstd", false, vec![(0, NO_TABLE.into())])));
    }
    let structure = structure(&reader);
    let Some(frames) = &reader.frames else {
        let Structure::Process(fault) = structure else { return Ok(None) };
        let faults = fault.into_iter().map(|fault| (0, fault)).collect();
        return Ok(Some(Verified { bytes: reader.size, ..Verified::new("ELF core", false, faults) }));
    };
    let mut faults = check_frames(&reader, threads, progress);
    if progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before everything was looked at".into()));
    }
    match structure {
        Structure::Process(fault) => faults.extend(fault.map(|fault| (0, fault))),
        // Damage to frames, which are named already, may be why.
        Structure::Other(why) if faults.is_empty() => faults.push((0, why)),
        Structure::Other(_) => {}
    }
    let verified = Verified::new("ELF core in zstd frames", true, faults);
    Ok(Some(Verified { frames: frames.len() as u64, bytes: reader.there(), ..verified }))
}

/// What headers and notes tell.
enum Structure {
    /// It is a core of a process, with something wrong, or nothing.
    Process(Option<String>),
    /// It isn't, or does not look like it any more.
    Other(String),
}

fn structure(reader: &Reader) -> Structure {
    let headers = match elf::parse(|at, len| reader.read(at, len)) {
        Ok(Ok(headers)) => headers,
        Ok(Err(why)) => return Structure::Other(why.to_owned()),
        Err(error) => return Structure::Other(error.to_string()),
    };
    let (at, length) = headers.notes;
    let bytes = reader.read(at, length.min(MOST_NOTES) as usize).unwrap_or_default();
    if process_note(&bytes).is_none() {
        return Structure::Other("it has no note that tells of a process".into());
    }
    if let Some(why) = incomplete(reader, &headers) {
        return Structure::Process(Some(why));
    }
    let read =
        notes::iter(&bytes).last().map_or(0, |note| (note.offset + note.desc.len()).next_multiple_of(4));
    let damaged = (read as u64) < length;
    Structure::Process(damaged.then(|| format!("byte {:#x}: its notes are damaged", at + read as u64)))
}

fn check_frames(reader: &Reader, threads: usize, progress: &Progress) -> Vec<(u64, String)> {
    let frames = reader.frames.as_deref().unwrap_or_default();
    progress.expect(reader.there());
    progress.enter(Phase::Pack);
    let next = AtomicUsize::new(0);
    let damage: Mutex<Vec<(u64, String)>> = Mutex::default();
    let report = |at: u64, what: String| {
        if let Ok(mut damage) = damage.lock() {
            damage.push((at, what));
        }
    };
    share_work("verify", threads, || {
        let Ok(mut decompressor) = decompressor() else { return report(0, "out of memory".into()) };
        while let Some(frame) = frames.get(next.fetch_add(1, Ordering::Relaxed)) {
            if progress.is_cancelled() {
                return;
            }
            if let Err(error) = decompress(&reader.file, frame, &mut decompressor) {
                let what = format!(
                    "the frame at byte {:#x} of the file (bytes {:#x} to {:#x} of the core) is damaged: {error}",
                    frame.stored.start, frame.content.start, frame.content.end
                );
                report(frame.stored.start, what);
            }
            progress.advance(Phase::Pack, frame.content.end - frame.content.start);
        }
    });
    damage.into_inner().unwrap_or_default()
}
