//! Fedora's and openSUSE's kdump: a guest crashes whose capture kernel boots into an initramfs by dracut, in which pagehaul-kdump
//! has put pagehaul in makedumpfile's place.
//!
//! Their scripts are GPL and not part of this tree: the sources are given, and used as they are. The system around them is Debian 13.

use crate::guest_tree;
use crate::kdump_tools::{Boot, Guest, RELEASES, check_planned, prepared};
use crate::tools::Tools;
use crate::validate::process::as_root;
use crate::{build, cache, disk};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const CRASH: &str = include_str!("../kdump-dracut/crash.sh");
/// pagehaul in the initramfs.
const IN_IMAGE: &str = "usr/lib/pagehaul/makedumpfile";

/// Whose scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Distribution {
    /// kdump-utils.
    Fedora,
    /// openSUSE's kdump.
    Suse,
}

impl Distribution {
    /// Its name in image.sh.
    fn name(self) -> &'static str {
        match self {
            Self::Fedora => "fedora",
            Self::Suse => "suse",
        }
    }

    /// The reservation: Fedora's default for a machine of 2 to 64 GiB, and enough for openSUSE's, which computes it.
    fn crashkernel(self) -> &'static str {
        match self {
            Self::Fedora => "256M",
            Self::Suse => "320M",
        }
    }

    /// Findings of `kdump check` that the guest has since it is a Debian system with these scripts, each with its reason. None is known:
    /// crash.sh enables the unit and sets what the distributions' kernels have.
    fn deviations(self) -> &'static [&'static str] {
        match self {
            Self::Fedora | Self::Suse => &[],
        }
    }

    /// The log's name next to the dump.
    fn log(self) -> &'static str {
        match self {
            Self::Fedora => "vmcore-dmesg.txt",
            Self::Suse => "dmesg",
        }
    }
}

/// Crashes a guest with the scripts in `sources` and the package `rpm`.
pub fn validate(distribution: Distribution, sources: &Path, rpm: &Path, pagehaul: &Path) -> Result<()> {
    let release = RELEASES.iter().find(|release| release.suite == "trixie").context("no trixie")?;
    let tools = Tools::get()?;
    let prepared = prepared(release, &tools)?;
    let scratch = cache::directory()?.join(format!("kdump-dracut-{}", std::process::id()));
    cache::make(&scratch)?;
    let disk = scratch.join("root.disk");
    let guest = Guest { release, tools: &tools, directory: &prepared, disk };
    let result = make_disk(distribution, &guest, sources, rpm, &scratch)
        .and_then(|()| crash(distribution, &guest, pagehaul, &scratch));
    // Kept on failure, to look at.
    if result.is_ok() {
        fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    }
    result.with_context(|| format!("the guest's disk and logs are kept in {}", scratch.display()))
}

fn make_disk(
    distribution: Distribution,
    guest: &Guest<'_>,
    sources: &Path,
    rpm: &Path,
    scratch: &Path,
) -> Result<()> {
    let name = distribution.name();
    eprintln!("making a Debian 13 system with kdump of {name}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kdump-dracut/image.sh");
    let kernel = fs::read_to_string(guest.directory.join("release")).context("the guest's kernel release")?;
    let meta = fs::metadata(scratch).with_context(|| scratch.display().to_string())?;
    let output = as_root("sh")
        .arg(script)
        .arg(name)
        .args([&guest.directory.join("root.disk"), sources, rpm])
        .arg(kernel.trim())
        .arg(scratch)
        .arg(format!("{}:{}", meta.uid(), meta.gid()))
        .output()
        .context("running image.sh")?;
    fs::write(scratch.join("image.log"), [output.stdout, output.stderr].concat())
        .context("writing image.log")?;
    ensure!(output.status.success(), "image.sh failed; its messages are in image.log");
    let files = fs::read_to_string(scratch.join("initramfs.list")).context("the initramfs' files")?;
    ensure!(files.contains(IN_IMAGE), "the initramfs lacks {IN_IMAGE}; its files are in initramfs.list");
    println!("ok   kdump of {name}: with the .rpm installed, its mkdumprd makes an initramfs with pagehaul");
    Ok(())
}

