//! Files that this program writes: created without harm to what has their name already.
//!
//! A file that exists is replaced only if the user asked for it, never written through: neither a symbolic link, nor a
//! hard link, nor somebody's open file leads to the new contents. What this run did not create, such as a device or a
//! pipe, is never removed. A lock keeps two runs from writing to one path.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
use tempfile::TempPath;

/// Why an output was not created.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The path must not be written to.
    #[error("{0}")]
    Refused(String),
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
}

impl OutputError {
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { path: path.to_owned(), action, source }
    }
}

/// When a file gets its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// At once, so that not even a power cut loses what is written. A file that exists is removed first: the disk of a
    /// capture kernel often has no room for two dumps.
    AtOnce,
    /// At once, unless it replaces another: then once it is complete.
    AtOnceIfNew,
    /// Once it is complete: what is incomplete is of no use.
    WhenComplete,
}

/// Which outputs other than regular files are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// None.
    No,
    /// Block devices.
    Disks,
    /// Devices and pipes.
    Any,
}

/// How a file is created.
#[derive(Debug, Clone, Copy)]
pub struct CreateOptions<'a> {
    /// When it gets its name.
    pub naming: Naming,
    /// Whether a file or device that exists may be replaced.
    pub overwrite: bool,
    /// Which outputs other than regular files are accepted.
    pub special: Special,
    /// Whether only the owner may read it: files that hold the contents of memory.
    pub private: bool,
    /// Device and inode of the files that are being read, which are never replaced.
    pub sources: &'a [(u64, u64)],
}

/// A file being written.
#[derive(Debug)]
pub struct NewFile {
    file: Arc<File>,
    path: PathBuf,
    overwrite: bool,
    place: Place,
    /// The file to be replaced, locked.
    replaced: Option<File>,
}

#[derive(Debug)]
enum Place {
    /// A device, a pipe or an open file, which was there before.
    Given,
    /// A file that is complete, or of which only the contents matter.
    Settled,
    /// A file that this run has created at its path.
    Named,
    /// A file without a name (O_TMPFILE).
    Unnamed,
    /// A file with a temporary name in the same directory, for file systems without O_TMPFILE.
    Temporary(TempPath),
}

/// What a path names.
enum Existing {
    Nothing,
    /// A regular file, or a symbolic link that leads to one or nowhere, which may be replaced. It is open without access,
    /// so that no other file gets its inode number.
    File(File),
    /// Written to as it is: a device, a pipe, or an open file of this process (`/dev/stdout`).
    Special(Metadata),
}

impl NewFile {
    /// Refuses a path that must not be written to, and changes nothing.
    pub fn check(path: &Path, options: CreateOptions<'_>) -> Result<(), OutputError> {
        examine(path, options).map(drop)
    }

    /// Creates the file, where [`check`](Self::check) allows it.
    pub fn create(path: &Path, options: CreateOptions<'_>) -> Result<Self, OutputError> {
        let existing = examine(path, options)?;
        let new = |file, place, replaced| Self {
            file: Arc::new(file),
            path: path.to_owned(),
            overwrite: options.overwrite,
            place,
            replaced,
        };
        let replaced = match &existing {
            Existing::Special(found) => return Ok(new(open_special(path, found)?, Place::Given, None)),
            Existing::File(found) => lock_existing(path, found)?,
            Existing::Nothing => None,
        };
        let create = |error| OutputError::io(path, "create")(error);
        let named = match options.naming {
            Naming::AtOnce => true,
            Naming::AtOnceIfNew => matches!(existing, Existing::Nothing),
            Naming::WhenComplete => false,
        };
        if !named {
            let (file, place) = unnamed(directory(path), options.private).map_err(create)?;
            let file = new(file, place, replaced);
            file.protect(options.private)?;
            return Ok(file);
        }
        if let Existing::File(found) = existing {
            remove(path, &found)?;
        }
        // Neither follows a link nor takes a file that was created meanwhile.
        let mut named = OpenOptions::new();
        named.read(true).write(true).create_new(true).mode(mode(options.private));
        let file = named.open(path).map_err(create)?;
        let file = new(file, Place::Named, None);
        if let Err(error) = file.protect(options.private) {
            file.discard();
            return Err(error);
        }
        // A run that took it for the file to be replaced may have moved it before it was locked.
        if !is_at(path, file.file()) {
            return Err(busy(path));
        }
        // Some file systems cannot, and a later sync of the file often does it as well.
        let _ = sync(directory(path));
        Ok(file)
    }

