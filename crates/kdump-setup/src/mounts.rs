//! What is mounted where, and what should be.

use std::path::{Path, PathBuf};

use crate::root::Root;

/// A mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) point: PathBuf,
    pub(crate) device: String,
    /// Its type, such as `ext4`.
    pub(crate) kind: String,
    /// Major and minor number of the device, `8:1`; empty where they are not known.
    pub(crate) number: String,
    /// Its options, and those of its file system.
    pub(crate) options: Vec<String>,
}

/// Lists what is mounted, from `/proc/self/mountinfo` (`Documentation/filesystems/proc.rst`).
pub(crate) fn mounted(root: &Root) -> Vec<Mount> {
    let text = root.text("/proc/self/mountinfo").unwrap_or_default();
    let mount = |line: &str| {
        let (fixed, rest) = line.split_once(" - ")?;
        let mut fields = fixed.split(' ').skip(2);
        let number = fields.next()?.to_owned();
        let point = unescape(fields.nth(1)?).into();
        let mut options = split(fields.next().unwrap_or_default());
        let (kind, rest) = rest.split_once(' ')?;
        let mut fields = rest.split(' ');
        let device = unescape(fields.next()?);
        options.extend(split(fields.next().unwrap_or_default()));
        Some(Mount { point, device, kind: kind.to_owned(), number, options })
    };
    text.lines().filter_map(mount).collect()
}

/// Lists what `/etc/fstab` mounts.
pub(crate) fn configured(root: &Root) -> Vec<Mount> {
    let text = root.text("/etc/fstab").unwrap_or_default();
    let mount = |line: &str| {
        let mut fields = line.split_whitespace();
        let device = fields.next().filter(|device| !device.starts_with('#'))?;
        let point = unescape(fields.next()?).into();
        let kind = fields.next().unwrap_or_default().to_owned();
        let options = split(fields.next().unwrap_or_default());
        Some(Mount { point, device: unescape(device), kind, number: String::new(), options })
    };
    text.lines().filter_map(mount).collect()
}

fn split(options: &str) -> Vec<String> {
    options.split(',').map(str::to_owned).collect()
}

/// The mount that holds `path`: the deepest above it, and the last mounted there.
pub(crate) fn holding<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let depth = |mount: &&Mount| mount.point.components().count();
    mounts.iter().filter(|mount| path.starts_with(&mount.point)).max_by_key(depth)
}

/// Blanks and the like are written as `\040` in both files.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_mount_holds_a_path() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("proc/self")).unwrap();
        std::fs::create_dir(directory.path().join("etc")).unwrap();
        let info = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n\
                    30 22 8:2 / /var/cr\\040ash rw shared:5 - xfs /dev/sdb1 rw\nnonsense\n";
        std::fs::write(directory.path().join("proc/self/mountinfo"), info).unwrap();
        std::fs::write(directory.path().join("etc/fstab"), "# comment\nUUID=1 /var ext4 defaults 0 2\n")
            .unwrap();
        let root = Root::open(directory.path()).unwrap();
        let mounts = mounted(&root);
        assert_eq!(mounts.len(), 2);
        assert_eq!(holding(&mounts, Path::new("/var/cr ash/x")).unwrap().device, "/dev/sdb1");
        assert_eq!(holding(&mounts, Path::new("/var/crash")).unwrap().device, "/dev/sda1");
        assert_eq!((mounts[1].kind.as_str(), mounts[1].number.as_str()), ("xfs", "8:2"));
        let var = Mount {
            point: "/var".into(),
            device: "UUID=1".into(),
            kind: "ext4".into(),
            number: String::new(),
            options: vec!["defaults".into()],
        };
        assert_eq!(configured(&root), [var]);
    }
}
