//! Chooses moments of power cuts, and reconstructs the disk after each.

use super::write_log::WriteLog;
use crate::disk;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of moments spread evenly over all requests.
const SPREAD: usize = 12;
/// Number of flushes before and after which the power is cut: they order the writes that matter.
const FLUSHES: usize = 10;

/// What happened to writes that no flush confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unconfirmed {
    /// All reached the disk, in order.
    Kept,
    /// None reached the disk.
    Lost,
    /// Some reached the disk, some did not, some did in part.
    Torn,
}

/// One power cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    requests: usize,
    unconfirmed: Unconfirmed,
}

impl Cut {
    /// Returns whether all writes before the cut reached the disk in order.
    pub(crate) fn ordered(&self) -> bool {
        self.unconfirmed == Unconfirmed::Kept
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.unconfirmed {
            Unconfirmed::Kept => "kept",
            Unconfirmed::Lost => "lost",
            Unconfirmed::Torn => "torn",
        };
        write!(f, "{}-{what}", self.requests)
    }
}

/// The cuts of one recorded disk, in chronological order.
pub(crate) struct Cuts {
    log: WriteLog,
    cuts: Vec<Cut>,
    /// Path of the disk's content up to a flush.
    confirmed: PathBuf,
    /// Number of requests applied to it.
    done: usize,
}

impl Cuts {
    /// Plans the cuts of a recorded disk.
    pub(crate) fn open(disk: &Path, scratch: &Path) -> Result<Cuts> {
        let log = WriteLog::open(&disk::log(disk))?;
        let confirmed = scratch.join("confirmed");
        copy(&disk::initial(disk), &confirmed)?;
        let total = log.entries.len();
        let flushes: Vec<usize> = (0..total).filter(|at| log.entries[*at].flush).collect();
        ensure!(!flushes.is_empty(), "{} was never flushed", disk.display());
        let mut moments: BTreeSet<usize> = (1..=SPREAD).map(|i| total * i / SPREAD).collect();
        let step = flushes.len().div_ceil(FLUSHES);
        for at in flushes.iter().step_by(step).chain(flushes.last()) {
            moments.extend([*at, at + 1]);
        }
        let ways = [Unconfirmed::Kept, Unconfirmed::Lost, Unconfirmed::Torn];
        let cuts = moments
            .iter()
            .rev()
            .flat_map(|requests| ways.map(|unconfirmed| Cut { requests: *requests, unconfirmed }));
        Ok(Cuts { log, cuts: cuts.collect(), confirmed, done: 0 })
    }

    /// Writes the disk after the next cut to `image`.
    pub(crate) fn next(&mut self, image: &Path) -> Result<Option<Cut>> {
        let Some(cut) = self.cuts.pop() else { return Ok(None) };
        let open =
            |path: &Path| File::options().write(true).open(path).with_context(|| path.display().to_string());
        let requests = &self.log.entries[..cut.requests];
        let confirmed = requests.iter().rposition(|entry| entry.flush).map_or(0, |at| at + 1);
        let disk = open(&self.confirmed)?;
        for entry in &requests[self.done.min(confirmed)..confirmed] {
            self.log.apply(entry, &disk, |_| true)?;
        }
        self.done = confirmed;
        copy(&self.confirmed, image)?;
        let disk = open(image)?;
        // The same cuts in every run.
        let mut random = Random(cut.requests as u64 + 1);
        for entry in &requests[confirmed..] {
            let fate = random.next() % 3;
            self.log.apply(entry, &disk, |_| match (cut.unconfirmed, fate) {
                (Unconfirmed::Kept, _) | (Unconfirmed::Torn, 0) => true,
                (Unconfirmed::Lost, _) | (Unconfirmed::Torn, 1) => false,
                (Unconfirmed::Torn, _) => random.next().is_multiple_of(2),
            })?;
        }
        Ok(Some(cut))
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("--sparse=always").args([from, to]).status().context("running cp")?;
    ensure!(status.success(), "cannot copy {}", from.display());
    Ok(())
}

/// xorshift, to choose lost writes.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
