//! Writes what a plan changes, and restores what was there before.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::plan::{Change, FILES};
use crate::root::Root;
use crate::state::{self, StateError};

/// What was applied, for an undo.
const STATE: &str = "apply.json";

/// Why files were not written or restored.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// What was applied could not be saved or read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
    /// Nothing was applied.
    #[error("nothing to undo: {path} does not exist", path = .0.display())]
    Nothing(PathBuf),
    /// Another program wrote it.
    #[error("{path} has changed since `kdump apply`; restore it by hand from {saved}", path = path.display(), saved = saved.display())]
    Changed {
        path: PathBuf,
        /// Where its earlier contents are.
        saved: PathBuf,
    },
    /// Another program wrote it between the plan and its application.
    #[error("{path} has changed since it was read; nothing more was written, try again", path = .0.display())]
    Raced(PathBuf),
    /// Some files are written, others are not.
    #[error(
        "{source}; changed already: {}; `pagehaul kdump apply --undo` restores what was there",
        names(written)
    )]
    Partly {
        /// The files that are written.
        written: Vec<PathBuf>,
        source: Box<ApplyError>,
    },
    /// No plan changes this file.
    #[error("{saved} names {path}, which `kdump apply` does not change; nothing was restored", path = path.display(), saved = saved.display())]
    Foreign {
        path: PathBuf,
        /// Where it is named.
        saved: PathBuf,
    },
}

fn names(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

/// A file that was changed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Applied {
    path: PathBuf,
    /// Its bytes before the first change; `None` if it did not exist.
    before: Option<Bytes>,
    /// Its bytes after the last one.
    after: Bytes,
}

/// Bytes that are a string where they can be, so that they can be restored by hand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
struct Bytes(Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Base64 { base64: String },
}

impl From<Bytes> for Written {
    fn from(Bytes(bytes): Bytes) -> Self {
        String::from_utf8(bytes).map_or_else(
            |error| Self::Base64 { base64: BASE64_STANDARD.encode(error.as_bytes()) },
            Self::Text,
        )
    }
}

impl TryFrom<Written> for Bytes {
    type Error = base64::DecodeError;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        Ok(Self(match written {
            Written::Text(text) => text.into_bytes(),
            Written::Base64 { base64 } => BASE64_STANDARD.decode(base64)?,
        }))
    }
}

/// Fails if the files of a plan cannot be written, as far as that can be seen without writing.
pub fn check(root: &Root, changes: &[Change]) -> Result<(), ApplyError> {
    for Change { path, .. } in changes {
        let failed = |source| ApplyError::Io { path: path.clone(), action: "write", source };
        root.check_replace(path).map_err(failed)?;
    }
    Ok(())
}

/// Writes the files of a plan, and saves what they held before the first time.
pub fn apply(root: &Root, changes: &[Change]) -> Result<(), ApplyError> {
    if changes.is_empty() {
        return Ok(());
    }
    check(root, changes)?;
    let _lock = lock(root)?;
    let earlier: Vec<Applied> = state::read(root, STATE)?.unwrap_or_default();
    // First, so that all that is written can be undone.
    state::save(root, STATE, &recorded(earlier.clone(), changes))?;
    let mut written = Vec::new();
    for (number, change) in changes.iter().enumerate() {
        let error = match write_change(root, change) {
            Ok(()) => {
                written.push(change.path.clone());
                continue;
            }
            Err(error) => error,
        };
        // What was not touched is not to be undone. An error may come after a write.
        let touched = number + usize::from(!matches!(error, ApplyError::Raced(_)));
        match recorded(earlier, &changes[..touched]) {
            none if none.is_empty() => state::remove(root, STATE)?,
            some => state::save(root, STATE, &some)?,
        }
        return Err(match written.is_empty() {
            true => error,
            false => ApplyError::Partly { written, source: error.into() },
        });
    }
    Ok(())
}

/// What was applied before, and these changes.
fn recorded(mut applied: Vec<Applied>, changes: &[Change]) -> Vec<Applied> {
    for change in changes {
        let before = change.before.clone().map(Bytes);
        let after = Bytes(change.after.clone());
        match applied.iter_mut().find(|applied| applied.path == change.path) {
            Some(applied) => {
                // Another program changed it since then, which an undo keeps.
                if before.as_ref() != Some(&applied.after) {
                    applied.before = before;
                }
                applied.after = after;
            }
            None => applied.push(Applied { path: change.path.clone(), before, after }),
        }
    }
    applied
}

/// Restores the files as they were before the first [`apply`], all or none of them, and returns their paths.
pub fn undo(root: &Root) -> Result<Vec<PathBuf>, ApplyError> {
    let saved = root.path(state::path(STATE));
    // Nothing is made where nothing was.
    if state::read::<Vec<Applied>>(root, STATE)?.is_none() {
        return Err(ApplyError::Nothing(saved));
    }
    let _lock = lock(root)?;
    let Some(applied) = state::read::<Vec<Applied>>(root, STATE)? else {
        return Err(ApplyError::Nothing(saved));
    };
    // A file that was changed since then has lines of another program.
    for Applied { path, before, after } in &applied {
        if !FILES.iter().any(|file| path.as_os_str() == *file) {
            return Err(ApplyError::Foreign { path: path.clone(), saved });
        }
        let now = read(root, path)?.map(Bytes);
        if now != *before && now.as_ref() != Some(after) {
            return Err(ApplyError::Changed { path: path.clone(), saved });
        }
    }
    let mut restored = Vec::new();
    for Applied { path, before, .. } in applied {
        match before {
            Some(Bytes(bytes)) => write(root, &path, &bytes)?,
            None => match root.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(ApplyError::Io { path, action: "remove", source: error });
                }
                _ => {}
            },
        }
        restored.push(path);
    }
    state::remove(root, STATE)?;
    Ok(restored)
}

/// Locks what was applied: of two that write at once, one would take what the other saved for its own. Removes what those left that
/// were killed.
fn lock(root: &Root) -> Result<OwnedFd, ApplyError> {
    let lock = state::lock(root)?;
    root.remove_left_by(&state::path(STATE));
    FILES.iter().for_each(|file| root.remove_left_by(Path::new(file)));
    Ok(lock)
}

fn write_change(root: &Root, Change { path, before, after, .. }: &Change) -> Result<(), ApplyError> {
    if read(root, path)? != *before {
        return Err(ApplyError::Raced(path.clone()));
    }
    write(root, path, after)
}

fn read(root: &Root, path: &Path) -> Result<Option<Vec<u8>>, ApplyError> {
    match root.read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ApplyError::Io { path: path.to_owned(), action: "read", source }),
    }
}

fn write(root: &Root, path: &Path, bytes: &[u8]) -> Result<(), ApplyError> {
    let failed = |source| ApplyError::Io { path: path.to_owned(), action: "write", source };
    root.replace(path, bytes, false).map_err(failed)
}
