//! Writes files: readers see all of one, or what was there before.

use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use rustix::fs::Access;
use tempfile::NamedTempFile;

/// A table could not be written, whatever its dump is like.
#[derive(Debug)]
pub(crate) struct Unwritten {
    path: PathBuf,
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write {}", self.path.display())
    }
}

/// A file that is complete and on the disk, and does not have its name yet.
pub(crate) struct Written {
    file: NamedTempFile,
    path: PathBuf,
}

impl Written {
    /// Writes a file in the directory of `path`.
    pub(crate) fn new(
        path: &Path,
        write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let context = || Unwritten { path: path.to_owned() };
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).with_context(context)?;
        let file = NamedTempFile::new_in(directory).with_context(context)?;
        let mut out = BufWriter::new(file);
        write(&mut out).with_context(context)?;
        let file = out.into_inner().map_err(|error| error.into_error()).with_context(context)?;
        file.as_file().sync_data().with_context(context)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Gives it its name. Readers see all of the old file or all of this.
    pub(crate) fn name(self) -> anyhow::Result<()> {
        let named = self.file.persist(&self.path).map_err(|error| error.error);
        named.map(drop).with_context(|| Unwritten { path: self.path })
    }
}

/// Fails if no file of a directory can be replaced, before any is.
///
/// # Errors
/// Fails if the file system is read-only, or this user may not write to the directory.
pub(crate) fn check_writable(directory: &Path) -> anyhow::Result<()> {
    rustix::fs::access(directory, Access::WRITE_OK).with_context(|| {
        format!(
            "nothing was changed: cannot write to {}; mount it writable, or run this as a user who may write there",
            directory.display()
        )
    })
}

/// Fails if an output is below the directory of the tables, which are read.
///
/// # Errors
/// Fails if it is.
pub(crate) fn check_outside(output: &Path, tables: &Path) -> anyhow::Result<()> {
    // The nearest directory that is there: others are made.
    let above = output.ancestors().skip(1);
    let mut above = above.map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    // The output itself may be a link to a table.
    let places = [above.find_map(|path| path.canonicalize().ok()), output.canonicalize().ok()];
    let Ok(tables) = tables.canonicalize() else { return Ok(()) };
    let is_below = places.into_iter().flatten().any(|place| place.starts_with(&tables));
    ensure!(!is_below, "{} is below the directory of the tables, which are read", output.display());
    Ok(())
}

/// Writes a file. Readers see all of it or nothing, and another run that writes it at the same time does no harm.
pub(crate) fn put(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    Written::new(path, write)?.name()
}

/// Device and inode of a file that is read, which no output replaces.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}