    /// Sets the mode whatever the directory's default, and locks the file.
    fn protect(&self, private: bool) -> Result<(), OutputError> {
        // A sandbox may not allow to change modes.
        if private && !self.file.metadata().is_ok_and(|found| found.mode() & 0o777 == mode(true)) {
            let mode = Permissions::from_mode(mode(true));
            self.file.set_permissions(mode).map_err(OutputError::io(&self.path, "protect"))?;
        }
        if is_locked(&self.file) { Err(busy(&self.path)) } else { Ok(()) }
    }

    /// Creates a file in the directory of `path` that never gets a name.
    pub fn temporary(path: &Path) -> Result<Self, OutputError> {
        let directory = directory(path);
        let file = tempfile::tempfile_in(directory);
        let file = file.map_err(OutputError::io(directory, "create a temporary file in"))?;
        let path = directory.join("(temporary bitmap)");
        Ok(Self { file: Arc::new(file), path, overwrite: false, place: Place::Settled, replaced: None })
    }

    /// The open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where it is, or will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a file that is complete its name, and makes sure that the name is on the disk.
    pub fn commit(&mut self) -> Result<(), OutputError> {
        let path = &self.path;
        let named = match std::mem::replace(&mut self.place, Place::Settled) {
            Place::Given | Place::Settled | Place::Named => return Ok(()),
            Place::Unnamed => name(&self.file, directory(path)).map_err(OutputError::io(path, "create"))?,
            Place::Temporary(named) => named,
        };
        let renamed = if self.overwrite { named.persist(path) } else { named.persist_noclobber(path) };
        renamed.map_err(|error| OutputError::io(path, "create")(error.error))?;
        sync(directory(path)).map_err(OutputError::io(path, "write to"))
    }

    /// Keeps a file that could not be completed, of which something may be of use. One that was to replace another does
    /// not: it is named OUTPUT.incomplete, and replaces only an earlier file of that name.
    pub fn keep(&mut self) -> Result<(), OutputError> {
        if matches!(self.place, Place::Unnamed | Place::Temporary(_)) {
            let mut name = OsString::from(&self.path);
            name.push(".incomplete");
            self.path = name.into();
        }
        self.commit()
    }

    /// Removes a file that holds nothing of use, if this run created it. An open file of this process is left empty, so
    /// that it does not pass for an output.
    pub fn discard(&self) {
        // One that can be neither removed nor emptied is marked incomplete; nothing else can be done.
        match &self.place {
            Place::Named if is_at(&self.path, &self.file) => drop(remove(&self.path, &self.file)),
            Place::Given if self.file.metadata().is_ok_and(|meta| meta.is_file()) => {
                drop(self.file.set_len(0));
            }
            // Files without a name go away with this.
            _ => {}
        }
    }
}

impl Drop for NewFile {
    /// Ends the locks: a child that this process has forked, and that has not called exec yet, has the same open files.
    fn drop(&mut self) {
        for file in self.replaced.iter().chain([&*self.file]) {
            let _ = rustix::fs::flock(file, FlockOperation::Unlock);
        }
    }
}

/// Finds out what `path` names, and refuses what must not be written to.
fn examine(path: &Path, options: CreateOptions<'_>) -> Result<Existing, OutputError> {
    let name = path.display();
    let refuse = |why: &str| Err(OutputError::Refused(format!("{name} {why}")));
    let flags = libc::O_PATH | libc::O_NOFOLLOW;
    let entry = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(entry) => entry,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Existing::Nothing),
        Err(error) => return Err(OutputError::io(path, "examine")(error)),
    };
    // A symbolic link counts as what it leads to if that is a device, a pipe or an open file; any other is replaced itself.
    let found = fs::metadata(path).ok();
    let mut existing = Existing::File(entry);
    let mut needs_force = true;
    if let Some(found) = found {
        if options.sources.contains(&identity(&found)) {
            return refuse("is the source itself; name another output");
        }
        if found.is_dir() {
            return refuse("is a directory; name a file in it");
        }
        let (is_disk, is_file) = (found.file_type().is_block_device(), found.is_file());
        match options.special {
            _ if is_file => {}
            Special::Any => needs_force = !found.file_type().is_fifo() && !is_null(&found),
            Special::Disks if is_disk => {}
            Special::Disks => {
                return refuse(
                    "is neither a file nor a disk; use `-` as the output to write a flattened stream to a pipe, or \
                     --dry-run to write nothing",
                );
            }
            Special::No => {
                return refuse("is a device or pipe; name a regular file, or one that does not exist");
            }
        }
        if !is_file || names_open_file(path) {
            existing = Existing::Special(found);
        }
    }
    if needs_force && !options.overwrite {
        return refuse("exists; remove it, or replace it with --force");
    }
    Ok(existing)
}

