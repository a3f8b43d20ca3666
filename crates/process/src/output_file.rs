//! The file that a core or checkpoint is written to: made without harm to what has its name already.
//!
//! A file that exists is replaced (`--force`) only by one that is whole: the new one is written without a name, or under
//! a temporary one in the same directory, and renamed once it is on the disk. Until then nothing has changed. What this
//! run did not make, such as a device or a pipe, is never removed.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempPath;

use crate::ProcessError;

/// What an output holds that could not be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Something of use: a new file has its name from the start, so that not even SIGKILL loses it.
    Useful,
    /// Nothing: the file gets its name when it is whole, and has to be a regular one.
    Useless,
}

/// An open output.
pub(crate) struct OutputFile {
    file: Arc<File>,
    path: PathBuf,
    overwrite: bool,
    place: Place,
}

enum Place {
    /// Never to be removed: a device or pipe, which was there before, or a file that is finished.
    Settled,
    /// A file that this run has made at its path.
    New,
    /// A file without a name (O_TMPFILE).
    Unnamed,
    /// A file with a temporary name in the same directory, for file systems without O_TMPFILE.
    Temporary(TempPath),
}

impl OutputFile {
    /// Opens the output at `path`, readable by its owner only. Refuses a file that exists unless `overwrite`, a directory,
    /// and, where what is unfinished is useless, devices and pipes.
    pub(crate) fn open(path: &Path, overwrite: bool, unfinished: Unfinished) -> Result<Self, ProcessError> {
        let refused = |why: &str| Err(ProcessError::Refused(format!("{} {why}", path.display())));
        let output = |file, place| Self { file: Arc::new(file), path: path.to_owned(), overwrite, place };
        let create = |error| failed(path, "create")(error);
        let exists = match fs::symlink_metadata(path) {
            Ok(_) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(failed(path, "examine")(error)),
        };
        // A symbolic link counts as what it leads to if that is a device or pipe; any other is replaced itself.
        if let Some(found) = fs::metadata(path).ok().filter(|found| !found.is_file()) {
            if found.is_dir() {
                return refused("is a folder; name a file");
            }
            if unfinished == Unfinished::Useless {
                return refused("is a device or pipe; name a regular file, or one that does not exist");
            }
            if !overwrite && !found.file_type().is_fifo() {
                return refused("exists; remove it, or replace it with --force");
            }
            let file = OpenOptions::new().write(true).open(path).map_err(create)?;
            return Ok(output(file, Place::Settled));
        }
        if exists && !overwrite {
            return refused("exists; remove it, or replace it with --force");
        }
        if !exists && unfinished == Unfinished::Useful {
            // Neither follows a link nor takes a file made meanwhile.
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            return Ok(output(file.map_err(create)?, Place::New));
        }
        let (file, place) = unnamed(directory(path)).map_err(create)?;
        Ok(output(file, place))
    }

    /// The file.
    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where it is, or will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a file that is whole its name, and makes sure that the name is on the disk. What had the name before is
    /// replaced only with `overwrite`.
    pub(crate) fn commit(&mut self) -> Result<(), ProcessError> {
        let named = match std::mem::replace(&mut self.place, Place::Settled) {
            Place::Settled | Place::New => return Ok(()),
            Place::Unnamed => {
                name(&self.file, directory(&self.path)).map_err(failed(&self.path, "create"))?
            }
            Place::Temporary(named) => named,
        };
        let renamed =
            if self.overwrite { named.persist(&self.path) } else { named.persist_noclobber(&self.path) };
        renamed.map_err(|error| failed(&self.path, "create")(error.error))?;
        sync(directory(&self.path)).map_err(failed(&self.path, "write to"))
    }

    /// Keeps a file that could not be finished, of which something may be of use. One that was to replace another does
    /// not: it is named OUTPUT.incomplete, and replaces an earlier file of that name only.
    pub(crate) fn keep(&mut self) -> Result<(), ProcessError> {
        if matches!(self.place, Place::Unnamed | Place::Temporary(_)) {
            let mut name = OsString::from(&self.path);
            name.push(".incomplete");
            self.path = name.into();
        }
        self.commit()
    }

