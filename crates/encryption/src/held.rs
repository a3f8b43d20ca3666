//! What this process can decrypt.

use std::fs::metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::{PlainFile, ReadAt, is_url};

use crate::chunks::FileKey;
use crate::identity::Identity;
use crate::reader::unlock_file;
use crate::reader::{Decrypted, MAGIC};

/// Names a file of identities.
const VARIABLE: &str = "PAGEHAUL_IDENTITY";

static HELD: Mutex<Held> = Mutex::new(Held { keys: Vec::new(), identities: Vec::new() });

struct Held {
    /// Keys of files, which open nothing else.
    keys: Vec<(PathBuf, FileKey)>,
    /// Secret keys, for the files of servers, which are not read before.
    identities: Vec<Identity>,
}

/// Keeps what opens the encrypted ones of `files` until this process ends, by the identities in the file `identity`; without one, in
/// the file that the environment variable `PAGEHAUL_IDENTITY` names, if it is set. A process that gives up its rights before it parses
/// files calls this first: the identities themselves are kept only if a URL is among `files`.
pub fn hold(identity: Option<&Path>, files: &[PathBuf]) -> Result<(), OpenError> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let Some(identity) = identity.or_else(|| {
        // A variable that is left over must not fail what needs no key.
        let is_needed = files.iter().any(|path| is_url(path) || is_encrypted(path));
        variable.as_deref().map(Path::new).filter(|_| is_needed)
    }) else {
        return Ok(());
    };
    let identities = Identity::read(identity)?;
    let mut keys = Vec::new();
    for path in files.iter().filter(|path| !is_url(path) && is_encrypted(path)) {
        let file = PlainFile::open(path)?;
        keys.push((path.clone(), unlock_file(&file, &identities)?));
    }
    let mut held = held();
    held.keys.retain(|(known, _)| keys.iter().all(|(path, _)| path != known));
    held.keys.extend(keys);
    if files.iter().any(|path| is_url(path)) {
        held.identities.extend(identities);
    }
    Ok(())
}

/// Whether a path names an encrypted file that can be opened.
fn is_encrypted(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    // The command that reads the file reports one that cannot be opened.
    metadata(path).is_ok_and(|metadata| metadata.is_file())
        && PlainFile::open(path).is_ok_and(|file| file.read_exact_at(0, &mut magic).is_ok())
        && magic == *MAGIC
}

/// Opens a file with what was [held](hold), if it is encrypted.
pub fn decrypted<F: ReadAt>(file: F) -> Result<MaybeEncrypted<F>, OpenError> {
    let mut magic = [0; MAGIC.len()];
    let is_encrypted = file.read_exact_at(0, &mut magic).is_ok() && magic == *MAGIC;
    if !is_encrypted {
        return Ok(MaybeEncrypted::Plain(file));
    }
    let held = held();
    let key = held.keys.iter().find(|(path, _)| path == file.path());
    let opened = match key {
        Some((_, key)) => Decrypted::open_with_key(file, key),
        None => Decrypted::open(file, &held.identities),
    };
    Ok(MaybeEncrypted::Encrypted(opened?))
}

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file, and whether it is encrypted.
pub enum MaybeEncrypted<F> {
    /// It is as it is.
    Plain(F),
    /// What it holds.
    Encrypted(Decrypted<F>),
}
