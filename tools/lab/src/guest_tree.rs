//! Copies of guests' files, in which faults are injected one at a time: `crates/kdump-setup/tests/guest_trees.rs` has the table.

use crate::kdump_tools::Guest;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes /lab/tree.tar in the guest.
pub(crate) const SNAPSHOT: &str = include_str!("../kdump-tools/snapshot.sh");

/// Takes the copy from the disk of a guest, and has each fault of its distribution's table found in it, alone.
pub(crate) fn check(name: &str, guest: &Guest<'_>, scratch: &Path) -> Result<()> {
    let tar = scratch.join("tree.tar");
    let request = format!("dump /lab/tree.tar {}", tar.display());
    guest.tools.run("debugfs", &["-R", &request, &guest.disk.display().to_string()])?;
    // debugfs exits with 0 even on errors.
    let bytes = fs::metadata(&tar).map(|meta| meta.len()).unwrap_or(0);
    ensure!(bytes > 0, "snapshot.sh left no copy of the guest's files");
    let trees = scratch.join("trees");
    let tree = trees.join(name);
    fs::create_dir_all(&tree).with_context(|| tree.display().to_string())?;
    let unpacked = Command::new("tar").arg("-C").arg(&tree).arg("-xf").arg(&tar).output();
    let unpacked = unpacked.context("running tar")?;
    ensure!(unpacked.status.success(), "tar: {}", String::from_utf8_lossy(&unpacked.stderr));
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&workspace)
        .args(["test", "--locked", "--quiet", "--workspace", "--test", "guest_trees"])
        .args(["--", "--ignored", "--nocapture"])
        .env("PAGEHAUL_GUEST_TREES", &trees)
        .output()
        .context("running cargo")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "faults in {}: {said}{}",
        tree.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    let found: Vec<&str> =
        said.lines().filter_map(|line| line.find("ok   ").and_then(|at| line.get(at..))).collect();
    ensure!(!found.is_empty(), "no fault was injected in {}: {said}", tree.display());
    found.iter().for_each(|line| println!("{line}"));
    Ok(())
}