/// Opens what is written to as it is.
fn open_special(path: &Path, found: &Metadata) -> Result<File, OutputError> {
    let is_disk = found.file_type().is_block_device();
    let mut options = OpenOptions::new();
    options.write(true).read(is_disk || found.is_file());
    if is_disk {
        // O_EXCL fails with EBUSY if the disk is mounted, or another program has opened it like this. O_DSYNC: a write that
        // fails only later would leave an older dump's bytes where new ones are announced.
        options.custom_flags(libc::O_EXCL | libc::O_DSYNC);
    }
    let file = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(OutputError::Refused(format!(
                "{} is in use: it is mounted, or another program writes to it",
                path.display()
            )));
        }
        opened => opened.map_err(OutputError::io(path, "open"))?,
    };
    let opened = file.metadata().map_err(OutputError::io(path, "examine"))?;
    if identity(&opened) != identity(found) {
        let why = format!("{} was replaced while it was opened; try again", path.display());
        return Err(OutputError::Refused(why));
    }
    if opened.is_file() {
        file.set_len(0).map_err(OutputError::io(path, "replace"))?;
    }
    Ok(file)
}

/// Removes the file or link `found`. Another run may have put its output in its place meanwhile, which stays.
pub(crate) fn remove(path: &Path, found: &File) -> Result<(), OutputError> {
    if fs::symlink_metadata(path).is_ok() && !is_at(path, found) {
        return Err(busy(path));
    }
    // Only a rename takes a file away and tells which it was, should it be replaced just now.
    let moved = temporary().make_in(directory(path), |to| fs::rename(path, to));
    let moved = match moved {
        Ok(moved) => moved.into_temp_path(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        // A full disk may have no room for a longer directory.
        Err(_) if is_at(path, found) => {
            return fs::remove_file(path).map_err(OutputError::io(path, "replace"));
        }
        Err(error) => return Err(OutputError::io(path, "replace")(error)),
    };
    if is_at(&moved, found) {
        return moved.close().map_err(OutputError::io(path, "replace"));
    }
    // If its name is taken again, that file is the other run's as well.
    let _ = moved.persist_noclobber(path);
    Err(busy(path))
}

/// Locks the file `found`, which is to be replaced, if it can be opened. Refuses one that another run writes to, or has put in its place.
fn lock_existing(path: &Path, found: &File) -> Result<Option<File>, OutputError> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    // For writing: NFS grants no exclusive lock otherwise.
    let file = match OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(busy(path)),
        // A symbolic link, or a file whose mode forbids it.
        Err(_) => return Ok(None),
    };
    let is_found = || is_at(path, found) && is_at(path, &file);
    if is_locked(&file) || !is_found() { Err(busy(path)) } else { Ok(Some(file)) }
}

/// Locks a file, and returns whether another run has. Not every file system has locks.
fn is_locked(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) == Err(rustix::io::Errno::WOULDBLOCK)
}

fn busy(path: &Path) -> OutputError {
    OutputError::Refused(format!("another program is writing to {}; name another output", path.display()))
}

/// Returns whether `path` leads to an open file of a process, as `/dev/stdout` does.
pub fn names_open_file(path: &Path) -> bool {
    let Ok(proc) = fs::metadata("/proc/self/fd") else { return false };
    let mut path = path.to_owned();
    // As many links as the kernel follows.
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { return false };
        if fs::symlink_metadata(&path).is_ok_and(|link| link.dev() == proc.dev()) && target.is_absolute() {
            return true;
        }
        path = directory(&path).join(target);
    }
    false
}

