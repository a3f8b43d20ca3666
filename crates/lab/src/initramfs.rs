//! What the guests boot into.

use crate::cpio::Archive;
use crate::kernels::Kernel;
use crate::modules::{self, Module};
use crate::tools::Tools;
use anyhow::{Context, Result};
use lab_guest::order::{self, Order};
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
    order: &Order,
) -> Result<Vec<u8>> {
    let modules = modules::load_order(kernel, tools, &WANTED)?;
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let json = serde_json::to_vec(order).context("writing the guest's order")?;
    let base = |with_pagehaul: Option<&Path>| -> Result<Archive> {
        let mut archive = Archive::default();
        archive.console();
        archive.file("/init", &read(guest)?);
        archive.file(order::PATH, &json);
        for (i, Module { name, content }) in modules.iter().enumerate() {
            archive.file(&format!("{}/{i:02}-{name}.ko", order::MODULES), content);
        }
        if let Some(path) = with_pagehaul {
            archive.file(order::PAGEHAUL, &read(path)?);
        }
        Ok(archive)
    };
    let capture = base(pagehaul)?.finish();
    let mut first = base(None)?;
    first.file(order::CAPTURE_KERNEL, &read(&kernel.image()?)?);
    first.file(order::CAPTURE_INITRAMFS, &capture);
    Ok(first.finish())
}
