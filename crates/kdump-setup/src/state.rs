//! What is kept for later: `/var/lib/pagehaul/kdump`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::root::Root;

const DIRECTORY: &str = "/var/lib/pagehaul/kdump";

/// Why nothing was read or saved.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
    /// The file has something else.
    #[error("{path} is not as pagehaul writes it: {source}", path = path.display())]
    Foreign {
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Where a file of that directory is on the machine.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(DIRECTORY).join(name)
}

/// Keeps other programs that ask for it from changing anything until it is dropped.
pub(crate) fn lock(root: &Root) -> Result<OwnedFd, StateError> {
    /// Far longer than files are written.
    const PATIENCE: Duration = Duration::from_secs(30);
    let locked = root.lock(Path::new(DIRECTORY), PATIENCE);
    locked.map_err(|source| StateError::Io { path: root.path(DIRECTORY), action: "lock", source })
}

/// Reads what was saved. `None` if nothing was.
pub fn read<T: DeserializeOwned>(root: &Root, name: &str) -> Result<Option<T>, StateError> {
    let path = path(name);
    let text = match root.read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(StateError::Io { path: root.path(path), action: "read", source }),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|source| StateError::Foreign { path: root.path(path), source })
}

/// Saves something, for root only.
pub fn save(root: &Root, name: &str, value: &impl Serialize) -> Result<(), StateError> {
    let path = path(name);
    let written = serde_json::to_vec_pretty(value)
        .map_err(io::Error::from)
        .and_then(|text| root.replace(&path, &text, true));
    written.map_err(|source| StateError::Io { path: root.path(path), action: "write", source })
}

/// Removes what was saved.
pub(crate) fn remove(root: &Root, name: &str) -> Result<(), StateError> {
    let path = path(name);
    root.remove(&path).map_err(|source| StateError::Io { path: root.path(path), action: "remove", source })
}