fn crash(distribution: Distribution, guest: &Guest<'_>, pagehaul: &Path, scratch: &Path) -> Result<()> {
    let checker = build::pagehaul_for_running(crate::Architecture::X86_64)?;
    let checker = fs::read(&checker).with_context(|| checker.display().to_string())?;
    guest.put(&[
        ("run.sh", CRASH.as_bytes()),
        ("snapshot.sh", guest_tree::SNAPSHOT.as_bytes()),
        ("pagehaul", checker.as_slice()),
    ])?;
    let crashkernel = distribution.crashkernel();
    let said = guest.run(Boot { crashkernel, crashes: true, ..Boot::default() })?;
    ensure!(
        said.iter().any(|(what, detail)| what == "loaded" && detail.trim() == "1"),
        "the scripts loaded no capture kernel: {said:?}"
    );
    check_findings(distribution, &said)?;
    disk::recover(guest.tools, &guest.disk)?;
    guest_tree::check(distribution.name(), guest, scratch)?;
    let request = format!("rdump /var/crash {}", scratch.display());
    guest.tools.run("debugfs", &["-R", &request, &guest.disk.display().to_string()])?;
    let dump = saved(&scratch.join("crash"))?;
    let log = dump.with_file_name(distribution.log());
    let text = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    ensure!(text.contains("sysrq"), "{} lacks the crash", log.display());
    guest.check_dump(&dump, pagehaul)?;
    let bytes = fs::metadata(&dump).with_context(|| dump.display().to_string())?.len();
    let planned = planned(guest)?;
    check_planned(planned, bytes)?;
    println!(
        "ok   kdump of {}: crashkernel={crashkernel}: {bytes} bytes, {planned} planned, complete, opened by drgn",
        distribution.name()
    );
    Ok(())
}

/// Checks that `kdump check` found nothing but advice before the crash, and what the guest is known to lack.
fn check_findings(distribution: Distribution, said: &[(String, String)]) -> Result<()> {
    let find = |what: &str| said.iter().find(|(name, _)| name == what).map(|(_, detail)| detail.trim());
    let (found, name) = (find("checked").context("kdump check did not run")?, distribution.name());
    let serious = serious(found, distribution.deviations())?;
    ensure!(
        serious.is_empty(),
        "kdump check finds in a good guest with kdump of {name}: {}",
        serious.join(", ")
    );
    println!(
        "ok   kdump of {name}: kdump check finds no problem and warns of nothing, in {} s: {found}",
        find("took").unwrap_or("?")
    );
    Ok(())
}

/// The findings of a line of names and severities that are more than advice, without `deviations`.
fn serious<'a>(found: &'a str, deviations: &[&str]) -> Result<Vec<&'a str>> {
    let words: Vec<&str> = found.split_whitespace().collect();
    let (pairs, rest) = words.as_chunks::<2>();
    ensure!(rest.is_empty(), "no severity: {found}");
    let is_serious = |[id, severity]: &&[&str; 2]| *severity != "advice" && !deviations.contains(id);
    Ok(pairs.iter().filter(is_serious).map(|[id, _]| *id).collect())
}

/// Returns the bytes that `kdump test` expected before it crashed the guest.
fn planned(guest: &Guest<'_>) -> Result<u64> {
    let request = "cat /var/lib/pagehaul/kdump/test.json";
    let text = guest.tools.run("debugfs", &["-R", request, &guest.disk.display().to_string()])?;
    let test: Value =
        serde_json::from_str(&text).with_context(|| format!("what kdump test left: {text:?}"))?;
    test["dump_bytes"].as_u64().context("kdump test left no size")
}

/// Returns the dump that the scripts left: Fedora's has this name once it is complete.
fn saved(crash: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(crash).with_context(|| crash.display().to_string())?;
    let mut dumps = entries.flatten().map(|entry| entry.path().join("vmcore"));
    dumps.find(|path| path.is_file()).context("no vmcore was saved; the console's log shows why")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_and_deviations_are_not_serious() {
        let found = "no-unit problem no-pstore advice small-reservation warning ";
        assert_eq!(serious(found, &[]).unwrap(), ["no-unit", "small-reservation"]);
        assert_eq!(serious(found, &["no-unit"]).unwrap(), ["small-reservation"]);
        assert!(serious("", &[]).unwrap().is_empty());
        assert!(serious("no-unit", &[]).is_err());
    }
}