    /// Removes a file in which there is nothing of use, if this run has made it.
    pub(crate) fn discard(&self) {
        let identity = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let is_ours = || {
            let (there, ours) = (fs::symlink_metadata(&self.path).ok()?, self.file.metadata().ok()?);
            (identity(there) == identity(ours)).then_some(())
        };
        // Others go away with this.
        if matches!(self.place, Place::New) && is_ours().is_some() {
            // One that cannot be removed is empty or marked incomplete; there is nothing more to do.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The error for something that could not be done to a file.
pub(crate) fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProcessError {
    move |source| ProcessError::Output { path: path.to_owned(), action, source }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a file in a directory that goes away with this program, even one that is killed where the file system allows.
fn unnamed(directory: &Path) -> io::Result<(File, Place)> {
    let flags = libc::O_TMPFILE;
    match OpenOptions::new().write(true).custom_flags(flags).mode(0o600).open(directory) {
        Ok(file) => Ok((file, Place::Unnamed)),
        // EISDIR: kernels before 3.11; EOPNOTSUPP: NFS, FAT and others.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EOPNOTSUPP)) => {
            let (file, path) = temporary().tempfile_in(directory)?.into_parts();
            Ok((file, Place::Temporary(path)))
        }
        Err(error) => Err(error),
    }
}

/// Gives a file without a name a temporary one.
fn name(file: &File, directory: &Path) -> io::Result<TempPath> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |path: &Path| Ok(linkat(CWD, unnamed.as_str(), CWD, path, AtFlags::SYMLINK_FOLLOW)?);
    Ok(temporary().make_in(directory, link)?.into_temp_path())
}

fn temporary() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".pagehaul-");
    builder
}

/// Waits until the names in a directory are on the disk.
fn sync(directory: &Path) -> io::Result<()> {
    match File::open(directory)?.sync_all() {
        // Some file systems have nothing to do for it, and say so.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EROFS)) => {
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn written(path: &Path, overwrite: bool, unfinished: Unfinished) -> OutputFile {
        let output = OutputFile::open(path, overwrite, unfinished).unwrap();
        (&**output.file()).write_all(b"new").unwrap();
        output
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_only_by_one_that_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        for unfinished in [Unfinished::Useful, Unfinished::Useless] {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
            assert!(OutputFile::open(&path, false, unfinished).is_err());
            written(&path, true, unfinished).discard();
            assert_eq!(fs::read(&path).unwrap(), b"old");
            written(&path, true, unfinished).keep().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"old");
            written(&path, true, unfinished).commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(names(folder.path()), ["output", "output.incomplete"]);
        }
    }

    #[test]
    fn only_what_was_made_here_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("output");
        written(&path, false, Unfinished::Useful).discard();
        assert!(!path.exists());
        // Somebody else's file, put there meanwhile.
        let output = written(&path, false, Unfinished::Useful);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "other").unwrap();
        output.discard();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        fs::remove_file(&path).unwrap();
        let mut output = written(&path, false, Unfinished::Useless);
        assert_eq!(names(folder.path()), [""; 0], "it has no name before it is whole");
        fs::write(&path, "other").unwrap();
        assert!(output.commit().is_err());
        output.discard();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert_eq!(names(folder.path()), ["output"]);
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("link"), folder.path().join("other"));
        for exists in [true, false] {
            if exists {
                fs::write(&other, "old").unwrap();
            }
            std::os::unix::fs::symlink(&other, &path).unwrap();
            assert!(OutputFile::open(&path, false, Unfinished::Useful).is_err());
            written(&path, true, Unfinished::Useful).commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(fs::read(&other).ok(), exists.then(|| b"old".to_vec()));
            fs::remove_file(&path).unwrap();
            let _ = fs::remove_file(&other);
        }
    }
}
