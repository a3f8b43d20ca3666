//! Debian trees for workloads: packages and their dependencies, unpacked but not configured.

use crate::Architecture;
use crate::apt::Apt;
use crate::cache::{self, Key};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Debian 12's programs run on every kernel of the lab.
pub const SUITE: &str = "bookworm";
/// Packages in every tree.
const BASE: [&str; 6] = ["bash", "coreutils", "util-linux", "grep", "sed", "gawk"];

/// Returns a tree with these packages, from the cache.
pub fn get(architecture: Architecture, packages: &[&str]) -> Result<PathBuf> {
    of_suite(architecture, SUITE, packages)
}

/// Returns a tree with these packages of a Debian release, from the cache.
pub fn of_suite(architecture: Architecture, suite: &str, packages: &[&str]) -> Result<PathBuf> {
    let wanted: Vec<&str> = BASE.iter().chain(packages).copied().collect();
    let mut key = Key::default().with(suite).with(wanted.join(" "));
    if architecture != Architecture::X86_64 {
        key = key.with(architecture.debian());
    }
    let directory = cache::directory()?.join("trees").join(key.short());
    cache::once(&directory, |draft| {
        let names = Apt::with_packages_for(architecture, &[suite], false)?
            .unpack_closure(&wanted, &draft.join("root"))?;
        finish(&draft.join("root"))?;
        std::fs::write(draft.join("packages"), names.join("\n") + "\n").context("listing the packages")
    })
    .with_context(|| format!("a Debian tree with {}", packages.join(", ")))?;
    Ok(directory.join("root"))
}

/// Does what the packages' installation scripts would, as far as the programs need it.
fn finish(root: &Path) -> Result<()> {
    let link = |to: &str, at: &str| {
        let path = root.join(at);
        if path.symlink_metadata().is_ok() {
            return Ok(());
        }
        std::os::unix::fs::symlink(to, &path).with_context(|| path.display().to_string())
    };
    cache::make(&root.join("etc"))?;
    link("bash", "bin/sh")?;
    link("gawk", "usr/bin/awk")?;
    for mount_point in ["proc", "sys", "dev", "tmp", "out", "scratch", "usr/local/bin"] {
        cache::make(&root.join(mount_point))?;
    }
    let users = root.join("etc/passwd");
    std::fs::write(&users, "root:x:0:0:root:/:/bin/bash\n").with_context(|| users.display().to_string())
}

/// Copies a tree with hard links, to add files to the copy.
pub fn share(tree: &Path, copy: &Path) -> Result<()> {
    let output = Command::new("cp").arg("-al").args([tree, copy]).output().context("running cp")?;
    anyhow::ensure!(
        output.status.success(),
        "copying {}: {}",
        tree.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
