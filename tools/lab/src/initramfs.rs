//! Builds the guests' initramfs.

use crate::cpio::Archive;
use crate::kernels::Kernel;
use crate::kexec;
use crate::modules::{self, Module};
use crate::tools::Tools;
use anyhow::{Context, Result};
use lab_guest::plan::{self, Plan};
use lab_guest::workload::{self, Workload};
use std::fs;
use std::path::Path;

/// Drivers of the disks, a checksum that ext4 asks for without naming the module, the balloon, and the device through which a guest
/// passes its VMCOREINFO to QEMU.
const DRIVERS: [&str; 6] =
    ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "virtio_balloon", "qemu_fw_cfg"];

/// What the scenario `keys` gives keys to, and the ciphers, which are not found by modprobe in the guest.
const KEYS: [&str; 15] = [
    "dm_crypt",
    "tls",
    "wireguard",
    "ecb",
    "xts",
    "ctr",
    "ghash_generic",
    "gcm",
    "cbc",
    "essiv",
    "aesni_intel",
    "encrypted_keys",
    "pkcs8_key_parser",
    "cts",
    "sha512_generic",
];

/// What the scenarios `keys` and `patterns` need besides: a file system, and checksums that it asks for without naming the module.
const PATTERNS: [&str; 2] = ["xfs", "libcrc32c"];

/// What the scenario `owners` needs besides: a compressed disk, what compresses, and guests on CPUs that can have them.
const OWNERS: [&str; 5] = ["zsmalloc", "lzo", "lzo_rle", "zram", "kvm_amd"];

/// Builds the initramfs of the kernel that crashes. It contains the capture kernel and its initramfs, which also has
/// pagehaul, and the module of a scenario. Both kernels load `modules`, too.
pub fn build(
    kernel: &Kernel,
    tools: &Tools,
    guest: &Path,
    pagehaul: Option<&Path>,
    scenario: Option<&Path>,
    plan: &Plan,
    modules: &[&str],
) -> Result<Vec<u8>> {
    // For the scenario `suspended`.
    let device_mapper = plan.scenario.as_ref().map(|_| "dm_mod");
    let keys = plan.scenario.as_ref().filter(|name| *name == "keys").map(|_| KEYS);
    let owners = plan.scenario.as_ref().filter(|name| *name == "owners").map(|_| OWNERS);
    let patterns =
        plan.scenario.as_ref().filter(|name| plan::WITHOUT_MODULE.contains(&name.as_str())).map(|_| PATTERNS);
    let of_scenario = device_mapper
        .into_iter()
        .chain(keys.into_iter().flatten())
        .chain(owners.into_iter().flatten())
        .chain(patterns.into_iter().flatten());
    let wanted: Vec<&str> = DRIVERS.into_iter().chain(of_scenario).collect();
    let wanted = [&wanted[..], modules].concat();
    let modules = modules::load_order(kernel, tools, &wanted)?;
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
    if let Some(path) = pagehaul.filter(|_| !plan.before.is_empty()) {
        first.file(plan::PAGEHAUL, &read(path)?);
    }
    for (path, content) in kexec::files(kernel.architecture)? {
        first.file(&path, &content);
    }
    if let Some(path) = scenario {
        first.file(plan::SCENARIO_MODULE, &read(path)?);
    }
    Ok(first.finish())
}

/// Builds the initramfs of a kernel that runs a workload.
pub fn build_for_workload(
    kernel: &Kernel,
    tools: &Tools,
    guest: &Path,
    workload: &Workload,
) -> Result<Vec<u8>> {
    let mut archive = base(guest, &modules::load_order(kernel, tools, &DRIVERS)?)?;
    archive.file(workload::PATH, &serde_json::to_vec(workload).context("writing the guest's workload")?);
    Ok(archive.finish())
}

/// Starts an initramfs with the guest program and modules.
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
