//! The cache of all downloads and results: `$PAGEHAUL_LAB_CACHE`, or `pagehaul-lab` in the user's cache directory.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Returns the cache directory, and creates it if necessary.
pub fn directory() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let path = match (set("PAGEHAUL_LAB_CACHE"), set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(path), _, _) => path,
        (_, Some(path), _) => path.join("pagehaul-lab"),
        (_, _, Some(home)) => home.join(".cache/pagehaul-lab"),
        _ => bail!(
            "neither XDG_CACHE_HOME nor HOME is set: set PAGEHAUL_LAB_CACHE to a directory for the lab's cache"
        ),
    };
    // Programs that run in other directories get paths in it.
    let path = std::path::absolute(&path).with_context(|| format!("cache directory {}", path.display()))?;
    make(&path)?;
    Ok(path)
}

/// Creates a directory and its parents.
pub fn make(path: &Path) -> Result<()> {
    fs::create_dir_all(path).with_context(|| format!("creating the directory {}", path.display()))
}

/// Creates a directory of the cache atomically, unless it exists: `fill` gets a new directory next to it, which is
/// renamed once `fill` has succeeded.
pub fn once(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let name =
        path.file_name().and_then(|name| name.to_str()).context("a directory of the cache has a name")?;
    let parent = path.parent().context("a directory of the cache is in the cache")?;
    make(parent)?;
    let draft = parent.join(format!(".{name}.{}", std::process::id()));
    remove_stale_drafts(parent, name);
    make(&draft)?;
    let result = fill(&draft).and_then(|()| match fs::rename(&draft, path) {
        // Another process was faster.
        Err(_) if path.exists() => Ok(()),
        other => other.with_context(|| format!("renaming {} to {}", draft.display(), path.display())),
    });
    let _ = fs::remove_dir_all(&draft);
    result
}

/// Fails unless a directory's file system has `bytes` free.
pub fn room(directory: &Path, bytes: u64) -> Result<()> {
    let disk = rustix::fs::statvfs(directory).with_context(|| directory.display().to_string())?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < bytes {
        let mib = |bytes: u64| bytes >> 20;
        bail!(
            "{} MiB are free in {}, and {} MiB may be needed: make room, or set PAGEHAUL_LAB_CACHE to another directory",
            mib(free),
            directory.display(),
            mib(bytes)
        );
    }
    Ok(())
}

/// Removes drafts of this directory by processes that no longer exist, or that had this process's ID.
fn remove_stale_drafts(parent: &Path, name: &str) {
    let prefix = format!(".{name}.");
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let file = entry.file_name();
        let process =
            file.to_str().and_then(|f| f.strip_prefix(&prefix)).and_then(|id| id.parse::<u32>().ok());
        let dead = |id: u32| id == std::process::id() || !Path::new("/proc").join(id.to_string()).exists();
        if process.is_some_and(dead) {
            // A draft that cannot be removed only takes space.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Takes a lock, waiting for other processes. It is released when dropped, and when the process ends.
pub fn lock(name: &str) -> Result<File> {
    let path = directory()?.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    if file.try_lock().is_err() {
        eprintln!("waiting for another process that holds {}", path.display());
        file.lock().with_context(|| format!("locking {}", path.display()))?;
    }
    Ok(file)
}

/// A hash of everything that a cached result depends on.
#[derive(Clone)]
pub struct Key(u128);

impl Default for Key {
    fn default() -> Key {
        // FNV-1a with 128 bits: stable across releases, unlike the standard library's hasher. Not for security.
        Key(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Key {
    /// Adds bytes and their length.
    pub fn with(mut self, bytes: impl AsRef<[u8]>) -> Key {
        let bytes = bytes.as_ref();
        for byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
        self
    }

    /// Adds the content of a file.
    pub fn with_file(self, path: &Path) -> Result<Key> {
        Ok(self.with(fs::read(path).with_context(|| path.display().to_string())?))
    }

    /// Returns twelve hexadecimal digits.
    pub fn short(&self) -> String {
        format!("{:012x}", (self.0 ^ (self.0 >> 64)) & 0xffff_ffff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_reported_with_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        room(place.path(), 1).unwrap();
        let said = room(place.path(), u64::MAX).unwrap_err().to_string();
        assert!(said.contains(&place.path().display().to_string()), "{said}");
        assert!(said.contains("make room, or set PAGEHAUL_LAB_CACHE"), "{said}");
    }

    #[test]
    fn keys_depend_on_the_boundaries_of_parts() {
        let key = |parts: &[&str]| parts.iter().fold(Key::default(), |key, part| key.with(part)).short();
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
        assert_ne!(key(&[]), key(&[""]));
    }

    #[test]
    fn a_directory_that_could_not_be_filled_does_not_exist() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("thing");
        let failed = once(&path, |draft| {
            fs::write(draft.join("half"), "x")?;
            bail!("no network")
        });
        assert!(failed.is_err() && !path.exists());
        once(&path, |draft| Ok(fs::write(draft.join("whole"), "x")?)).unwrap();
        // No process has this ID.
        let orphan = place.path().join(".other.4294967295");
        fs::create_dir(&orphan).unwrap();
        once(&place.path().join("other"), |_| Ok(())).unwrap();
        assert!(!orphan.exists());
        fs::remove_dir(place.path().join("other")).unwrap();
        once(&path, |_| bail!("must not be filled again")).unwrap();
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
        assert!(path.join("whole").exists());
    }
}
