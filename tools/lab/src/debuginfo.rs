//! Downloads debug symbols of the lab's kernels, for drgn and crash.

use crate::apt::Apt;
use crate::cache::{self, Key};
use crate::kernels::Kernel;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Debug symbols in the cache.
#[derive(Clone, Debug)]
pub struct DebugInfo {
    /// The kernel with debug symbols.
    pub vmlinux: PathBuf,
    /// Directory with the symbols of the modules that guests load, as `<name>.ko` or `<name>.ko.debug`.
    pub modules: PathBuf,
}

/// Modules whose symbols are kept. The package holds thousands.
const MODULES: [&str; 13] = [
    "virtio",
    "virtio_ring",
    "virtio_pci",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_blk",
    "virtio_balloon",
    // For `lab/tests/erase.rs`.
    "dm-mod",
    "dm-crypt",
    "aesni-intel",
    "cryptd",
    "crypto_simd",
    "xts",
];

/// Downloads a kernel's debug symbols (300 to 400 MB, of which vmlinux is kept) unless the cache has them.
pub fn get(kernel: &Kernel) -> Result<DebugInfo> {
    // What an earlier version of the lab kept may lack modules.
    let key = Key::default().with(MODULES.join(" ")).short();
    let directory = cache::directory()?.join("debug").join(format!("{}-{key}", kernel.release));
    cache::once(&directory, |draft| fetch(kernel, draft))
        .with_context(|| format!("debug symbols of {}", kernel.release))?;
    Ok(DebugInfo { vmlinux: directory.join("vmlinux"), modules: directory.join("modules") })
}

fn fetch(kernel: &Kernel, into: &Path) -> Result<()> {
    let apt = Apt::with_packages_for(kernel.architecture, &[&kernel.suite], false)?;
    let name = format!("linux-image-{}-dbg", kernel.release);
    let package = if apt.names(&name)?.contains(&name) {
        apt.download(&name)?
    } else {
        let image = format!("linux-image-{}", kernel.release);
        apt.download_unlisted(&image, |uri| {
            // Signed images have a separate source package; the symbols are in linux's.
            let signed = format!("/linux-signed-{}/", kernel.architecture.debian());
            uri.replace(&signed, "/linux/").replace(&format!("{image}_"), &format!("{name}_"))
        })?
    };
    let unpacked = into.join("unpacked");
    unpack_some(&package, &unpacked, &kernel.release)?;
    let mut found = Vec::new();
    list(&unpacked, &mut found)?;
    let modules = into.join("modules");
    cache::make(&modules)?;
    for path in found {
        let file = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        let target = if file.starts_with("vmlinux") { into.join("vmlinux") } else { modules.join(&file) };
        fs::rename(&path, &target).with_context(|| format!("keeping {}", path.display()))?;
    }
    if !into.join("vmlinux").exists() {
        bail!("{} contains no vmlinux", package.display());
    }
    fs::remove_dir_all(&unpacked).context("removing unpacked files")?;
    fs::remove_file(&package).context("removing the package")
}

/// Unpacks only the kernel and a few modules: the complete package takes gigabytes.
fn unpack_some(package: &Path, into: &Path, release: &str) -> Result<()> {
    cache::make(into)?;
    let mut source = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .context("running dpkg-deb")?;
    let mut tar = Command::new("tar");
    tar.arg("-x").arg("-C").arg(into).args(["--wildcards", "--no-same-owner"]);
    tar.arg(format!("*/vmlinux-{release}")).arg(format!("*/{release}/vmlinux"));
    for module in MODULES {
        tar.arg(format!("*/{module}.ko*"));
    }
    // tar fails if a pattern matches nothing, and most do.
    let output = tar.stdin(source.stdout.take().context("a pipe")?).output().context("running tar")?;
    if !source.wait().context("running dpkg-deb")?.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("unpacking {}: {}", package.display(), text.lines().next().unwrap_or_default());
    }
    Ok(())
}

/// Lists all files in a directory tree, without links: packages link one name of vmlinux to another.
fn list(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let entry = entry.with_context(|| directory.display().to_string())?;
        let kind = entry.file_type().with_context(|| entry.path().display().to_string())?;
        if kind.is_dir() {
            list(&entry.path(), found)?;
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
    Ok(())
}
