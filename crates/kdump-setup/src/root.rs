//! A machine's files below a directory, which neither links nor `..` lead out of.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

/// Far more than any file of a kdump set-up has, `/proc/cpuinfo` of 8,192 CPUs included.
const MAX_BYTES: u64 = 64 << 20;
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;
/// How often a path is tried whose directories move meanwhile.
const MAX_TRIES: usize = 128;
/// How the names begin of files that replace others once they are whole; the number of the process and the file's name follow.
const TEMPORARY: &str = ".pagehaul-";

/// The directory below which a machine's files are: `/`, or a copy of some of them. Links in it lead to files below it, as they
/// do on the machine itself.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    /// `None` if nothing is known of the machine's files.
    directory: Option<Arc<OwnedFd>>,
    /// Whether the kernel resolves paths (openat2, Linux 5.6, fddb5d430ad9).
    has_openat2: bool,
}

/// A file and the directories above it.
struct Walked {
    /// Names from the root on, each with the file opened for its path only.
    steps: Vec<(OsString, OwnedFd)>,
}

impl Root {
    /// Files below `directory`. Fails if it cannot be opened.
    pub fn open(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let path = directory.into();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, directory: Some(Arc::new(opened)), has_openat2: true })
    }

    /// A machine of which no file is known.
    pub fn absent() -> Self {
        Self { path: PathBuf::new(), directory: None, has_openat2: true }
    }

    /// Where `path`, an absolute path of the machine, seems to be: for messages.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.path.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Whether these are the files of the machine that this runs on.
    pub fn is_this_machine(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The bytes of a regular file. Fails if it is none, or has more than 64 MiB.
    pub fn read(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 64 MiB"));
        }
        Ok(bytes)
    }

    /// Opens a regular file for reading. A pipe or device, which may wait or act when it is opened, is not opened.
    pub fn file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let path = path.as_ref();
        let found = self.open_at(path, OFlags::PATH)?;
        require_regular(&rustix::fs::fstat(&found)?)?;
        let opened = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        // It may have been replaced meanwhile.
        require_regular(&rustix::fs::fstat(&opened)?)?;
        Ok(opened.into())
    }

    /// The text of a file. `None` if it does not exist or cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(path).ok()?).into_owned())
    }

    /// The first word of a file, as a number.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.stat(path).is_some()
    }

    pub(crate) fn modified(&self, path: impl AsRef<Path>) -> Option<SystemTime> {
        let found = self.stat(path)?;
        let since =
            Duration::new(u64::try_from(found.st_mtime).ok()?, u32::try_from(found.st_mtime_nsec).ok()?);
        SystemTime::UNIX_EPOCH.checked_add(since)
    }

    /// What a path leads to.
    pub(crate) fn stat(&self, path: impl AsRef<Path>) -> Option<Stat> {
        rustix::fs::fstat(self.open_at(path.as_ref(), OFlags::PATH).ok()?).ok()
    }

    /// The target of a symbolic link.
    pub(crate) fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let link = self.open_at(path.as_ref(), OFlags::PATH | OFlags::NOFOLLOW).ok()?;
        read_link(&link, "").ok()
    }

    /// The path below the root that has no links in it. `None` if nothing is there.
    pub fn canonical(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let walked = self.walk(path.as_ref(), true).ok()?;
        let names = walked.steps.iter().map(|(name, _)| Path::new(name));
        Some([Path::new("/")].into_iter().chain(names).collect())
    }

    /// The names in a directory. Empty if it cannot be read.
    pub fn names(&self, directory: impl AsRef<Path>) -> Vec<OsString> {
        let opened = self.open_at(directory.as_ref(), OFlags::RDONLY | OFlags::DIRECTORY);
        let Some(entries) = opened.ok().and_then(|opened| rustix::fs::Dir::new(opened).ok()) else {
            return Vec::new();
        };
        let names = entries.flatten().map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        names.filter(|name| name != "." && name != "..").collect()
    }

    /// The file system of `path`.
    pub(crate) fn file_system(&self, path: impl AsRef<Path>) -> Option<rustix::fs::StatVfs> {
        rustix::fs::fstatvfs(self.open_at(path.as_ref(), OFlags::PATH).ok()?).ok()
    }

    /// Creates or replaces a regular file, which has its new contents or the old ones at any moment, on the disk, too. A link
    /// stays one, and the file that it leads to is replaced. Owner, mode and extended attributes are kept; missing directories
    /// are made. A new file is readable by its owner only if it is `private`.
    pub(crate) fn replace(&self, path: &Path, contents: &[u8], private: bool) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            self.create_directory(directory, 0)?;
        }
        let (directory, name) = self.place(path)?;
        let old = match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) => Some(old),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        old.as_ref().map_or(Ok(()), require_regular)?;
        let mode = Mode::from_raw_mode(if private || old.is_some() { 0o600 } else { 0o666 });
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut temporary = OsString::from(TEMPORARY);
        temporary.push(std::process::id().to_string());
        temporary.push("-");
        temporary.push(&name);
        // Left by a run that was killed and had the same number.
        let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        let mut file = File::from(rustix::fs::openat(&directory, &temporary, flags, mode)?);
        let write = || -> io::Result<()> {
            file.write_all(contents)?;
            if let Some(old) = &old {
                keep_attributes(&directory, &name, old, &file)?;
            }
            file.sync_all()?;
            Ok(rustix::fs::renameat(&directory, &temporary, &directory, &name)?)
        };
        let written = { write }();
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        }
        written?;
        Ok(rustix::fs::fsync(&directory)?)
    }

    /// Makes a directory, and locks it until the descriptor is closed. Fails with `WouldBlock` if another program has locked it for as
    /// long as `patience`.
    pub(crate) fn lock(&self, directory: &Path, patience: Duration) -> io::Result<OwnedFd> {
        use rustix::fs::{FlockOperation, flock};
        self.create_directory(directory, 0)?;
        let opened = self.open_at(directory, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let start = Instant::now();
        loop {
            match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) if start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                locked => return Ok(locked.map(|()| opened)?),
            }
        }
    }

    /// Removes what processes left that were killed while they replaced `path`. None may be doing that.
    pub(crate) fn remove_left_by(&self, path: &Path) {
        let Ok((directory, name)) = self.place(path) else { return };
        let Ok(entries) = rustix::fs::Dir::read_from(&directory) else { return };
        for entry in entries.flatten() {
            let number = entry.file_name().to_bytes().strip_prefix(TEMPORARY.as_bytes());
            let number = number.and_then(|rest| rest.strip_suffix(name.as_bytes())?.strip_suffix(b"-"));
            if number.is_some_and(|number| number.iter().all(u8::is_ascii_digit)) {
                let _ = rustix::fs::unlinkat(&directory, entry.file_name(), AtFlags::empty());
            }
        }
    }

    /// Fails where [`replace`](Self::replace) would, as far as that can be seen without writing.
    pub(crate) fn check_replace(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent()
            && !self.would_create(directory, 0)?
        {
            return Ok(());
        }
        let (directory, name) = self.place(path)?;
        match rustix::fs::statat(&directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(old) => {
                require_regular(&old)?;
                // Fails if the file is immutable, or a read-only mount of its own.
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                rustix::fs::openat(&directory, &name, flags, Mode::empty())?;
            }
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        is_writable(&directory)
    }

    /// Whether a directory is there. If not, fails unless it could be made.
    fn would_create(&self, path: &Path, links: usize) -> io::Result<bool> {
        match self.open_at(path, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound && links < MAX_LINKS => {}
            Err(error) => return Err(error),
        }
        if let Some(above) = path.parent()
            && self.would_create(above, links + 1)?
        {
            is_writable(&self.place(path)?.0)?;
        }
        Ok(false)
    }

    /// Removes a file, not a link to it.
    pub(crate) fn remove(&self, path: &Path) -> io::Result<()> {
        let (directory, name) = self.place(path)?;
        rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
        Ok(rustix::fs::fsync(&directory)?)
    }

    fn create_directory(&self, path: &Path, links: usize) -> io::Result<()> {
        match self.open_at(path, OFlags::PATH | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && links < MAX_LINKS => {}
            found => return found.map(drop),
        }
        if let Some(above) = path.parent() {
            self.create_directory(above, links + 1)?;
        }
        let (directory, name) = self.place(path)?;
        match rustix::fs::mkdirat(&directory, &name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The directory and the name at the end of a path's links, whether or not a file is there.
    fn place(&self, path: &Path) -> io::Result<(OwnedFd, OsString)> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(Errno::ISDIR.into());
            };
            let directory = self.open_at(above, OFlags::RDONLY | OFlags::DIRECTORY)?;
            match read_link(&directory, name) {
                Ok(target) => path = above.join(target),
                Err(Errno::INVAL | Errno::NOENT) => return Ok((directory, name.to_owned())),
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::LOOP.into())
    }

    /// Opens what a path leads to.
    fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let Some(root) = &self.directory else { return Err(Errno::NOENT.into()) };
        let flags = flags | OFlags::CLOEXEC;
        for _ in 0..MAX_TRIES {
            if !self.has_openat2 {
                break;
            }
            match rustix::fs::openat2(root.as_fd(), path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
                // A directory of the path moved.
                Err(Errno::AGAIN) => {}
                // Older kernels, and sandboxes that do not know the call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                opened => return Ok(opened?),
            }
        }
        let walked = self.walk(path, !flags.contains(OFlags::NOFOLLOW))?;
        let (name, above) = match walked.steps.as_slice() {
            [] => (OsStr::new("."), root.as_fd()),
            [(name, _)] => (name.as_os_str(), root.as_fd()),
            [.., (_, above), (name, _)] => (name.as_os_str(), above.as_fd()),
        };
        Ok(rustix::fs::openat(above, name, flags | OFlags::NOFOLLOW, Mode::empty())?)
    }

    /// Resolves a path name by name: `..` goes to the directory that was passed, never above the root.
    fn walk(&self, path: &Path, follow: bool) -> io::Result<Walked> {
        let Some(root) = &self.directory else { return Err(Errno::NOENT.into()) };
        let mut walked = Walked { steps: Vec::new() };
        let mut links = 0;
        // The next name is the last.
        let mut pending = components(path);
        while let Some(name) = pending.pop() {
            match name.as_bytes() {
                b"/" => walked.steps.clear(),
                b".." => drop(walked.steps.pop()),
                _ => {
                    let above = walked.steps.last().map_or(root.as_fd(), |(_, above)| above.as_fd());
                    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    let opened = rustix::fs::openat(above, &name, flags, Mode::empty())?;
                    let is_link = file_type(&rustix::fs::fstat(&opened)?) == FileType::Symlink;
                    if is_link && (follow || !pending.is_empty()) {
                        links += 1;
                        if links > MAX_LINKS {
                            return Err(Errno::LOOP.into());
                        }
                        pending.extend(components(&read_link(&opened, "")?));
                    } else {
                        walked.steps.push((name, opened));
                    }
                }
            }
        }
        Ok(walked)
    }
}

