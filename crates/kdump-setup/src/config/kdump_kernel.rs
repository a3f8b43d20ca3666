//! The kernel that kdumpctl loads, and its initramfs (`prepare_kdump_bootinfo` of kdump-lib.sh, kdump-utils 1.0.61).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use crate::release::Release;
use crate::root::{Root, file_type};

/// Settings of /etc/sysconfig/kdump.
const SETTINGS: [&str; 4] = ["KDUMP_KERNELVER", "KDUMP_BOOTDIR", "KDUMP_IMG", "KDUMP_IMG_EXT"];

/// Where both may be; the first that exists counts.
pub(super) struct Files {
    pub(super) kernels: Vec<PathBuf>,
    pub(super) initramfs: Vec<PathBuf>,
    /// A setting that a shell computes, and that is left out.
    pub(super) computed: Option<&'static str>,
}

impl Files {
    pub(super) fn of(set: &HashMap<String, String>, root: &Root, running: &Release) -> Self {
        let is_computed = |value: &str| value.contains(['$', '`']);
        let computed =
            SETTINGS.into_iter().find(|name| set.get(*name).is_some_and(|value| is_computed(value)));
        let given = |name: &str| {
            set.get(name).map(String::as_str).filter(|value| !value.is_empty() && !is_computed(value))
        };
        let version = given("KDUMP_KERNELVER").map_or_else(|| version(root, running), str::to_owned);
        let img = given("KDUMP_IMG").unwrap_or("vmlinuz");
        let ext = given("KDUMP_IMG_EXT").unwrap_or_default();
        let id = root.text("/etc/machine-id").unwrap_or_default().trim().to_owned();
        let mut images = vec![
            format!("{img}-{version}{ext}"),
            format!("{id}/{version}/{img}"),
            format!("EFI/Linux/{id}-{version}.efi"),
        ];
        images.splice(0..0, booted(root).filter(|image| image.ends_with(&version)));
        let mut directories: Vec<String> = given("KDUMP_BOOTDIR")
            .unwrap_or("/boot /boot/efi /efi /")
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        if root.exists("/run/ostree-booted") {
            let mut names = root.names("/boot/ostree");
            names.sort();
            let of = names.iter().map(|name| format!("/boot/ostree/{}", name.to_string_lossy()));
            directories.splice(0..0, of.collect::<Vec<_>>());
        }
        let mut kernels: Vec<PathBuf> = directories
            .iter()
            .flat_map(|directory| {
                images.iter().map(|image| Path::new(directory).join(image.trim_start_matches('/')))
            })
            .collect();
        // A shell's -f: a directory is not taken. Without any, the usual one is the one that is missed.
        let is_file =
            |path: &&PathBuf| root.stat(path).is_some_and(|found| file_type(&found) == FileType::RegularFile);
        if let Some(found) = kernels.iter().find(is_file).cloned() {
            kernels = vec![found];
        } else if let Some(directory) = directories.first() {
            kernels = vec![Path::new(directory).join(format!("{img}-{version}{ext}"))];
        }
        let beside = kernels.first().and_then(|kernel| kernel.parent()).unwrap_or(Path::new("/boot"));
        let state = PathBuf::from(format!("/var/lib/kdump/initramfs-{version}kdump.img"));
        let initramfs =
            vec![beside.join(format!("initramfs-{version}kdump.img")), beside.join("initrdkdump"), state];
        Self { kernels, initramfs, computed }
    }
}

/// The running kernel's version, or, for a kernel for debugging, that of the other one if it is installed (`_get_kdump_kernel_version`).
fn version(root: &Root, running: &Release) -> String {
    let other = running.0.strip_suffix("debug").and_then(|rest| rest.strip_suffix(['+', '-', '|']));
    let is_installed = |other: &&str| root.exists(format!("/usr/lib/modules/{other}/modules.dep"));
    other.filter(is_installed).unwrap_or(&running.0).to_owned()
}

/// What the boot loader started, without GRUB's name of the disk.
fn booted(root: &Root) -> Option<String> {
    let line = root.text("/proc/cmdline")?;
    let image = line.split_whitespace().next()?.strip_prefix("BOOT_IMAGE=")?;
    Some(image.rsplit_once(')').map_or(image, |(_, path)| path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(written: &[&str], settings: &[(&str, &str)], running: &str) -> (String, String) {
        let directory = tempfile::tempdir().unwrap();
        for path in written {
            let path = directory.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "id\n").unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        let set = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let found = Files::of(&set, &root, &Release(running.into()));
        let first = |paths: &[PathBuf]| paths[0].to_str().unwrap().to_owned();
        (first(&found.kernels), first(&found.initramfs))
    }

    #[test]
    fn the_kernel_is_where_kdumpctl_looks() {
        let kernel =
            |written: &[&str], settings: &[(&str, &str)], running| files(written, settings, running).0;
        assert_eq!(kernel(&[], &[], "6.1"), "/boot/vmlinuz-6.1");
        assert_eq!(kernel(&["/boot/vmlinuz-6.1"], &[("KDUMP_KERNELVER", "")], "6.1"), "/boot/vmlinuz-6.1");
        assert_eq!(kernel(&["/boot/vmlinuz-6.1"], &[("KDUMP_KERNELVER", "5.0")], "6.1"), "/boot/vmlinuz-5.0");
        assert_eq!(kernel(&["/boot/vmlinuz-6.1"], &[("KDUMP_BOOTDIR", "/x")], "6.1"), "/x/vmlinuz-6.1");
        let uki = ["/etc/machine-id", "/boot/efi/EFI/Linux/id-6.1.efi"];
        assert_eq!(kernel(&uki, &[], "6.1"), "/boot/efi/EFI/Linux/id-6.1.efi");
        let ostree = ["/run/ostree-booted", "/boot/ostree/fedora-1/vmlinuz-6.1"];
        assert_eq!(kernel(&ostree, &[], "6.1"), "/boot/ostree/fedora-1/vmlinuz-6.1");
        // A directory is not a kernel.
        assert_eq!(kernel(&["/boot/vmlinuz-6.1/x", "/efi/vmlinuz-6.1"], &[], "6.1"), "/efi/vmlinuz-6.1");
        let debug = ["/usr/lib/modules/6.1/modules.dep"];
        assert_eq!(kernel(&debug, &[], "6.1+debug"), "/boot/vmlinuz-6.1");
        assert_eq!(kernel(&[], &[], "6.1+debug"), "/boot/vmlinuz-6.1+debug");
        let bls = files(&["/etc/machine-id", "/boot/id/6.1/vmlinuz"], &[("KDUMP_IMG", "vmlinuz")], "6.1");
        assert_eq!(bls, ("/boot/id/6.1/vmlinuz".into(), "/boot/id/6.1/initramfs-6.1kdump.img".into()));
        assert_eq!(kernel(&[], &[("KDUMP_KERNELVER", "$(uname -r)")], "6.1"), "/boot/vmlinuz-6.1");
    }
}
