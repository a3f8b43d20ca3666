//! How long Debian's kdump takes from the start of the capture kernel to the reboot, with pagehaul, makedumpfile and cp.

use crate::kdump_tools::{Boot, CRASH, Guest, RELEASES, prepared};
use crate::tools::Tools;
use crate::{cache, disk};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Samples the memory of the capture kernel.
const MEMORY: &str = include_str!("../kdump-tools/memory.sh");
/// Memory for the capture kernel: enough for all of them.
const CRASHKERNEL: &str = "192M";
/// A disk of 100 MB/s.
const SLOW: u64 = 100_000_000;

/// A program, its options, and the bytes per second that the disk takes.
type Case = (&'static str, &'static str, Option<u64>);

/// cp is last: it takes makedumpfile's place for good.
const CASES: [Case; 10] = [
    ("makedumpfile", "-F -l -d 31", None),
    ("pagehaul", "-F -l -d 31", None),
    ("makedumpfile", "-F -c -d 31", None),
    ("pagehaul", "-F -z -d 31", None),
    ("makedumpfile", "-F -l -d 1", Some(SLOW)),
    ("pagehaul", "-F -l -d 1", Some(SLOW)),
    ("makedumpfile", "-F -l -d 1", None),
    ("pagehaul", "-F -l -d 1", None),
    ("cp", "-F", None),
    ("cp", "-F", Some(SLOW)),
];

/// Crashes a bookworm guest once for each case, and returns a table of Markdown.
pub fn table(deb: &Path) -> Result<String> {
    let [release, ..] = &RELEASES;
    let tools = Tools::get()?;
    let prepared = prepared(release, &tools)?;
    let scratch = cache::directory()?.join(format!("kdump-measure-{}", std::process::id()));
    let guest = Guest::copy(release, &tools, &prepared, &scratch)?;
    let package = fs::read(deb).with_context(|| deb.display().to_string())?;
    let mut table = String::from(
        "| program | options | disk | capture kernel to reboot s | dump MiB | least MemAvailable MiB |\n|---|---|---|---|---|---|\n",
    );
    for (number, (program, options, write_rate)) in CASES.into_iter().enumerate() {
        guest.put(&[
            ("run.sh", CRASH.as_bytes()),
            ("memory.sh", MEMORY.as_bytes()),
            ("pagehaul-kdump.deb", package.as_slice()),
            ("verb", b"measure\n"),
            ("program", format!("{program}\n").as_bytes()),
            ("measure.settings", format!("MAKEDUMP_ARGS=\"{options}\"\n").as_bytes()),
        ])?;
        let ran = guest.run(Boot { crashkernel: CRASHKERNEL, crashes: true, network: false, write_rate })?;
        disk::recover(&tools, &guest.disk)?;
        let into = scratch.join(format!("dump-{number}"));
        cache::make(&into)?;
        let dump = guest.take_dump(&into)?;
        let bytes = fs::metadata(&dump).with_context(|| dump.display().to_string())?.len();
        fs::remove_dir_all(&into).with_context(|| into.display().to_string())?;
        let available = ran.said.iter().filter(|(what, _)| what == "available");
        let least = available.filter_map(|(_, kib)| kib.trim().parse::<u64>().ok()).min();
        let row = format!(
            "| {program} | `{options}` | {} | {:.1} | {:.1} | {} |",
            if write_rate.is_some() { "100 MB/s" } else { "unthrottled" },
            ran.seconds,
            bytes as f64 / f64::from(1 << 20),
            least.map_or("-".into(), |kib| (kib >> 10).to_string())
        );
        eprintln!("{row}");
        writeln!(table, "{row}")?;
    }
    fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    Ok(table)
}