/// The names of a path, the first at the end.
fn components(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| component.as_os_str().to_owned();
    path.components().rev().filter(|of| *of != Component::CurDir).map(name).collect()
}

fn read_link(directory: &OwnedFd, name: impl AsRef<Path>) -> Result<PathBuf, Errno> {
    let target = rustix::fs::readlinkat(directory, name.as_ref(), Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.to_bytes())))
}

pub(crate) fn file_type(found: &Stat) -> FileType {
    FileType::from_raw_mode(found.st_mode)
}

fn is_writable(directory: &OwnedFd) -> io::Result<()> {
    use rustix::fs::Access;
    Ok(rustix::fs::accessat(directory, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?)
}

fn require_regular(found: &Stat) -> io::Result<()> {
    match file_type(found) {
        FileType::RegularFile => Ok(()),
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Gives a new file the owner, the mode and, as far as its file system takes them, the extended attributes of the one that it
/// replaces: SELinux labels and access control lists.
fn keep_attributes(directory: &OwnedFd, name: &OsStr, old: &Stat, file: &File) -> io::Result<()> {
    use rustix::fs::{Gid, Uid, XattrFlags, fchmod, fchown, fgetxattr, flistxattr, fsetxattr};
    fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    fchmod(file, Mode::from_raw_mode(old.st_mode & 0o7777))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(before) = rustix::fs::openat(directory, name, flags, Mode::empty()) else { return Ok(()) };
    let mut names = vec![0; 64 << 10];
    let length = flistxattr(&before, &mut names).unwrap_or(0);
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(name);
        let mut value = vec![0; 64 << 10];
        if let Ok(length) = fgetxattr(&before, name, &mut value) {
            let _ = fsetxattr(file, name, &value[..length], XattrFlags::empty());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    /// A directory with files in and next to it, and its two ways to resolve paths.
    fn roots() -> (TempDir, [Root; 2]) {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("etc/default")).unwrap();
        fs::create_dir_all(root.join("tmp")).unwrap();
        fs::write(root.join("etc/file"), "within").unwrap();
        fs::write(directory.path().join("file"), "outside").unwrap();
        let opened = Root::open(&root).unwrap();
        let walking = Root { has_openat2: false, ..opened.clone() };
        (directory, [opened, walking])
    }

    #[test]
    fn neither_links_nor_dots_lead_out() {
        let (directory, roots) = roots();
        let root = directory.path().join("root");
        let outside = directory.path().join("file");
        for (name, target) in [
            ("up", "../../../../../../../../../file".to_owned()),
            ("out", outside.display().to_string()),
            ("above", directory.path().display().to_string()),
            ("absolute", "/etc/file".to_owned()),
            ("relative", "../etc/./file".to_owned()),
            ("directory", "/etc".to_owned()),
            ("loop", "loop".to_owned()),
            ("chain", "relative".to_owned()),
            ("dangling", "nothing".to_owned()),
        ] {
            symlink(target, root.join("tmp").join(name)).unwrap();
        }
        for of in &roots {
            for path in [
                "/tmp/up",
                "/tmp/out",
                "/tmp/above/file",
                "/tmp/../../file",
                "/../file",
                "/tmp/loop",
                "/tmp/dangling",
            ] {
                assert!(of.read(path).is_err() && !of.exists(path) && of.canonical(path).is_none(), "{path}");
            }
            for path in [
                "/tmp/absolute",
                "/tmp/relative",
                "/tmp/directory/file",
                "/tmp/chain",
                "/../etc/file",
                "etc/file",
            ] {
                assert_eq!(of.read(path).unwrap(), b"within", "{path}");
                assert_eq!(of.canonical(path).unwrap(), Path::new("/etc/file"), "{path}");
            }
            assert_eq!(of.link("/tmp/directory").unwrap(), Path::new("/etc"));
            assert_eq!(of.link("/etc/file"), None);
            assert_eq!(of.names("/tmp/directory").len(), 2);
            assert_eq!(of.canonical("/").unwrap(), Path::new("/"));
        }
    }

    #[test]
    fn files_are_replaced_and_removed_below_the_root() {
        let (directory, roots) = roots();
        let root = directory.path().join("root");
        for of in &roots {
            for (name, target) in [
                ("a", "../../../../../../../../../file".to_owned()),
                ("b", directory.path().join("file").display().to_string()),
                ("c", "/etc/file".to_owned()),
                ("d", "/etc/new/x".to_owned()),
            ] {
                let link = root.join("tmp").join(name);
                let _ = fs::remove_file(&link);
                symlink(target, link).unwrap();
            }
            fs::set_permissions(root.join("etc/file"), fs::Permissions::from_mode(0o640)).unwrap();
            of.replace(Path::new("/tmp/c"), b"replaced", false).unwrap();
            assert_eq!(fs::read(root.join("etc/file")).unwrap(), b"replaced");
            assert_eq!(fs::metadata(root.join("etc/file")).unwrap().permissions().mode() & 0o777, 0o640);
            assert!(root.join("tmp/c").is_symlink());
            of.replace(Path::new("/tmp/a"), b"new", false).unwrap();
            assert_eq!(fs::read(root.join("file")).unwrap(), b"new");
            of.replace(Path::new("/../new/directory/x"), b"private", true).unwrap();
            let made = root.join("new/directory/x");
            assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o600);
            of.remove(Path::new("/tmp/a")).unwrap();
            of.remove(Path::new("/tmp/../../new/directory/x")).unwrap();
            assert!(!root.join("file").exists() && !made.exists());
            // The directory of the link's target does not exist.
            assert!(of.check_replace(Path::new("/tmp/b")).is_err());
            assert!(of.check_replace(Path::new("/tmp/d")).is_err());
            assert!(of.check_replace(Path::new("/tmp")).is_err());
            assert!(of.check_replace(Path::new("/tmp/d/below/x")).is_err());
            assert!(of.check_replace(Path::new("/tmp/c")).is_ok());
            assert!(of.check_replace(Path::new("/tmp/new/below/x")).is_ok());
            assert!(of.replace(Path::new("/tmp/b"), b"new", false).is_err());
            assert!(of.replace(Path::new("/tmp/d"), b"new", false).is_err());
            assert!(of.replace(Path::new("/tmp"), b"new", false).is_err());
            assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"outside");
            assert_eq!(of.names("/tmp").len(), 4, "no temporary file stays");
            fs::remove_dir_all(root.join("new")).unwrap();
            fs::write(root.join("etc/file"), "within").unwrap();
        }
    }

    #[test]
    fn pipes_and_devices_are_not_read() {
        let (directory, roots) = roots();
        let pipe = directory.path().join("root/pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        for of in &roots {
            let error = of.read("/pipe").unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file");
            assert!(of.replace(Path::new("/pipe"), b"x", false).is_err());
            assert!(of.read("/etc").is_err());
        }
        for has_openat2 in [true, false] {
            let of = Root { has_openat2, ..Root::open("/").unwrap() };
            assert!(of.read("/dev/zero").is_err());
            assert!(of.text("/proc/self/status").is_some_and(|text| text.starts_with("Name:")));
        }
    }

    #[test]
    fn large_files_are_read_whole_or_not_at_all() {
        let (directory, roots) = roots();
        let file = directory.path().join("root/large");
        fs::write(&file, vec![b'#'; 3 << 20]).unwrap();
        assert_eq!(roots[0].read("/large").unwrap().len(), 3 << 20);
        File::options().write(true).open(&file).unwrap().set_len(MAX_BYTES + 1).unwrap();
        assert_eq!(roots[0].read("/large").unwrap_err().to_string(), "it has more than 64 MiB");
    }

    #[test]
    fn nothing_is_below_an_absent_root() {
        let of = Root::absent();
        assert!(!of.exists("/etc") && of.read("/etc/passwd").is_err() && of.canonical("/").is_none());
    }
}
