//! Verifying cores: their structure, and the checksums of their frames.

use std::path::Path;

use pagehaul_codec::FrameDecompressor;
use pagehaul_elfcore::notes;
use pagehaul_pool::map_numbers;
use pagehaul_run::{Phase, Progress};
use serde::Serialize;

use crate::core_file::{CoreFile, MAX_NOTES};
use crate::error::ProcessError;
use crate::info::NO_TABLE;
use crate::seekable::Frame;

/// Faults that are listed one by one.
const LISTED: usize = 16;

/// What verifying every byte found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// "ELF core", "ELF core in zstd frames" or "checkpoint".
    pub format: &'static str,
    /// Frames or blocks read.
    pub frames: u64,
    /// Bytes they hold, decompressed.
    pub bytes: u64,
    /// What is wrong, and where; the first 16 faults.
    pub faults: Vec<String>,
    /// Number of faults.
    pub fault_count: u64,
    /// Whether there are checksums at all: plain ELF has none.
    pub has_checksums: bool,
}

impl Verified {
    /// For a format, with its faults in the order of their offsets.
    pub(crate) fn new(format: &'static str, has_checksums: bool, mut faults: Vec<String>) -> Self {
        let fault_count = faults.len() as u64;
        faults.truncate(LISTED);
        Self { format, frames: 0, bytes: 0, faults, fault_count, has_checksums }
    }

    /// Returns whether there is no fault.
    pub fn is_intact(&self) -> bool {
        self.fault_count == 0
    }
}

/// Reads every byte of a core, and verifies its structure and the checksum and size of each frame, on several threads.
/// Returns `None` if the file is something else.
pub fn verify(path: &Path, threads: usize, progress: &Progress) -> Result<Option<Verified>, ProcessError> {
    let core = CoreFile::open(path)?;
    if core.lacks_table() {
        return Ok(Some(Verified::new("zstd", false, vec![NO_TABLE.into()])));
    }
    let structure = structure(&core);
    let Some(frames) = &core.frames else {
        let Structure::Process(fault) = structure else { return Ok(None) };
        let faults = fault.into_iter().collect();
        return Ok(Some(Verified { bytes: core.size, ..Verified::new("ELF core", false, faults) }));
    };
    let mut faults = check_frames(&core, frames, threads, progress);
    if progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before everything was verified".into()));
    }
    match structure {
        Structure::Process(fault) => faults.splice(0..0, fault).for_each(drop),
        // Damage to frames, which are named already, may be why.
        Structure::Other(why) if faults.is_empty() => faults.push(why),
        Structure::Other(_) => {}
    }
    let verified = Verified::new("ELF core in zstd frames", true, faults);
    Ok(Some(Verified { frames: frames.len() as u64, bytes: core.content_size(), ..verified }))
}

/// What the headers and notes say.
enum Structure {
    /// It is a core of a process, with or without a fault.
    Process(Option<String>),
    /// It is not one, or is too damaged to be recognised.
    Other(String),
}

fn structure(core: &CoreFile) -> Structure {
    let headers = match core.headers() {
        Ok(headers) => headers,
        Err(error) => return Structure::Other(error.to_string()),
    };
    let (at, length) = (headers.note.offset, headers.note.file_size);
    let bytes = core.read(at, length.min(MAX_NOTES)).unwrap_or_default();
    if notes::process(&bytes).is_none() {
        return Structure::Other("it has no note of a process (NT_PRPSINFO)".into());
    }
    if let Some(why) = core.incomplete_because(&headers) {
        return Structure::Process(Some(why));
    }
    let read =
        notes::iter(&bytes).last().map_or(0, |note| (note.offset + note.desc.len()).next_multiple_of(4));
    let damaged = (read as u64) < length;
    Structure::Process(damaged.then(|| format!("byte {:#x}: its notes are damaged", at + read as u64)))
}

fn check_frames(core: &CoreFile, frames: &[Frame], threads: usize, progress: &Progress) -> Vec<String> {
    progress.expect(core.content_size());
    progress.enter(Phase::Pack);
    map_numbers("verify", threads, frames.len() as u64, FrameDecompressor::new, |decompressor, number| {
        let frame = frames.get(number as usize).filter(|_| !progress.is_cancelled())?;
        let decompressed = match decompressor {
            Ok(decompressor) => core.decompress(frame, decompressor),
            Err(error) => Err(error.clone().into()),
        };
        progress.advance(Phase::Pack, frame.content.end - frame.content.start);
        decompressed.err().map(|error| {
            format!(
                "the frame at byte {:#x} of the file (bytes {:#x} to {:#x} of the core) is damaged: {error}",
                frame.stored.start, frame.content.start, frame.content.end
            )
        })
    })
}
