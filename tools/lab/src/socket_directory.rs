//! A temporary directory for QEMU's sockets.

use crate::cache;
use anyhow::Result;
use std::fs;
use std::path::PathBuf;

/// A directory whose path is short enough for a Unix socket (108 bytes). Removed when dropped.
pub(crate) struct SocketDirectory(pub(crate) PathBuf);

impl SocketDirectory {
    pub(crate) fn new() -> Result<SocketDirectory> {
        let path = std::env::temp_dir().join(format!("pagehaul-lab-{}", std::process::id()));
        cache::make(&path)?;
        Ok(SocketDirectory(path))
    }
}

impl Drop for SocketDirectory {
    fn drop(&mut self) {
        // On failure a few kilobytes stay in the temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}
