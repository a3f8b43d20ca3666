//! A temporary directory for QEMU's sockets.

use anyhow::{Context, Result};

/// Makes a directory whose path is short enough for a Unix socket (108 bytes), which is removed when dropped.
pub(crate) fn make() -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("pagehaul-lab-")
        .tempdir()
        .context("making a directory for QEMU's sockets in the temporary directory")
}
