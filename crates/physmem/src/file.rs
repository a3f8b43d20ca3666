//! Files read by offset: plain ones here, flattened ones in the crate that knows their format.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::OpenError;

/// Bytes that can be read at any offset, by many threads at once.
pub trait ReadAt: Send + Sync {
    /// Reads up to `buf.len()` bytes at `offset`; 0 at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Bytes in the file.
    fn size(&self) -> u64;

    /// What to call it in messages.
    fn path(&self) -> &Path;

    /// Device and inode, to recognise the file by.
    fn identity(&self) -> (u64, u64);

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

/// A file of the system.
#[derive(Debug)]
pub struct PlainFile {
    file: File,
    path: PathBuf,
    size: u64,
    identity: (u64, u64),
}

impl PlainFile {
    /// Opens `path` for reading.
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let fail = |action| move |source| OpenError::Io { path: path.to_owned(), action, source };
        let file = File::open(path).map_err(fail("open"))?;
        let meta = file.metadata().map_err(fail("examine"))?;
        if meta.is_dir() {
            return Err(OpenError::Unsupported {
                path: path.to_owned(),
                what: "this is a directory; name a vmcore or a dump".into(),
            });
        }
        Ok(Self { file, path: path.to_owned(), size: meta.len(), identity: (meta.dev(), meta.ino()) })
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

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}
