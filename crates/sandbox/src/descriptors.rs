//! Open files that the process inherited.

use std::fs;

use libc::{FD_CLOEXEC, STDERR_FILENO};

/// Closes the descriptors that the caller of this program left open, other than the standard ones. They are the descriptors
/// without FD_CLOEXEC: what this program opens has it.
pub(crate) fn close_inherited() {
    for fd in listed("/proc/self/fd").filter(|fd| *fd > STDERR_FILENO) {
        // SAFETY: fcntl(F_GETFD) reads the flags of a descriptor, which need not be open. One without FD_CLOEXEC belongs to no
        // object of this program.
        unsafe {
            let flags = libc::fcntl(fd, libc::F_GETFD);
            if flags >= 0 && flags & FD_CLOEXEC == 0 {
                libc::close(fd);
            }
        }
    }
}

/// Whether the process has more than one thread.
pub(crate) fn has_threads() -> bool {
    listed("/proc/self/task").count() > 1
}

/// Returns the numbers that are names in a directory.
fn listed(directory: &str) -> impl Iterator<Item = i32> {
    let entries: Vec<i32> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    entries.into_iter()
}
