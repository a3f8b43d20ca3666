//! Disks for tests: loop devices.
#![allow(dead_code)] // each test file uses its own part

use std::fs::File;
use std::path::Path;
use std::process::Command;

/// A file of zeros as a disk, until it is dropped.
pub struct LoopDevice {
    path: String,
}

impl LoopDevice {
    /// Creates the file at `path`, or replaces it. Returns `None` where there are no loop devices.
    pub fn new(path: &Path, size: u64) -> Option<Self> {
        let made = File::create(path).and_then(|file| file.set_len(size));
        made.unwrap();
        let output = Command::new("losetup").args(["--find", "--show"]).arg(path).output().ok();
        let Some(output) = output.filter(|output| output.status.success()) else {
            eprintln!("not tested: loop devices cannot be used here");
            return None;
        };
        Some(Self { path: String::from_utf8(output.stdout).unwrap().trim().to_owned() })
    }

    /// Limits what the kernel writes at a time. Returns `None` where that cannot be set.
    ///
    /// The loop driver takes a write that its file system did in part for a whole one (lo_complete_rq, Linux 6.18), and FUSE
    /// does requests above 1 MiB in parts: an error in the second would pass for success.
    pub fn with_small_requests(self) -> Option<Self> {
        let name = self.path.strip_prefix("/dev/").unwrap();
        let limited = std::fs::write(format!("/sys/block/{name}/queue/max_sectors_kb"), "256");
        if let Err(error) = limited {
            eprintln!("not tested: the request size of loop devices cannot be set here: {error}");
            return None;
        }
        Some(self)
    }

    /// The path of the device.
    pub fn path(&self) -> &str {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // A test that failed has more to say than this could.
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}
