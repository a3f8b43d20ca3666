use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The directory below which a machine's files are: `/`, or a copy of some of them.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

/// Far more than any file of a kdump set-up has.
const MOST: u64 = 1 << 20;

impl Root {
    /// Files below `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Where `path`, an absolute path of the machine, is.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file, up to 1 MiB. `None` if it does not exist or cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        use io::Read;
        let mut bytes = Vec::new();
        fs::File::open(self.path(path)).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The first word of a file, as a number.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        self.text(path)?.split_whitespace().next()?.parse().ok()
    }

    pub(crate) fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.resolve(path.as_ref()).is_some()
    }

    pub(crate) fn modified(&self, path: impl AsRef<Path>) -> Option<SystemTime> {
        fs::metadata(self.resolve(path.as_ref())?).ok()?.modified().ok()
    }

    /// The target of a symbolic link.
    pub(crate) fn link(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        fs::read_link(self.path(path)).ok()
    }

    /// Follows symbolic links below the root. `None` if nothing is at the end of them.
    pub fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let mut path = path.to_owned();
        // As many links as the kernel follows.
        for _ in 0..40 {
            match self.link(&path) {
                Some(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                None => return Some(self.path(&path)).filter(|path| path.exists()),
            }
        }
        None
    }

    /// Bytes that an unprivileged program can still write to the file system of `path`.
    pub(crate) fn free(&self, path: &Path) -> Option<u64> {
        let system = rustix::fs::statvfs(self.resolve(path)?).ok()?;
        system.f_bavail.checked_mul(system.f_frsize)
    }
}
