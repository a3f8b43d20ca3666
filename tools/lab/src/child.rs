//! Child processes that do not outlive the lab.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the kernel send `signal` to the command's process when this one dies.
pub(crate) fn end_with_parent(command: &mut Command, signal: i32) {
    let parent = std::process::id();
    // SAFETY: prctl and getppid are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, signal);
            // The parent may have died before the prctl.
            if libc::getppid().cast_unsigned() == parent {
                Ok(())
            } else {
                Err(std::io::ErrorKind::Other.into())
            }
        });
    }
}
