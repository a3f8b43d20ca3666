//! Disks that are too small.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a shell script in a directory whose `disk` is one of `size` that only the script sees.
pub fn with_disk_of(size: &str, directory: &Path, script: &str) -> Output {
    fs::create_dir_all(directory.join("disk")).unwrap();
    Command::new("unshare")
        .args(["--mount", "sh", "-c", &format!("mount -t tmpfs -o size={size} none disk && {script}")])
        .current_dir(directory)
        .output()
        .unwrap()
}
