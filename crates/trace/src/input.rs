//! A recorded file's bytes.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::TraceError;

/// A file to read at any position; cheap to share.
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

/// Begins what gzip packed.
const GZIP: [u8; 2] = [0x1f, 0x8b];

impl Input {
    /// Opens a file, packed with gzip or not; `-` is standard input. What is no file with a size, as pipes and the kernel's
    /// own files, is kept in a nameless temporary file.
    ///
    /// # Errors
    /// [`TraceError::Io`] if the system refuses.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        if path.as_os_str() == "-" {
            let path = Path::new("standard input");
            let file = io::stdin().as_fd().try_clone_to_owned().map_err(TraceError::io(path, "open"))?;
            let mut file = File::from(file);
            // A file is read where it is, unless someone has read some of it.
            if file.stream_position().is_ok_and(|position| position > 0) {
                return Self::spool(&mut file, path);
            }
            return Self::of_file(file, path);
        }
        Self::of_file(File::open(path).map_err(TraceError::io(path, "open"))?, path)
    }

    fn of_file(mut file: File, path: &Path) -> Result<Self, TraceError> {
        let metadata = file.metadata().map_err(TraceError::io(path, "open"))?;
        // Files of tracefs say that they are empty.
        if metadata.is_file() && metadata.len() > 0 {
            let mut magic = [0; 2];
            if file.read_at(&mut magic, 0).is_ok_and(|count| count == 2) && magic == GZIP {
                return Self::spool(&mut flate2::read::MultiGzDecoder::new(file), path);
            }
            return Ok(Self { bytes: Arc::new(Bytes::File(file)), path: path.into(), len: metadata.len() });
        }
        if metadata.is_dir() {
            let what = "it is a folder; expected a recorded trace or text".into();
            return Err(TraceError::Unsupported { path: path.into(), what });
        }
        Self::spool(&mut file, path)
    }

    /// Bytes in memory, under a name for messages.
    pub fn memory(bytes: Vec<u8>, name: &str) -> Self {
        let len = bytes.len() as u64;
        Self { bytes: Arc::new(Bytes::Memory(bytes)), path: PathBuf::from(name).into(), len }
    }

    /// What comes out of a pipe, to its end.
    fn spool(from: &mut dyn Read, path: &Path) -> Result<Self, TraceError> {
        let mut spool = || -> io::Result<(File, u64)> {
            let mut file = tempfile::tempfile()?;
            let len = io::copy(from, &mut file)?;
            file.rewind()?;
            Ok((file, len))
        };
        let (file, len) = spool().map_err(TraceError::io(path, "keep a copy of"))?;
        Ok(Self { bytes: Arc::new(Bytes::File(file)), path: path.into(), len })
    }

    /// Its name, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// It has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end.
    ///
    /// # Errors
    /// [`TraceError::Io`] if the system refuses.
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

    /// Exactly `len` bytes at `offset`.
    ///
    /// # Errors
    /// [`TraceError::Format`] if the file ends before; nothing is allocated then.
    pub fn exactly(&self, offset: u64, len: u64, what: &str) -> Result<Vec<u8>, TraceError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let what = format!(
                "{what} of {len} bytes reaches beyond the file's end at {:#x}: the file is cut",
                self.len
            );
            return Err(self.fault(offset, what));
        }
        let len = usize::try_from(len).map_err(|_| self.fault(offset, format!("{what} is too large")))?;
        let mut bytes = vec![0; len];
        let count = self.read_at(offset, &mut bytes)?;
        if count < bytes.len() {
            return Err(self.fault(offset + count as u64, format!("{what} is cut: the file became shorter")));
        }
        Ok(bytes)
    }

    /// An error in this file.
    pub fn fault(&self, offset: u64, what: impl Into<String>) -> TraceError {
        TraceError::Format { path: self.path.to_path_buf(), offset, what: what.into() }
    }
}
