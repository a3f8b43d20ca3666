//! What a broken kdump leaves: Debian guests with one fault each, in which `pagehaul kdump check` runs, and which then crash.

use crate::kdump_tools::{Boot, Guest, RELEASES, Release, SILENCE, prepared};
use crate::tools::Tools;
use crate::{Architecture, build, cache, disk};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SCRIPT: &str = include_str!("../kdump-tools/fault.sh");

/// Faults of fault.sh after which no complete dump is left.
const FAULTS: [&str; 12] = [
    "unit-masked",
    "rescue-default",
    "not-executable",
    "truncated-program",
    "no-program",
    "empty-initramfs",
    "cut-initramfs",
    "initramfs-without-modules",
    "wrong-root",
    "small-target",
    "no-kernel",
    "unbalanced-quote",
];
/// Faults after which a complete dump is left, later or larger than it could be.
const LESSER: [&str; 1] = ["wrong-level"];
/// No fault.
const NONE: &str = "none";

/// A guest that says nothing for so long stands still: fault.sh writes a line every 20 s until the crash.
const STANDS_STILL: Duration = Duration::from_secs(200);

/// Crashes a guest of `suite` without a fault, and one with each of `faults` (all, if there are none), and prints a table of Markdown.
/// Fails if `kdump check` has no problem where no complete dump is left, has one where it is, or has neither a problem nor a warning
/// of a fault.
pub fn validate(suite: &str, faults: &[String], deb: &Path, pagehaul: &Path) -> Result<()> {
    let release = RELEASES.iter().find(|release| release.suite == suite);
    let release = release.with_context(|| format!("no release {suite}: expected bookworm or trixie"))?;
    let tools = Tools::get()?;
    let scratch = cache::directory()?.join(format!("kdump-faults-{}", std::process::id()));
    let installed = installed(release, &tools, deb, &scratch)?;
    let all: Vec<&str> = match faults {
        [] => std::iter::once(NONE).chain(FAULTS).chain(LESSER).collect(),
        some => some.iter().map(String::as_str).collect(),
    };
    println!("| fault | `kdump check` | the crash left |\n|---|---|---|");
    let mut wrong = Vec::new();
    for fault in all {
        let Outcome { found, left, complete } =
            crash(release, &tools, &installed, fault, pagehaul, &scratch.join(fault))
                .with_context(|| format!("{fault}; the disks are kept in {}", scratch.display()))?;
        println!("| {fault} | {found} | {left} |");
        if is_wrong(fault, &found, complete) {
            wrong.push(fault);
        }
    }
    ensure!(
        wrong.is_empty(),
        "kdump check was wrong about: {}; the disks are kept in {}",
        wrong.join(", "),
        scratch.display()
    );
    fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())
}

/// Whether the findings and severities of `kdump check` do not go with the fault and with what the crash left.
fn is_wrong(fault: &str, found: &str, complete: bool) -> bool {
    let has = |severity| found.split(' ').any(|word| word == severity);
    let is_green = !has("problem") && !has("warning");
    has("problem") == complete || is_green != (fault == NONE)
}

/// What became of a fault.
struct Outcome {
    /// The findings of `kdump check`, each with its severity.
    found: String,
    /// What the crash left.
    left: &'static str,
    complete: bool,
}

/// Returns the directory of a guest that has pagehaul's package, in `scratch`.
fn installed(release: &Release, tools: &Tools, deb: &Path, scratch: &Path) -> Result<PathBuf> {
    let prepared = prepared(release, tools)?;
    let directory = scratch.join("installed");
    let guest = Guest::copy(release, tools, &prepared, &directory)?;
    let package = fs::read(deb).with_context(|| deb.display().to_string())?;
    let checker = build::pagehaul_for_running(Architecture::X86_64)?;
    let checker = fs::read(&checker).with_context(|| checker.display().to_string())?;
    guest.put(&[
        ("run.sh", SCRIPT.as_bytes()),
        ("fault", b"install\n"),
        ("pagehaul", checker.as_slice()),
        ("pagehaul-kdump.deb", package.as_slice()),
    ])?;
    let said = guest.run(boot(false))?;
    ensure!(said.iter().any(|(what, _)| what == "installed"), "the guest ended before the package was there");
    disk::recover(tools, &guest.disk)?;
    for file in ["vmlinuz", "initrd.img", "release"] {
        let from = prepared.join(file);
        fs::copy(&from, directory.join(file)).with_context(|| from.display().to_string())?;
    }
    Ok(directory)
}

fn boot(crashes: bool) -> Boot<'static> {
    let silence = if crashes { STANDS_STILL } else { SILENCE };
    Boot { crashkernel: "192M", crashes, silence, ..Boot::default() }
}

/// Injects a fault into a copy of the guest in `directory`, and crashes it.
fn crash(
    release: &Release,
    tools: &Tools,
    installed: &Path,
    fault: &str,
    pagehaul: &Path,
    directory: &Path,
) -> Result<Outcome> {
    let guest = Guest::copy(release, tools, installed, directory)?;
    guest.put(&[("fault", format!("{fault}\n").as_bytes())])?;
    let mut said = Vec::new();
    let ended = guest.run_saying(boot(true), &mut said);
    let checked = said.iter().find(|(what, _)| what == "checked").map(|(_, detail)| detail.as_str());
    let checked = checked.context("kdump check did not run").map_err(|error| match &ended {
        Ok(()) => error,
        Err(ended) => error.context(format!("{ended:#}")),
    })?;
    let found = checked.trim().to_owned();
    let dump = disk::recover(tools, &guest.disk).and_then(|()| guest.take_dump(directory));
    let complete = dump.as_ref().is_ok_and(|dump| guest.check_dump(dump, pagehaul).is_ok());
    let left = match (complete, &ended, &dump) {
        (true, ..) => "a complete dump",
        (_, Err(_), _) => "a machine that stands still",
        (_, Ok(()), Ok(_)) => "a dump that is not complete",
        (_, Ok(()), Err(_)) => "no dump",
    };
    // The console's log stays.
    fs::remove_file(&guest.disk).with_context(|| guest.disk.display().to_string())?;
    Ok(Outcome { found, left, complete })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_go_with_the_fault_and_the_dump() {
        let right = [
            (NONE, "no-pstore advice", true),
            ("wrong-level", "no-level warning no-pstore advice", true),
            ("no-kernel", "not-loaded problem no-kernel problem", false),
        ];
        let wrong = [
            (NONE, "", false),
            (NONE, "no-dump-unit warning", true),
            ("wrong-level", "no-level problem", true),
            ("wrong-level", "no-pstore advice", true),
            ("no-kernel", "other-kernel warning", false),
        ];
        for (cases, expected) in [(&right[..], false), (&wrong[..], true)] {
            for (fault, found, complete) in cases {
                assert_eq!(is_wrong(fault, found, *complete), expected, "{fault}: {found}");
            }
        }
    }
}
