//! What the guests boot into.

use crate::cpio::Archive;
use crate::kernels::Kernel;
use crate::modules::{self, Module};
use crate::tools::Tools;
use anyhow::{Context, Result};
use lab_guest::plan::{self, Plan};
use lab_guest::workload::{self, Workload};
use std::fs;
use std::path::Path;

/// Drivers of the guests' disks, of the balloon, and of the device through which a guest tells QEMU where its
/// VMCOREINFO is.
const WANTED: [&str; 5] = ["virtio_pci", "virtio_blk", "ext4", "virtio_balloon", "qemu_fw_cfg"];

/// The initramfs of the kernel that crashes. It holds the capture kernel with an initramfs of its own, which is the
/// same but for the program under test.
pub fn build(
    kernel: &Kernel,
    tools: &Tools,
    guest: &Path,
    pagehaul: Option<&Path>,
    plan: &Plan,
) -> Result<Vec<u8>> {
    let modules = modules::load_order(kernel, tools, &WANTED)?;
    let json = serde_json::to_vec(plan).context("writing the guest's plan")?;
    let mut capture = base(guest, &modules)?;
    capture.file(plan::PATH, &json);
    if let Some(path) = pagehaul {
        capture.file(plan::PAGEHAUL, &read(path)?);
    }
    let mut first = base(guest, &modules)?;
    first.file(plan::PATH, &json);
    first.file(plan::CAPTURE_KERNEL, &read(&kernel.image()?)?);
    first.file(plan::CAPTURE_INITRAMFS, &capture.finish());
    Ok(first.finish())
}

/// The initramfs of a kernel that runs a workload.
pub fn build_for_work(kernel: &Kernel, tools: &Tools, guest: &Path, workload: &Workload) -> Result<Vec<u8>> {
    let mut archive = base(guest, &modules::load_order(kernel, tools, &WANTED)?)?;
    archive.file(workload::PATH, &serde_json::to_vec(workload).context("writing the guest's workload")?);
    Ok(archive.finish())
}

/// What every guest has: its init, and the modules to load.
fn base(guest: &Path, modules: &[Module]) -> Result<Archive> {
    let mut archive = Archive::default();
    archive.console();
    archive.file("/init", &read(guest)?);
    for (i, Module { name, content }) in modules.iter().enumerate() {
        archive.file(&format!("{}/{i:02}-{name}.ko", plan::MODULES), content);
    }
    Ok(archive)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}
