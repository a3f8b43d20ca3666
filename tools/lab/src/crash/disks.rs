//! The disks of a guest that crashes: made before it boots, turned into results afterwards.

use super::Config;
use super::outcome::read_report;
use crate::cache;
use crate::disk::{self, Disk};
use crate::kernels::Kernel;
use crate::tools::Tools;
use crate::{build, tree, workload};
use anyhow::{Context, Result};
use lab_guest::plan::disk as serial;
use lab_guest::workload::disk as guest_disk;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Size of the manifest disk in bytes.
const MANIFEST_BYTES: u64 = 16 << 20;

/// Makes the disks in `draft`.
pub(super) fn make(config: &Config, kernel: &Kernel, tools: &Tools, draft: &Path) -> Result<Vec<Disk>> {
    let memory = config.memory_mib << 20;
    let captures = config.captures.len() as u64;
    let kept = captures + config.runs.iter().filter(|run| !run.discard).count() as u64;
    let discarded = u64::from(config.runs.iter().any(|run| run.discard));
    let out_bytes = (256 << 20) + (kept + discarded) * (memory + (64 << 20));
    let source = gather_tools(config, draft)?;
    let mut out = match config.record {
        false => disk::ext4(tools, draft, serial::OUT, out_bytes, 4096, source.as_deref())?,
        true => disk::ext4_with_journal(tools, draft, serial::OUT, out_bytes)?,
    };
    out.write_rate = config.write_rate;
    if let Some(source) = source {
        fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
    }
    let mut disks = vec![
        out,
        disk::raw(draft, serial::VMCORE, memory + (256 << 20))?,
        disk::raw(draft, serial::MANIFEST, MANIFEST_BYTES)?,
        // Blocks of a page: pages that are read get no buffer heads.
        disk::ext4(tools, draft, serial::CACHE, memory.max(256 << 20), kernel.page_size, None)?,
        disk::ext4(tools, draft, serial::CACHE_PRIVATE, memory.max(256 << 20), 1024, None)?,
    ];
    if config.scenario.as_deref() == Some("keys") {
        disk::allow_encryption(tools, &disks, serial::CACHE)?;
    }
    if !(config.prepare.is_empty() && config.after.is_empty()) {
        let packages: Vec<&str> = config.packages.iter().map(String::as_str).collect();
        let tree = tree::of_suite(kernel.architecture, config.suite, &packages)?;
        let of_after = (!config.after.is_empty()).then(|| build::pagehaul_for_running(kernel.architecture));
        let pagehaul = of_after.transpose()?;
        disks.push(workload::root_disk(tools, &tree, pagehaul.as_deref(), &[], draft)?);
    }
    if !config.prepare.is_empty() {
        for (serial, mib) in [(guest_disk::SWAP, 64), (guest_disk::LUKS, 64), (guest_disk::XFS, 512)] {
            disks.push(disk::raw(draft, serial, mib << 20)?);
        }
    }
    if config.dump_disk_mib > 0 {
        let disk = disk::raw(draft, serial::DUMP, config.dump_disk_mib << 20)?;
        disks.push(Disk { write_rate: config.write_rate, ..disk });
    }
    if config.record {
        let recorded = |disk: &&mut Disk| [serial::OUT, serial::DUMP].contains(&disk.serial);
        disks.iter_mut().filter(recorded).try_for_each(Disk::record)?;
    }
    Ok(disks)
}

/// Collects the tools in one directory, which becomes the content of the disk for results.
fn gather_tools(config: &Config, draft: &Path) -> Result<Option<PathBuf>> {
    if config.tools.is_empty() {
        return Ok(None);
    }
    let source = draft.join("tools");
    cache::make(&source)?;
    for (from, name) in &config.tools {
        tree::share(from, &source.join(name))?;
    }
    Ok(Some(source))
}

/// Turns the disks into the files of a [`Crash`](super::Crash), and removes the disks.
pub(super) fn collect(config: &Config, tools: &Tools, draft: &Path, disks: &[Disk]) -> Result<()> {
    let disk = |serial: &str| disks.iter().find(|disk| disk.serial == serial).context("a disk of the guest");
    let manifest = disk::read_manifest(disk(serial::MANIFEST)?)?;
    fs::write(draft.join("manifest.json"), manifest).context("writing manifest.json")?;
    let out = draft.join("out");
    cache::make(&out)?;
    disk::extract_all(tools, disk(serial::OUT)?, &out)?;
    let report = read_report(&out)?;
    // The vmcore's disk becomes the vmcore, without the unused space at its end.
    let vmcore = draft.join("vmcore");
    fs::rename(&disk(serial::VMCORE)?.path, &vmcore)
        .and_then(|()| File::options().write(true).open(&vmcore)?.set_len(report.vmcore_bytes))
        .context("renaming the vmcore's disk")?;
    if !config.save_vmcore {
        fs::remove_file(&vmcore).context("removing the empty vmcore")?;
    }
    for (_, name) in &config.tools {
        fs::remove_dir_all(out.join(name)).with_context(|| format!("removing {name} from the results"))?;
    }
    for disk in disks.iter().filter(|disk| disk.path.exists()) {
        fs::remove_file(&disk.path).with_context(|| disk.path.display().to_string())?;
    }
    fs::remove_file(draft.join("initramfs")).context("removing the initramfs")
}
