//! Files read by offset: plain ones here, flattened ones in the crate that knows their format.

use std::collections::HashMap;
use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::seek;
use rustix::io::Errno;

use crate::error::OpenError;

/// Bytes that can be read at any offset, by many threads at once.
pub trait ReadAt: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Bytes in the file.
    fn size(&self) -> u64;

    /// Returns its name in messages.
    fn path(&self) -> &Path;

    /// Returns device and inode, which identify the file.
    fn identity(&self) -> (u64, u64);

    /// Returns a range that starts with the first byte at or after `offset` that may be other than zero; empty, at the end, if none
    /// is. There may be more data behind it.
    fn next_data(&self, offset: u64) -> Range<u64> {
        offset.min(self.size())..self.size()
    }

    /// Returns whether a read may take the time of a request to a server.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns whether what is read is decrypted first, 64 KiB at a time.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Announces ranges that are read soon. A file of a server fetches them together, and blocks until they are here; others do
    /// nothing. What cannot be fetched fails when it is read.
    fn will_need(&self, _ranges: &[Range<u64>]) {}

    /// Fills `buf`, or fails with [`io::ErrorKind::UnexpectedEof`].
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.read_at(offset + done as u64, &mut buf[done..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl ReadAt for Box<dyn ReadAt> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buf)
    }

    fn size(&self) -> u64 {
        (**self).size()
    }

    fn path(&self) -> &Path {
        (**self).path()
    }

    fn identity(&self) -> (u64, u64) {
        (**self).identity()
    }

    fn next_data(&self, offset: u64) -> Range<u64> {
        (**self).next_data(offset)
    }

    fn is_remote(&self) -> bool {
        (**self).is_remote()
    }

    fn is_encrypted(&self) -> bool {
        (**self).is_encrypted()
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        (**self).will_need(ranges);
    }
}

/// Reads a file from its first byte to its last.
pub struct Sequential<F> {
    file: F,
    offset: u64,
}

impl<F: ReadAt> Sequential<F> {
    /// Starts at the first byte of `file`.
    pub fn new(file: F) -> Self {
        Self { file, offset: 0 }
    }
}

impl<F: ReadAt> Read for Sequential<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(self.offset, buf)?;
        self.offset += count as u64;
        Ok(count)
    }
}

/// Returns whether a path is the URL of an object on a server. A file of such a name is `./https:/...`.
pub fn is_url(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    [&b"https://"[..], b"http://", b"s3://"].iter().any(|scheme| path.starts_with(scheme))
}

/// Returns a path as messages show it: a URL without its user and password, and without the query, which may hold a signature.
pub fn shown(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_encoded_bytes();
    let Some((scheme, rest)) = path.to_str().and_then(|text| text.split_once("://")) else {
        // A URL that is not UTF-8 is refused, and does not have to be found.
        return if is_url(path) { PathBuf::from("the URL") } else { path.to_owned() };
    };
    if !is_url(path) && !bytes.starts_with(b"ssh://") {
        return path.to_owned();
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (user, host) =
        authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    // The user of ssh is part of the address; a password is not.
    let user = user.filter(|user| scheme == "ssh" && !user.contains(':'));
    let user = user.map_or_else(String::new, |user| format!("{user}@"));
    // Keys of S3 and paths of ssh have no query.
    let query = if scheme.starts_with("http") { rest.find(['?', '#']) } else { None };
    format!("{scheme}://{user}{host}{}", &rest[..query.unwrap_or(rest.len())]).into()
}

/// Files that were opened while this process had the right to, and why others could not be.
static HELD: OnceLock<HashMap<PathBuf, Result<File, Errno>>> = OnceLock::new();

/// Opens `paths` for a process that is about to give up the right to. Files here are then opened from what is open already: all that have
/// one path share an offset. URLs are skipped. Only
/// the first call has an effect.
pub fn hold_open(paths: &[PathBuf]) {
    let paths = paths.iter().filter(|path| !is_url(path));
    HELD.get_or_init(|| paths.map(|path| (path.clone(), open_now(path).map_err(errno))).collect());
}

fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::INVAL)
}

/// A file of the system.
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    path: PathBuf,
    size: u64,
    identity: (u64, u64),
    /// Whether holes of the file are zeros.
    has_holes: bool,
}

/// File systems whose seeks do not find zeros: files of /proc have no blocks, and holes of a mounted dump may be excluded
/// pages (`FUSE_SUPER_MAGIC`, `include/uapi/linux/magic.h`).
const NO_HOLES: [rustix::fs::FsWord; 2] = [rustix::fs::PROC_SUPER_MAGIC, 0x6573_5546];

/// Bytes that one seek speaks for. The next hole is not looked for: tmpfs looks at every page on the way.
const DATA_STEP: u64 = 16 << 20;

/// Opens a regular file for reading. Fails at once for pipes, terminals and other devices, whose opening or reading would wait
/// for another process.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}; name a file", why_not(kind))))
}