/// Returns whether it is `/dev/null`, which nothing can be lost of.
fn is_null(meta: &Metadata) -> bool {
    meta.file_type().is_char_device() && meta.rdev() == rustix::fs::makedev(1, 3)
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Returns whether `path` names `file`.
fn is_at(path: &Path, file: &File) -> bool {
    let there = fs::symlink_metadata(path).ok().map(|meta| identity(&meta));
    there.is_some() && there == file.metadata().ok().map(|meta| identity(&meta))
}

/// Mode of a new file, of which umask clears bits.
fn mode(private: bool) -> u32 {
    if private { 0o600 } else { 0o666 }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a file in a directory that goes away with this program, even one that is killed where the file system allows.
fn unnamed(directory: &Path, private: bool) -> io::Result<(File, Place)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(mode(private));
    match options.open(directory) {
        Ok(file) => Ok((file, Place::Unnamed)),
        // EISDIR: kernels before 3.11; EOPNOTSUPP: NFS, FAT and others.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EISDIR | libc::EOPNOTSUPP)) => {
            let mut builder = temporary();
            let (file, path) = builder
                .permissions(Permissions::from_mode(mode(private)))
                .tempfile_in(directory)?
                .into_parts();
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
        // Some file systems have nothing to do for it, and return an error.
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EROFS)) => {
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    const NAMINGS: [Naming; 3] = [Naming::AtOnce, Naming::AtOnceIfNew, Naming::WhenComplete];

    fn options(naming: Naming, overwrite: bool) -> CreateOptions<'static> {
        CreateOptions { naming, overwrite, special: Special::Any, private: true, sources: &[] }
    }

    fn written(path: &Path, naming: Naming, overwrite: bool) -> NewFile {
        let output = NewFile::create(path, options(naming, overwrite)).unwrap();
        (&**output.file()).write_all(b"new").unwrap();
        output
    }

    fn refusal(path: &Path, options: CreateOptions<'_>) -> String {
        NewFile::create(path, options).unwrap_err().to_string()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_that_exists_is_replaced_only_on_request_and_never_written_through() {
        for naming in NAMINGS {
            let directory = tempfile::tempdir().unwrap();
            let [path, hard_link] = ["output", "link"].map(|name| directory.path().join(name));
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
            fs::hard_link(&path, &hard_link).unwrap();
            assert!(refusal(&path, options(naming, false)).contains("exists; remove it"));
            let mut output = written(&path, naming, true);
            assert_eq!(fs::read(&path).unwrap(), if naming == Naming::AtOnce { b"new" } else { b"old" });
            output.commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(mode_of(&path), 0o600);
            assert_eq!(fs::read(&hard_link).unwrap(), b"old");
            assert_eq!(names(directory.path()), ["link", "output"]);
        }
    }

    #[test]
    fn what_could_not_be_completed_replaces_nothing() {
        for naming in [Naming::AtOnceIfNew, Naming::WhenComplete] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("output");
            fs::write(&path, "old").unwrap();
            written(&path, naming, true).discard();
            assert_eq!(names(directory.path()), ["output"]);
            written(&path, naming, true).keep().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"old");
            assert_eq!(names(directory.path()), ["output", "output.incomplete"]);
        }
    }

    #[test]
    fn only_what_was_created_here_is_removed() {
        for naming in NAMINGS {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("output");
            let output = written(&path, naming, false);
            assert_eq!(path.exists(), naming != Naming::WhenComplete);
            output.discard();
            assert_eq!(names(directory.path()), [""; 0]);
            // Another program's file, put there meanwhile.
            let mut output = written(&path, naming, false);
            let _ = fs::remove_file(&path);
            fs::write(&path, "other").unwrap();
            output.discard();
            assert_eq!(output.commit().is_err(), naming == Naming::WhenComplete);
            assert_eq!(fs::read(&path).unwrap(), b"other");
            assert_eq!(names(directory.path()), ["output"]);
        }
    }

    #[test]
    fn a_complete_file_is_not_discarded() {
        for naming in [Naming::AtOnceIfNew, Naming::WhenComplete] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("output");
            fs::write(&path, "old").unwrap();
            let mut output = written(&path, naming, true);
            output.commit().unwrap();
            output.discard();
            assert_eq!(fs::read(&path).unwrap(), b"new");
        }
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        for (naming, exists) in NAMINGS.into_iter().flat_map(|naming| [(naming, true), (naming, false)]) {
            let directory = tempfile::tempdir().unwrap();
            let [path, other] = ["link", "other"].map(|name| directory.path().join(name));
            if exists {
                fs::write(&other, "old").unwrap();
            }
            symlink(&other, &path).unwrap();
            assert!(refusal(&path, options(naming, false)).contains("exists; remove it"));
            written(&path, naming, true).commit().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert!(fs::symlink_metadata(&path).unwrap().is_file());
            assert_eq!(fs::read(&other).ok(), exists.then(|| b"old".to_vec()));
        }
    }

    #[test]
    fn a_source_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["source", "link"].map(|name| directory.path().join(name));
        fs::write(&path, "only copy").unwrap();
        symlink(&path, &link).unwrap();
        let sources = [identity(&fs::metadata(&path).unwrap())];
        for path in [&path, &link] {
            let options = CreateOptions { sources: &sources, ..options(Naming::AtOnce, true) };
            assert!(refusal(path, options).contains("is the source itself"));
        }
        assert_eq!(fs::read(&path).unwrap(), b"only copy");
    }

    #[test]
    fn of_runs_that_write_to_one_path_one_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output");
        for naming in NAMINGS {
            fs::write(&path, "old").unwrap();
            let first = written(&path, naming, true);
            for second in NAMINGS {
                assert!(refusal(&path, options(second, true)).contains("another program is writing to"));
            }
            drop(first);
            written(&path, naming, true).commit().unwrap();
        }
        // All begin at the same moment.
        for (round, runs) in [4, 2].into_iter().cycle().take(200).enumerate() {
            if round % 2 == 1 {
                // A link cannot be locked.
                fs::remove_file(&path).unwrap();
                symlink("nowhere", &path).unwrap();
            }
            let start = std::sync::Barrier::new(runs);
            let run = || {
                start.wait();
                NewFile::create(&path, options(Naming::AtOnce, true)).ok()
            };
            let runs: Vec<_> = std::thread::scope(|scope| {
                let runs: Vec<_> = (0..runs).map(|_| scope.spawn(run)).collect();
                runs.into_iter().filter_map(|run| run.join().unwrap()).collect()
            });
            assert!(runs.len() <= 1, "{runs:?}");
            assert!(runs.iter().all(|run| is_at(&path, run.file())));
            if runs.is_empty() {
                fs::write(&path, "old").unwrap();
            }
        }
    }

    #[test]
    fn special_files_are_written_to_where_they_are_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink("/dev/zero", &link).unwrap();
        let with = |special, overwrite| CreateOptions { special, ..options(Naming::AtOnceIfNew, overwrite) };
        assert!(refusal(&link, with(Special::No, true)).contains("is a device or pipe"));
        assert!(refusal(&link, with(Special::Disks, true)).contains("is neither a file nor a disk"));
        assert!(refusal(&link, with(Special::Any, false)).contains("exists; remove it"));
        assert!(refusal(directory.path(), with(Special::Any, true)).contains("is a directory"));
        let mut zero = written(&link, Naming::AtOnceIfNew, true);
        zero.discard();
        zero.commit().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        written(Path::new("/dev/null"), Naming::AtOnceIfNew, false).commit().unwrap();
    }

    #[test]
    fn an_open_file_of_this_process_is_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link] = ["redirected", "stdout"].map(|name| directory.path().join(name));
        fs::write(&path, "old").unwrap();
        let redirected = File::open(&path).unwrap();
        symlink(format!("/proc/self/fd/{}", redirected.as_raw_fd()), &link).unwrap();
        assert!(refusal(&link, options(Naming::WhenComplete, false)).contains("exists; remove it"));
        for naming in NAMINGS {
            written(&link, naming, true).commit().unwrap();
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(identity(&fs::metadata(&path).unwrap()), identity(&redirected.metadata().unwrap()));
            written(&link, naming, true).discard();
            assert_eq!(fs::read(&path).unwrap(), b"");
        }
        // A relative link of procfs leads to a directory; none of them is an open file.
        assert!(!names_open_file(Path::new("/proc/self")));
    }

    #[test]
    fn files_of_reports_have_the_mode_that_umask_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let [plain, report] = ["plain", "report"].map(|name| directory.path().join(name));
        fs::write(&plain, "").unwrap();
        let options = CreateOptions { private: false, ..options(Naming::WhenComplete, false) };
        NewFile::create(&report, options).unwrap().commit().unwrap();
        assert_eq!(mode_of(&report), mode_of(&plain));
    }
}
