use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pagehaul_physmem::file::ReadAt;
use pagehaul_vmcore::sums::{Growing, Sums, SumsError};

use super::{Sink, WriteError};
use crate::CaptureError;

/// A file being written, which can be read back while it is.
#[derive(Debug, Clone)]
pub(crate) struct FileSink {
    file: Arc<File>,
    path: PathBuf,
    /// The same file, past the page cache: a capture kernel has no memory to spare for one, and copying into it costs
    /// more than compressing. None where the file system refuses.
    direct: Option<Arc<File>>,
    /// Checksums of what is written, where they are wanted.
    sums: Option<Arc<Mutex<Growing>>>,
    /// A file, not a disk: it was empty at first, has holes and can be cut.
    regular: bool,
    /// Whether this capture made the file, rather than emptying one that existed.
    created: bool,
}

/// Refuses a file that exists unless `overwrite`, and always one that is being read (`sources`: device and inode).
pub(crate) fn admit(path: &Path, overwrite: bool, sources: &[(u64, u64)]) -> Result<(), CaptureError> {
    match std::fs::metadata(path) {
        Ok(found) => {
            if sources.contains(&(found.dev(), found.ino())) {
                return Err(CaptureError::Refused(format!(
                    "{} is the source itself; name another output",
                    path.display()
                )));
            }
            if found.is_dir() {
                return Err(CaptureError::Refused(format!(
                    "{0} is a folder; name a file, such as {0}/vmcore",
                    path.display()
                )));
            }
            if !found.is_file() && !found.file_type().is_block_device() {
                return Err(CaptureError::Refused(format!(
                    "{} is neither a file nor a disk; use `-` as the output to write a flattened stream to a pipe, \
                     or --dry-run to write nothing",
                    path.display()
                )));
            }
            if !overwrite {
                return Err(CaptureError::Refused(format!(
                    "{} exists; remove it, or replace it with --force",
                    path.display()
                )));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(CaptureError::Output { path: path.to_owned(), action: "examine", source });
        }
    }
    Ok(())
}

/// Makes the file of a dump, where [`admit`] allows it. One that exists is emptied and written in place: the disk of a
/// capture kernel often has no room for two dumps.
pub(crate) fn create(path: &Path, overwrite: bool, sources: &[(u64, u64)]) -> Result<FileSink, CaptureError> {
    let fail = |action| move |source| CaptureError::Output { path: path.to_owned(), action, source };
    admit(path, overwrite, sources)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    // A dump holds everything the machine knew: only its owner may read it.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let (opened, created) = match options.clone().create_new(true).open(path) {
        Err(error) if overwrite && error.kind() == io::ErrorKind::AlreadyExists => {
            (options.create(true).truncate(true).open(path), false)
        }
        opened => (opened, true),
    };
    let file = opened.map_err(fail("create"))?;
    let regular = file.metadata().map_err(fail("examine"))?.is_file();
    let direct = open_direct(path, &file);
    Ok(FileSink { file: Arc::new(file), direct, sums: None, path: path.to_owned(), regular, created })
}

/// What direct writes have to be multiples of: enough for every disk in use.
const GRAIN: usize = 4096;

/// Zeros written at a time.
const ZEROS: usize = 256 << 10;

/// Opens `path` once more for direct writes, and makes sure that it is still `file`.
fn open_direct(path: &Path, file: &File) -> Option<Arc<File>> {
    let mut options = OpenOptions::new();
    options.write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_DIRECT);
    let direct = options.open(path).ok()?;
    let (one, other) = (direct.metadata().ok()?, file.metadata().ok()?);
    ((one.dev(), one.ino()) == (other.dev(), other.ino())).then(|| Arc::new(direct))
}

/// Writes all of `bytes`, or says how many of them were.
fn write_all(file: &File, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&bytes[written..], offset + written as u64) {
            Ok(0) => return Err(WriteError { written, error: io::ErrorKind::WriteZero.into() }),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(WriteError { written, error }),
        }
    }
    Ok(())
}

/// A nameless file beside `path`, for what has to be kept while a dump is written.
pub(crate) fn spool(path: &Path) -> Result<FileSink, CaptureError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let file = tempfile::tempfile_in(folder).map_err(|source| CaptureError::Output {
        path: folder.to_owned(),
        action: "make a temporary file in",
        source,
    })?;
    Ok(FileSink {
        file: Arc::new(file),
        direct: None,
        sums: None,
        path: folder.join("(temporary bitmap)"),
        regular: true,
        created: false,
    })
}

