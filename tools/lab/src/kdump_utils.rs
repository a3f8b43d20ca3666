//! Fedora's kdump-utils: a guest crashes whose capture kernel boots into an initramfs by dracut, in which pagehaul-kdump has put
//! pagehaul in makedumpfile's place.
//!
//! kdump-utils is GPL and not part of this tree: its sources are given, and used as they are. The system around them is Debian 13.

use crate::kdump_tools::{Boot, Guest, RELEASES, prepared};
use crate::tools::Tools;
use crate::validate::process::as_root;
use crate::{cache, disk};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const CRASH: &str = include_str!("../kdump-utils/crash.sh");
/// What kdump-utils reserves by default on a machine of 2 to 64 GiB.
const CRASHKERNEL: &str = "256M";
/// pagehaul in the initramfs.
const IN_IMAGE: &str = "usr/lib/pagehaul/makedumpfile";

/// Crashes a guest with kdump-utils of `sources` and the package `rpm`.
pub fn validate(sources: &Path, rpm: &Path, pagehaul: &Path) -> Result<()> {
    let release = RELEASES.iter().find(|release| release.suite == "trixie").context("no trixie")?;
    let tools = Tools::get()?;
    let prepared = prepared(release, &tools)?;
    let scratch = cache::directory()?.join(format!("kdump-utils-{}", std::process::id()));
    cache::make(&scratch)?;
    let disk = scratch.join("root.disk");
    let guest = Guest { release, tools: &tools, directory: &prepared, disk };
    let result = make_disk(&guest, sources, rpm, &scratch).and_then(|()| crash(&guest, pagehaul, &scratch));
    // Kept on failure, to look at.
    if result.is_ok() {
        fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    }
    result.with_context(|| format!("the guest's disk and logs are kept in {}", scratch.display()))
}

fn make_disk(guest: &Guest<'_>, sources: &Path, rpm: &Path, scratch: &Path) -> Result<()> {
    eprintln!("making a Debian 13 system with kdump-utils");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kdump-utils/image.sh");
    let kernel = fs::read_to_string(guest.directory.join("release")).context("the guest's kernel release")?;
    let meta = fs::metadata(scratch).with_context(|| scratch.display().to_string())?;
    let output = as_root("sh")
        .arg(script)
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
    println!("ok   kdump-utils: installing the .rpm has kdumpctl make an initramfs with pagehaul");
    Ok(())
}

fn crash(guest: &Guest<'_>, pagehaul: &Path, scratch: &Path) -> Result<()> {
    guest.put(&[("run.sh", CRASH.as_bytes())])?;
    let said = guest.run(Boot { crashkernel: CRASHKERNEL, crashes: true, network: false, clock: None })?;
    let status = said.iter().find(|(what, _)| what == "status").map_or("", |(_, detail)| detail.as_str());
    ensure!(status.contains("Kdump is operational"), "kdumpctl status: {status}");
    disk::recover(guest.tools, &guest.disk)?;
    let request = format!("rdump /var/crash {}", scratch.display());
    guest.tools.run("debugfs", &["-R", &request, &guest.disk.display().to_string()])?;
    let dump = saved(&scratch.join("crash"))?;
    let log = dump.with_file_name("vmcore-dmesg.txt");
    let text = fs::read_to_string(&log).with_context(|| log.display().to_string())?;
    ensure!(text.contains("sysrq"), "{} lacks the crash", log.display());
    let mib = guest.check_dump(&dump, pagehaul)?;
    println!("ok   kdump-utils: kdump.sh, crashkernel={CRASHKERNEL}: {mib} MiB, complete, opened by drgn");
    Ok(())
}

/// Returns the dump that kdump.sh left: it has this name once it is complete.
fn saved(crash: &Path) -> Result<PathBuf> {
    let entries = fs::read_dir(crash).with_context(|| crash.display().to_string())?;
    let dumps = entries.flatten().map(|entry| entry.path().join("vmcore"));
    dumps
        .into_iter()
        .find(|path| path.is_file())
        .context("kdump.sh saved no vmcore; the console's log shows why")
}
