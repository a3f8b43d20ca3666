//! What this process can decrypt.

use std::fs::metadata;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::{PlainFile, ReadAt, is_url};

use crate::chunks::FileKey;
use crate::identity::Identity;
use crate::reader::{self, Decrypted, MAGIC, unlock_file};

/// Names a file of identities.
const VARIABLE: &str = "PAGEHAUL_IDENTITY";

static HELD: Mutex<Held> = Mutex::new(Held { keys: Vec::new(), identities: Vec::new() });

struct Held {
    /// Keys of files, which open nothing else.
    keys: Vec<(PathBuf, FileKey)>,
    /// Secret keys, for the files of servers, which are not read before.
    identities: Vec<Identity>,
}

/// Secret keys, by which the keys of files are found. A file of them is read once: it may be a pipe.
///
/// A process that gives up its rights before it parses files has the keys of these [held](Self::hold) first.
pub struct Unlocking {
    /// A file of secret keys that is read if an encrypted file needs it.
    unread: Option<PathBuf>,
    identities: Vec<Identity>,
    is_for_servers: bool,
}

impl Unlocking {
    /// Reads the identities in the file `identity`; without one, the environment variable `PAGEHAUL_IDENTITY` names the file, if it is set.
    pub fn new(identity: Option<&Path>) -> Result<Self, OpenError> {
        let (mut unread, mut identities) = (None, Vec::new());
        match identity {
            Some(path) => identities = Identity::read(path)?,
            // A variable that is left over must not fail what needs no key.
            None => unread = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
        }
        Ok(Self { unread, identities, is_for_servers: false })
    }

    /// Keeps what opens a file until this process ends, if the file is encrypted and there are identities: its key, or, of a URL, the
    /// identities themselves.
    pub fn hold(&mut self, path: &Path) -> Result<(), OpenError> {
        let is_url = is_url(path);
        if !is_url && !is_encrypted(path) {
            return Ok(());
        }
        if let Some(unread) = self.unread.take() {
            self.identities = Identity::read(&unread)?;
        }
        if self.identities.is_empty() {
            return Ok(());
        }
        if is_url {
            if !std::mem::replace(&mut self.is_for_servers, true) {
                held().identities.extend(self.identities.iter().cloned());
            }
            return Ok(());
        }
        let key = unlock_file(&PlainFile::open(path)?, &self.identities)?;
        let mut held = held();
        held.keys.retain(|(known, _)| known != path);
        held.keys.push((path.to_owned(), key));
        Ok(())
    }
}

/// [Holds](Unlocking::hold) what opens the encrypted ones of `files`.
pub fn hold(identity: Option<&Path>, files: &[PathBuf]) -> Result<(), OpenError> {
    let mut unlocking = Unlocking::new(identity)?;
    files.iter().try_for_each(|path| unlocking.hold(path))
}

/// Whether a path names an encrypted file that can be opened.
pub fn is_encrypted(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    // The command that reads the file reports one that cannot be opened.
    metadata(path).is_ok_and(|metadata| metadata.is_file())
        && PlainFile::open(path).is_ok_and(|file| file.read_exact_at(0, &mut magic).is_ok())
        && magic == *MAGIC
}

/// Whether a path names an encrypted file that ends before anything that is encrypted.
pub fn ends_in_header(path: &Path) -> bool {
    is_encrypted(path) && PlainFile::open(path).is_ok_and(|file| reader::ends_in_header(&file))
}

/// Whether a path names an encrypted file that nothing [held](hold) is known to open.
pub fn is_locked(path: &Path) -> bool {
    is_encrypted(path) && !held().keys.iter().any(|(known, _)| known == path)
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