impl FileSink {
    /// The same file, to be read.
    pub(crate) fn reader(&self) -> Arc<dyn ReadAt> {
        Arc::new(self.clone())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let aligned = offset.is_multiple_of(GRAIN as u64) && bytes.as_ptr().addr().is_multiple_of(GRAIN);
        let whole = if aligned { bytes.len() / GRAIN * GRAIN } else { 0 };
        let mut done = 0;
        if let Some(direct) = self.direct.as_deref().filter(|_| whole > 0) {
            match write_all(direct, offset, &bytes[..whole]) {
                Ok(()) => done = whole,
                Err(WriteError { written, error }) if error.kind() == io::ErrorKind::InvalidInput => {
                    // This file system wants it otherwise, and says so only now; or a short write ended between blocks.
                    done = written;
                    self.direct = None;
                }
                Err(error) => return Err(error),
            }
        }
        write_all(&self.file, offset + done as u64, &bytes[done..])
            .map_err(|error| WriteError { written: error.written + done, ..error })
    }

    /// Writes zeros over what a disk holds, or has it do so by itself.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), WriteError> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        // Since Linux 4.9; older kernels, and disks that cannot, say so.
        match fallocate(&*self.file, FallocateFlags::ZERO_RANGE, offset, length) {
            Ok(()) => {
                self.changed(offset, length);
                Ok(())
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::INVAL) => {
                let zeros = vec![0; usize::try_from(length).unwrap_or(ZEROS).min(ZEROS)];
                let mut done = 0;
                while done < length {
                    let piece = usize::try_from(length - done).unwrap_or(ZEROS).min(ZEROS);
                    self.write(offset + done, &zeros[..piece])?;
                    done += piece as u64;
                }
                Ok(())
            }
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// From now on, takes the checksums of what is written.
    pub(crate) fn sum_up(&mut self) {
        self.sums = Some(Arc::default());
    }

    /// Writes the checksums beside the file, where they are wanted.
    pub(crate) fn write_sums(&self) -> Result<(), SumsError> {
        let Some(sums) = &self.sums else { return Ok(()) };
        let growing = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
        let fail = |source| SumsError::Io { path: self.path.clone(), action: "read back", source };
        growing.finish(self).map_err(fail)?.write(&Sums::path_of(&self.path))
    }

    /// Removes a file in which there is nothing of use, if this capture made it. One that existed is left empty, so that
    /// nobody takes it for a dump.
    pub(crate) fn discard(&self) {
        if !self.regular {
            return;
        }
        let there = std::fs::symlink_metadata(&self.path);
        let is_ours = self.created && there.is_ok_and(|there| (there.dev(), there.ino()) == self.identity());
        // What cannot be removed or emptied is marked incomplete; there is nothing more to do.
        let _ = if is_ours { std::fs::remove_file(&self.path) } else { self.file.set_len(0) };
    }

    /// The open file.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Whether it is a file, with holes and an end of its own, not a disk.
    pub(crate) fn is_regular(&self) -> bool {
        self.regular
    }

    /// Gives the room of `length` bytes from `offset` on back to the file system.
    pub(crate) fn free(&self, offset: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        if !self.regular {
            return Ok(());
        }
        self.changed(offset, length);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&*self.file, flags, offset, length)?)
    }

    /// Sets the size of the file; what is past its end reads as zeros.
    pub(crate) fn set_size(&self, size: u64) -> io::Result<()> {
        if !self.regular {
            return Ok(());
        }
        self.changed(size, u64::MAX);
        self.file.set_len(size)
    }

    fn changed(&self, offset: u64, length: u64) {
        if let Some(sums) = &self.sums {
            sums.lock().unwrap_or_else(PoisonError::into_inner).changed(offset, length);
        }
    }
}

impl Sink for FileSink {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let result = self.write_at(offset, bytes);
        if let Some(sums) = &self.sums {
            sums.lock().unwrap_or_else(PoisonError::into_inner).wrote(offset, bytes, result.is_ok());
        }
        result
    }

    fn reserve(&mut self, offset: u64, length: u64) -> Result<(), WriteError> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        if length == 0 {
            return Ok(());
        }
        if !self.regular {
            return self.zero(offset, length);
        }
        match fallocate(&*self.file, FallocateFlags::empty(), offset, length) {
            // A hole does as well, except that a full disk is noticed later.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.file.sync_data().map_err(WriteError::from)
    }

    fn is_sparse(&self) -> bool {
        self.regular
    }

    fn can_rewrite(&self) -> bool {
        true
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl ReadAt for FileSink {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> (u64, u64) {
        self.file.metadata().map_or((0, 0), |meta| (meta.dev(), meta.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_was_made_here_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dump");
        create(&path, true, &[]).unwrap().discard();
        assert!(!path.exists());
        // One that existed has lost its contents, and must not pass for a dump.
        std::fs::write(&path, "old").unwrap();
        let mut file = create(&path, true, &[]).unwrap();
        file.write(0, b"new").unwrap();
        file.discard();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
        // Somebody else's, put there meanwhile.
        std::fs::remove_file(&path).unwrap();
        let file = create(&path, false, &[]).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "other").unwrap();
        file.discard();
        assert_eq!(std::fs::read(&path).unwrap(), b"other");
    }
}
