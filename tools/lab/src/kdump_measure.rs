//! How long Debian's kdump-tools takes to save a vmcore with pagehaul, makedumpfile and cp, in the same boot of a capture kernel.

use crate::cache;
use crate::kdump_tools::{Boot, CRASH, Guest, RELEASES, prepared};
use crate::tools::Tools;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Runs in the capture kernel.
const MEASURE: &str = include_str!("../kdump-tools/measure.sh");
const CP: &str = include_str!("../kdump-tools/cp.sh");
/// Memory for the capture kernel: enough for all of them.
const CRASHKERNEL: &str = "192M";

/// A program, the bytes per second that the disk takes (0: as many as it can), and makedumpfile's options. Debian 12 builds
/// makedumpfile without zstd: zlib stands against it.
const CASES: &str = "\
makedumpfile 0 -F -l -d 31
pagehaul 0 -F -l -d 31
makedumpfile 0 -F -c -d 31
pagehaul 0 -F -z -d 31
makedumpfile 0 -F -l -d 1
pagehaul 0 -F -l -d 1
cp 0 -F
makedumpfile 100000000 -F -l -d 1
pagehaul 100000000 -F -l -d 1
pagehaul 100000000 -F -z -d 1
cp 100000000 -F
";

/// Crashes a bookworm guest, saves its vmcore once for each case, and returns a table of Markdown.
pub fn table(deb: &Path) -> Result<String> {
    let [release, ..] = &RELEASES;
    let tools = Tools::get()?;
    let prepared = prepared(release, &tools)?;
    let scratch = cache::directory()?.join(format!("kdump-measure-{}", std::process::id()));
    let guest = Guest::copy(release, &tools, &prepared, &scratch)?;
    let package = fs::read(deb).with_context(|| deb.display().to_string())?;
    guest.put(&[
        ("run.sh", CRASH.as_bytes()),
        ("measure.sh", MEASURE.as_bytes()),
        ("cp.sh", CP.as_bytes()),
        ("cases", CASES.as_bytes()),
        ("pagehaul-kdump.deb", package.as_slice()),
        ("verb", b"measure\n"),
    ])?;
    let said = guest.run(Boot { crashkernel: CRASHKERNEL, crashes: true, ..Boot::default() })?;
    let mut out = String::from(
        "| program | options | disk | savecore s | dump MiB | peak RssAnon MiB | least MemAvailable MiB | allocstall | \
         pgscan | nr_vmscan_write |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut boot = None;
    let mut saved = 0;
    for (what, detail) in &said {
        match what.as_str() {
            "boot" => boot = detail.trim().parse::<f64>().ok(),
            "saved" => {
                out.push_str(&row(detail).with_context(|| format!("what the guest measured: {detail}"))?);
                saved += 1;
            }
            _ => {}
        }
    }
    let cases = CASES.lines().count();
    let console = scratch.join("console.log");
    ensure!(
        saved == cases,
        "{saved} of {cases} cases were measured; the guest's console is in {}",
        console.display()
    );
    let boot = boot.context("the capture kernel did not say how long it took to boot")? / 100.0;
    writeln!(
        out,
        "\nFrom the start of the capture kernel to that of savecore: {boot:.1} s, the same for all."
    )?;
    fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    Ok(out)
}

/// A row of the table, from a message of measure.sh.
fn row(detail: &str) -> Option<String> {
    let mut words = detail.split_whitespace();
    let program = words.next()?;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (rate, hundredths, bytes, least, most) = (number()?, number()?, number()?, number()?, number()?);
    let counters = [number()?, number()?, number()?].map(|count| count.to_string()).join(" | ");
    let disk = if rate > 0 { format!("{} MB/s", rate / 1_000_000) } else { "unthrottled".into() };
    // cp runs as cat, which has none worth measuring.
    let most = if most > 0 { format!("{:.1}", most as f64 / 1024.0) } else { "-".into() };
    Some(format!(
        "| {program} | `{}` | {disk} | {:.1} | {:.1} | {most} | {} | {counters} |\n",
        words.collect::<Vec<_>>().join(" "),
        hundredths as f64 / 100.0,
        bytes as f64 / f64::from(1 << 20),
        least >> 10
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_guest_is_a_row() {
        let expected = "| pagehaul | `-F -z -d 1` | 100 MB/s | 12.3 | 2.0 | 16.5 | 90 | 0 | 7 | 1 |\n";
        assert_eq!(
            row("pagehaul 100000000 1234 2097152 92160 16896 0 7 1 -F -z -d 1").as_deref(),
            Some(expected)
        );
        assert_eq!(row("pagehaul 0 1234"), None);
    }
}
