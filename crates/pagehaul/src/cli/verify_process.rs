//! `pagehaul verify` for cores and checkpoints of processes.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use pagehaul_present::number::{bytes, count};
use pagehaul_present::printable;
use pagehaul_process::{ProcessError, Verified, verify, verify_checkpoint};
use pagehaul_run::Progress;
use serde::Serialize;

use crate::cli::verdict::Verdict;
use crate::{exit, printed, run};

#[derive(Serialize)]
struct Printed<'a> {
    verdict: Verdict,
    /// Whether nothing has changed, if that can be known.
    intact: Option<bool>,
    #[serde(flatten)]
    found: &'a Verified,
}

/// Checks a core or a checkpoint; none if the file is something else, or cannot be opened.
pub(crate) fn run(path: &Path, threads: usize, json: bool) -> anyhow::Result<Option<ExitCode>> {
    // A checkpoint may be named by its directory. Opening a pipe would block.
    if !path.is_file() && !path.is_dir() {
        return Ok(None);
    }
    let check = |progress: &Progress| match verify_checkpoint(path, threads, progress)? {
        None if path.is_file() => verify(path, threads, progress),
        found => Ok(found),
    };
    let (found, _) = run::shown(&Progress::default(), false, check);
    let found = found.map_err(|error| match error {
        ProcessError::NoBase { .. } => anyhow::Error::from(error).context(format!(
            "{} cannot be verified without its base; its own blocks are intact",
            path.display()
        )),
        error => error.into(),
    })?;
    let Some(found) = found else { return Ok(None) };
    let written = if json {
        let verdict = verdict(&found);
        printed::json(&Printed { verdict, intact: verdict.intact(), found: &found })
    } else {
        printed::out(|out| print(out, &found))
    };
    printed::unless_closed(written)?;
    Ok(Some(if found.is_intact() { ExitCode::SUCCESS } else { ExitCode::from(exit::DAMAGED) }))
}

fn verdict(found: &Verified) -> Verdict {
    Verdict::new(!found.is_intact(), found.has_checksums)
}

fn print(out: &mut dyn Write, found: &Verified) -> io::Result<()> {
    for fault in &found.faults {
        writeln!(out, "fault: {}", printable(fault))?;
    }
    let more = found.fault_count - found.faults.len() as u64;
    if more > 0 {
        writeln!(out, "  and {} more", count(more))?;
    }
    if found.frames > 0 {
        let blocks = count(found.frames);
        writeln!(out, "{}: {blocks} blocks checked, {} decompressed", found.format, bytes(found.bytes))?;
    } else {
        writeln!(out, "{}: {}", found.format, bytes(found.bytes))?;
    }
    if !found.has_checksums {
        writeln!(out, "no checksums: changes of memory are not detected")?;
    }
    writeln!(out, "{}", verdict(found).line("a core with `--compress zstd` has them"))
}
