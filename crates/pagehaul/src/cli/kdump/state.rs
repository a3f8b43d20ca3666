//! What `kdump apply` and `kdump test` keep for later: `/var/lib/pagehaul/kdump`.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::Context;
use pagehaul_kdump_setup::Root;
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use serde::Serialize;
use serde::de::DeserializeOwned;

const DIRECTORY: &str = "/var/lib/pagehaul/kdump";

/// Where a file of that directory is.
pub(super) fn path(root: &Root, name: &str) -> PathBuf {
    root.path(DIRECTORY).join(name)
}

/// Reads what was saved. `None` if nothing was.
pub(super) fn read<T: DeserializeOwned>(root: &Root, name: &str) -> anyhow::Result<Option<T>> {
    let path = path(root, name);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    serde_json::from_slice(&text).map(Some).with_context(|| format!("{} is not pagehaul's", path.display()))
}

/// Saves something, for root only.
pub(super) fn save(root: &Root, name: &str, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    write(&path(root, name), &text, true)
}

/// Creates or replaces a file, which has its new contents or the old ones at any moment, on the disk, too. One that is replaced
/// keeps its owner and mode; directories are made.
pub(super) fn write(path: &Path, contents: &str, private: bool) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let options = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite: true,
        special: Special::No,
        private,
        sources: &[],
    };
    let mut new = NewFile::create(path, options)?;
    let mut file = &**new.file();
    file.write_all(contents.as_bytes()).with_context(failed)?;
    if let Ok(old) = fs::metadata(path) {
        fchown(file, Some(old.uid()), Some(old.gid())).with_context(failed)?;
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777)).with_context(failed)?;
    }
    file.sync_all().with_context(failed)?;
    Ok(new.commit()?)
}
