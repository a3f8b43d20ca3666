//! Which modules the disk of a directory needs, and whether an initramfs has them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::mounts;
use crate::root::Root;

/// Disks of disks, such as LVM on LUKS on RAID: more are not followed.
const DEEPEST: usize = 8;

/// Returns the modules that the running kernel has loaded for the disks under `path` and for its file system. What is built into
/// the kernel is not among them.
pub(crate) fn needed(root: &Root, path: &Path) -> BTreeSet<String> {
    let mounted = mounts::mounted(root);
    let Some(mount) = mounts::holding(&mounted, path) else { return BTreeSet::new() };
    let mut modules = BTreeSet::from([mount.kind.clone()]);
    disk(root, &PathBuf::from(format!("/sys/dev/block/{}", mount.number)), DEEPEST, &mut modules);
    let loaded = root.text("/proc/modules").unwrap_or_default();
    let loaded: BTreeSet<&str> = loaded.lines().filter_map(|line| line.split(' ').next()).collect();
    modules.retain(|module| loaded.contains(module.as_str()));
    modules
}

/// Adds the modules of the drivers of a block device, of all that it is connected through, and of the disks that it is made of.
fn disk(root: &Root, device: &Path, deepest: usize, modules: &mut BTreeSet<String>) {
    let Some(directory) = root.canonical(device) else { return };
    for above in directory.ancestors().take_while(|above| above.starts_with("/sys/devices/")) {
        let module = root.canonical(above.join("driver/module"));
        modules.extend(module.and_then(|path| Some(path.file_name()?.to_str()?.to_owned())));
        if root.exists(above.join("dm")) {
            modules.insert("dm_mod".into());
        }
    }
    for part in root.names(directory.join("slaves")).into_iter().take_while(|_| deepest > 0) {
        let path = Path::new("/sys/class/block").join(part);
        disk(root, &path, deepest - 1, modules);
    }
}

/// Returns the modules of `needed` that an initramfs lacks, by the list of its files.
pub(crate) fn lacking(needed: &BTreeSet<String>, files: &[String]) -> Vec<String> {
    let module = |path: &String| {
        let (name, _) = path.rsplit('/').next()?.split_once(".ko")?;
        Some(name.replace('-', "_"))
    };
    let there: BTreeSet<String> = files.iter().filter_map(module).collect();
    needed.iter().filter(|module| !there.contains(*module)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Makes a directory of a device with a driver, and returns its path.
    fn device(root: &Path, path: &str, module: Option<&str>) {
        fs::create_dir_all(root.join("sys/devices").join(path)).unwrap();
        let Some(module) = module else { return };
        let (driver, of) = (root.join("sys/drivers").join(module), root.join("sys/module").join(module));
        fs::create_dir_all(&driver).unwrap();
        fs::create_dir_all(&of).unwrap();
        let within = |path: &Path| Path::new("/").join(path.strip_prefix(root).unwrap());
        symlink(within(&of), driver.join("module")).unwrap();
        symlink(within(&driver), root.join("sys/devices").join(path).join("driver")).unwrap();
    }

    #[test]
    fn modules_of_all_disks_under_a_directory_are_needed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for path in [
            "proc/self",
            "sys/dev/block",
            "sys/class/block",
            "sys/devices/virtual/dm-0/slaves/vda1",
            "sys/devices/virtual/dm-0/dm",
        ] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        device(root, "pci0/0000:00:03.0", Some("virtio_pci"));
        device(root, "pci0/0000:00:03.0/virtio0", Some("virtio_blk"));
        device(root, "pci0/0000:00:03.0/virtio0/block/vda/vda1", None);
        symlink("../../devices/virtual/dm-0", root.join("sys/dev/block/253:0")).unwrap();
        symlink("../../devices/pci0/0000:00:03.0/virtio0/block/vda/vda1", root.join("sys/class/block/vda1"))
            .unwrap();
        let mounts =
            "22 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n30 22 253:0 / /var rw - xfs /dev/mapper/var rw\n";
        fs::write(root.join("proc/self/mountinfo"), mounts).unwrap();
        fs::write(
            root.join("proc/modules"),
            "xfs 1 0 - Live 0x0\nvirtio_blk 1 0 - Live 0x0\ndm_mod 1 0 - Live 0x0\nnvme 1 0 - Live 0x0\n",
        )
        .unwrap();
        // virtio_pci is built in; nvme belongs to another disk.
        let needed = needed(&Root::open(root).unwrap(), Path::new("/var/crash"));
        assert_eq!(needed.iter().map(String::as_str).collect::<Vec<_>>(), ["dm_mod", "virtio_blk", "xfs"]);
        let files = [
            "usr/lib/modules/6.1/kernel/drivers/block/virtio-blk.ko.xz",
            "usr/lib/modules/6.1/fs/xfs/xfs.ko",
        ];
        assert_eq!(lacking(&needed, &files.map(str::to_owned)), ["dm_mod"]);
        assert_eq!(lacking(&needed, &[]), ["dm_mod", "virtio_blk", "xfs"]);
    }
}