/// Opens a file. O_NONBLOCK keeps the opening of a FIFO without a writer from blocking. It does not matter for files.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    match HELD.get().and_then(|held| held.get(path)) {
        Some(Ok(file)) => file.try_clone(),
        Some(Err(errno)) => Err((*errno).into()),
        None => open_now(path),
    }
}

fn open_now(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Says of a kernel's file that is not there when it is.
fn explained(path: &Path, error: io::Error) -> io::Error {
    let when = match path.to_str() {
        Some("/proc/kcore") if error.kind() == io::ErrorKind::PermissionDenied => {
            let why = "the running kernel's memory is for root with CAP_SYS_RAWIO, and not where the kernel is locked down \
                       (/sys/kernel/security/lockdown)";
            return io::Error::new(error.kind(), format!("{error}: {why}"));
        }
        _ if error.kind() != io::ErrorKind::NotFound => return error,
        Some("/proc/vmcore") => {
            "it exists only in the capture kernel that runs after a crash (`pagehaul kdump check` says whether one would)"
        }
        Some("/proc/kcore") => "it exists in kernels with CONFIG_PROC_KCORE, and containers may hide it",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("no such file: {when}"))
}

/// Returns why what is not a file cannot be read.
fn why_not(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "this is a directory"
    } else if kind.is_fifo() {
        "this is a pipe, but it is read in any order"
    } else if kind.is_block_device() {
        "this is a disk"
    } else {
        "this is neither a file nor a block device"
    }
}

impl PlainFile {
    /// Opens a regular file or a block device for reading. Fails at once for pipes and terminals, whose opening or reading
    /// would wait for another process.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        // A URL that nothing here reads may hold a password.
        let fail = |action| move |source| OpenError::Io { path: shown(path), action, source };
        let mut file = open_without_waiting(path).map_err(|error| fail("open")(explained(path, error)))?;
        let meta = file.metadata().map_err(fail("examine"))?;
        let kind = meta.file_type();
        let size = if kind.is_file() {
            meta.len()
        } else if kind.is_block_device() {
            file.seek(SeekFrom::End(0)).map_err(fail("find the size of"))?
        } else {
            let or = if kind.is_dir() { ", or the records of pstore in it" } else { "" };
            let what = format!("{}; name a vmcore or a dump{or}", why_not(kind));
            return Err(OpenError::Unsupported { path: path.to_owned(), what });
        };
        Ok(Self::of(file, path, size, &meta))
    }

    /// Opens a regular file for reading, as [`open_regular`] does.
    pub fn open_regular(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let meta = file.metadata()?;
        Ok(Self::of(file, path, meta.len(), &meta))
    }

    fn of(file: File, path: &Path, size: u64, meta: &Metadata) -> Self {
        let has_holes = rustix::fs::fstatfs(&file).is_ok_and(|system| !NO_HOLES.contains(&system.f_type));
        Self { file, path: path.to_owned(), size, identity: (meta.dev(), meta.ino()), has_holes }
    }

    /// Opens the same path again.
    pub(crate) fn reopen(&self) -> io::Result<Self> {
        Ok(Self { file: File::open(&self.path)?, path: self.path.clone(), ..*self })
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl ReadAt for PlainFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn next_data(&self, offset: u64) -> Range<u64> {
        if !self.has_holes {
            return offset.min(self.size)..self.size;
        }
        // Reads use explicit offsets, so moving the file offset is harmless.
        let start = match seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => self.size,
            // File systems without holes, devices.
            Err(_) => return offset.min(self.size)..self.size,
        };
        start.min(self.size)..start.saturating_add(DATA_STEP).min(self.size)
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_urls_are_not_shown() {
        for (path, expected) in [
            ("https://host/dump?X-Amz-Signature=1", "https://host/dump"),
            ("https://user:secret@host:80/dump#1", "https://host:80/dump"),
            ("http://user:a@b@host?x=/", "http://host"),
            ("s3://KEY:SECRET@bucket/a?b", "s3://bucket/a?b"),
            ("s3://bucket/a@b", "s3://bucket/a@b"),
            ("ssh://user:secret@host/dump", "ssh://host/dump"),
            ("ssh://user@host:2/dump@x", "ssh://user@host:2/dump@x"),
            ("./https://a@b?c", "./https://a@b?c"),
            ("ftp://a@b", "ftp://a@b"),
        ] {
            assert_eq!(shown(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn memory_of_the_running_kernel_that_may_not_be_read_is_explained() {
        for errno in [libc::EACCES, libc::EPERM] {
            let error = || io::Error::from_raw_os_error(errno);
            let said = explained(Path::new("/proc/kcore"), error()).to_string();
            assert!(said.contains("root") && said.contains("locked down"), "{said}");
            assert_eq!(explained(Path::new("dump"), error()).raw_os_error(), Some(errno));
        }
    }

    #[test]
    fn pipes_and_directories_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for (path, what) in [(pipe.as_path(), "a pipe"), (directory.path(), "a directory")] {
            let error = PlainFile::open(path).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
        let error = PlainFile::open(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(error.contains("neither a file nor a block device"), "{error}");
    }
}
