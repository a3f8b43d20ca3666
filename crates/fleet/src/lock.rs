//! Locks on a directory of tables: many runs of `extract` share it, `compact` and `remove` have it alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::names::MANIFEST;

/// A lock that ends with its value.
#[derive(Debug)]
pub(crate) struct Lock {
    _directory: Option<File>,
}

impl Lock {
    /// Creates the directory and waits for `compact` to end. A file system without locks has no `compact`.
    ///
    /// # Errors
    /// Fails if the directory cannot be created.
    pub(crate) fn shared(directory: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot create {}", directory.display());
        fs::create_dir_all(directory).with_context(context)?;
        let file = open(directory).with_context(context)?;
        let locked = flock(&file, FlockOperation::LockShared);
        Ok(Self { _directory: locked.is_ok().then_some(file) })
    }

    /// Waits until no other process names files of `directory`, which belong to one dump. Without locks, it goes on.
    pub(crate) fn names(directory: &Path) -> Self {
        let lock = || {
            let manifest = directory.join(MANIFEST);
            fs::create_dir_all(&manifest)?;
            let file = open(&manifest)?;
            flock(&file, FlockOperation::LockExclusive)?;
            Ok::<_, io::Error>(file)
        };
        Self { _directory: lock().ok() }
    }

    /// Waits for all runs of `extract` and `compact` to end.
    ///
    /// # Errors
    /// Fails if the directory cannot be locked.
    pub(crate) fn exclusive(directory: &Path) -> anyhow::Result<Self> {
        let context = || format!("cannot lock {}", directory.display());
        let file = open(directory).with_context(context)?;
        flock(&file, FlockOperation::LockExclusive).with_context(context)?;
        Ok(Self { _directory: Some(file) })
    }

    /// Takes the directory alone if no other run has it. `None` if one has, and on a file system without locks.
    pub(crate) fn try_exclusive(directory: &Path) -> Option<Self> {
        let file = open(directory).ok()?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
        Some(Self { _directory: Some(file) })
    }
}

/// Opens a directory. To open a pipe would wait for its writer.
fn open(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECTORY.bits().cast_signed()).open(directory)
}
