//! Whether this works here.

use crate::error::ProcessError;
use crate::procfs;

/// Fails where `core`, `checkpoint` and `restart` could not work, or would reach for other processes than those named.
pub(crate) fn check_system() -> Result<(), ProcessError> {
    check_machine()?;
    procfs::check_namespace()
}

/// Fails on machines whose registers and system calls `core`, `checkpoint` and `restart` do not know. Finished cores and
/// checkpoints are read anywhere.
fn check_machine() -> Result<(), ProcessError> {
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        Ok(())
    } else {
        Err(ProcessError::Machine)
    }
}
