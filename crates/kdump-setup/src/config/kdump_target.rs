//! The target of a dump, as mkdumprd examines it (`check_user_configured_target`, kdump-utils 1.0.61).

use std::path::{Path, PathBuf};

use crate::mounts;
use crate::root::Root;

/// Why mkdumprd makes no initramfs for a file system: it is mounted, as one of another type than /etc/kdump.conf says.
pub(super) fn wrong_type(kind: &str, value: &str, root: &Root) -> Option<String> {
    if ["ssh", "raw"].contains(&kind) {
        return None;
    }
    let device = device(value, root);
    let is_it = |of: &str| of == value || root.canonical(of).is_some_and(|of| Some(of) == device);
    let mount = mounts::mounted(root).into_iter().find(|mount| is_it(&mount.device))?;
    let found = if mount.kind.starts_with("nfs") { "nfs" } else { &*mount.kind };
    (found != kind).then(|| format!("{kind} {value} is mounted as {found}, on {}", mount.point.display()))
}

/// A device, which may be named by its UUID or label.
fn device(value: &str, root: &Root) -> Option<PathBuf> {
    let value = value.replace('"', "");
    let by = |of: &str, name: &str| root.canonical(Path::new("/dev/disk").join(of).join(name));
    match value.split_once('=') {
        Some(("UUID", id)) => by("by-uuid", id),
        Some(("LABEL", label)) => by("by-label", label),
        _ if value.starts_with('/') => root.canonical(&value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_file_system_has_the_configured_type() {
        let directory = tempfile::tempdir().unwrap();
        for path in ["proc/self", "dev/disk/by-uuid"] {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        std::fs::write(directory.path().join("dev/vda1"), "").unwrap();
        std::os::unix::fs::symlink("../../vda1", directory.path().join("dev/disk/by-uuid/a")).unwrap();
        let info = "22 1 8:1 / / rw - xfs /dev/vda1 rw\n23 1 0:9 / /n rw - nfs4 host:/x rw\n";
        std::fs::write(directory.path().join("proc/self/mountinfo"), info).unwrap();
        let root = Root::open(directory.path()).unwrap();
        for (kind, value) in
            [("xfs", "/dev/vda1"), ("ext4", "/dev/vdb1"), ("nfs", "host:/x"), ("raw", "/dev/vda1")]
        {
            assert_eq!(wrong_type(kind, value, &root), None, "{kind} {value}");
        }
        for value in ["/dev/vda1", "UUID=a", "UUID=\"a\""] {
            assert_eq!(
                wrong_type("ext4", value, &root),
                Some(format!("ext4 {value} is mounted as xfs, on /"))
            );
        }
    }
}
