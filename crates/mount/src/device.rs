use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

/// Returns major and minor number of what is mounted on `path`, such as `0:39`, from `/proc/self/mountinfo`
/// (`Documentation/filesystems/proc.rst`). The file system is asked nothing: a process that is killed while it waits for an answer
/// that it has to give itself never ends.
pub(crate) fn device_of(path: &Path) -> Option<String> {
    let directory = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", directory.as_raw_fd())).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    // Names of mounts may be of any bytes.
    device(&String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").ok()?), id)
}

/// The device of the mount `id`: the third field of its line.
fn device(mountinfo: &str, id: &str) -> Option<String> {
    let mut mounts = mountinfo.lines().map(|line| line.split(' '));
    mounts.find_map(|mut fields| (fields.next()? == id).then(|| fields.nth(1).map(str::to_owned))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_that_of_the_mount_with_this_id() {
        let text = "21 28 0:19 / /sys rw,nosuid - sysfs sysfs rw\n2 1 8:1 / / rw - ext4 /dev/sda1 rw\n28";
        assert_eq!(device(text, "21").as_deref(), Some("0:19"));
        assert_eq!(device(text, "2").as_deref(), Some("8:1"));
        assert_eq!(device(text, "28"), None);
    }

    #[test]
    fn what_is_mounted_is_found() {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata("/proc").unwrap().dev();
        let expected = format!("{}:{}", rustix::fs::major(found), rustix::fs::minor(found));
        assert_eq!(device_of("/proc".as_ref()), Some(expected));
        assert_eq!(device_of("/proc/none".as_ref()), None);
    }
}
