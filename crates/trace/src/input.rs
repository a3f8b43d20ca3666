//! Random access to the bytes of a trace file.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::TraceError;

/// The bytes of a trace file, readable at any offset. Clones share the file.
#[derive(Debug, Clone)]
pub struct Input {
    bytes: Arc<Bytes>,
    path: Arc<Path>,
    len: u64,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Memory(Vec<u8>),
}

/// Magic number of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

impl Input {
    /// Opens a plain or gzip-compressed file; `-` is standard input. Pipes and kernel files, which have no
    /// size, are copied to an unlinked temporary file.
    ///
    /// # Errors
    /// [`TraceError::Io`] if a system call fails, [`TraceError::Unsupported`] for a directory or a character device
    /// that is no terminal.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        if path.as_os_str() == "-" {
            let path = Path::new("standard input");
            let file = io::stdin().as_fd().try_clone_to_owned().map_err(TraceError::io(path, "open"))?;
            let mut file = File::from(file);
            // A file is read in place, unless part of it has been read already.
            if file.stream_position().is_ok_and(|position| position > 0) {
                return Self::copied(&mut file, path);
            }
            return Self::of_file(file, path);
        }
        let file = File::open(path).map_err(TraceError::io(path, "open"))?;
        let metadata = file.metadata().map_err(TraceError::io(path, "open"))?;
        // /dev/zero has no end; a terminal ends where its user says, and may be standard input by another name.
        if metadata.file_type().is_char_device() && !file.is_terminal() {
            let what = "it is a device; expected a trace file".into();
            return Err(TraceError::Unsupported { path: path.into(), what });
        }
        Self::of_file(file, path)
    }

    fn of_file(mut file: File, path: &Path) -> Result<Self, TraceError> {
        let metadata = file.metadata().map_err(TraceError::io(path, "open"))?;
        // Files of tracefs have a size of 0.
        if metadata.is_file() && metadata.len() > 0 {
            let mut magic = [0; 2];
            if file.read_at(&mut magic, 0).is_ok_and(|count| count == 2) && magic == GZIP {
                return Self::copied(&mut flate2::read::MultiGzDecoder::new(file), path);
            }
            return Ok(Self { bytes: Arc::new(Bytes::File(file)), path: path.into(), len: metadata.len() });
        }
        if metadata.is_dir() {
            let what = "it is a directory; expected a trace file".into();
            return Err(TraceError::Unsupported { path: path.into(), what });
        }
        Self::copied(&mut file, path)
    }

    /// Copies what `from` reads to an unlinked temporary file, and opens it as [`open`](Self::open) does a file. `path` appears in
    /// error messages.
    ///
    /// # Errors
    /// [`TraceError::Io`] if the copy fails.
    pub fn copy(from: &mut dyn Read, path: &Path) -> Result<Self, TraceError> {
        Self::of_file(spool(from).map_err(TraceError::io(path, "copy"))?, path)
    }

    /// Wraps bytes in memory; `name` appears in error messages.
    pub fn memory(bytes: Vec<u8>, name: &str) -> Self {
        let len = bytes.len() as u64;
        Self { bytes: Arc::new(Bytes::Memory(bytes)), path: PathBuf::from(name).into(), len }
    }

    /// Copies what `from` reads, of any format.
    fn copied(from: &mut dyn Read, path: &Path) -> Result<Self, TraceError> {
        let spooled = spool(from).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (len, file) = spooled.map_err(TraceError::io(path, "copy"))?;
        Ok(Self { bytes: Arc::new(Bytes::File(file)), path: path.into(), len })
    }

    /// Returns the path for error messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// [`TraceError::Io`] if the read fails.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize, TraceError> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset.saturating_add(done as u64);
            let count = match &*self.bytes {
                Bytes::Memory(bytes) => {
                    let rest = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
                    let count = rest.len().min(buf.len() - done);
                    buf[done..done + count].copy_from_slice(&rest[..count]);
                    count
                }
                Bytes::File(file) => match file.read_at(&mut buf[done..], at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => result.map_err(TraceError::io(&self.path, "read"))?,
                },
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    /// Reads exactly `len` bytes at `offset`. Checks the file's size before it allocates.
    ///
    /// # Errors
    /// [`TraceError::Format`] if the file ends earlier.
    pub fn read_exact_at(&self, offset: u64, len: u64, what: &str) -> Result<Vec<u8>, TraceError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let what = format!(
                "{what} of {len} bytes exceeds the file's {:#x} bytes: the file is truncated",
                self.len
            );
            return Err(self.format_error(offset, what));
        }
        let len =
            usize::try_from(len).map_err(|_| self.format_error(offset, format!("{what} is too large")))?;
        let mut bytes = vec![0; len];
        let count = self.read_at(offset, &mut bytes)?;
        if count < bytes.len() {
            return Err(self.format_error(
                offset + count as u64,
                format!("{what} is truncated: the file shrank while it was read"),
            ));
        }
        Ok(bytes)
    }

    /// Returns a [`TraceError::Format`] for this file.
    pub fn format_error(&self, offset: u64, what: impl Into<String>) -> TraceError {
        TraceError::Format { path: self.path.to_path_buf(), offset, what: what.into() }
    }
}

/// Copies what `from` reads to an unlinked temporary file.
fn spool(from: &mut dyn Read) -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(from, &mut file)?;
    file.rewind()?;
    Ok(file)
}
