//! Files and disks that dumps are written to.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pagehaul_physmem::file::ReadAt;
use pagehaul_run::BytesWritten;

use crate::checksums::{self, ChecksumError, Checksums, RunningChecksums};
use crate::error::WriteError;
use crate::new_file::{CreateOptions, Naming, NewFile, OutputError, Special};
use crate::output::Output;
use crate::write_meter::{WriteCosts, WriteMeter};

/// Direct writes are multiples of this: enough for every disk in use.
const DIRECT_IO_ALIGNMENT: usize = 4096;

/// Zeros written at a time.
const ZEROS: usize = 256 << 10;

/// A file or block device being written, which can be read back at the same time.
#[derive(Debug, Clone)]
pub struct OutputFile {
    file: Arc<NewFile>,
    /// The same file with O_DIRECT: a capture kernel has no memory to spare for the page cache, and copying into it
    /// costs more than compressing. `None` where the file system refuses.
    direct: Option<Arc<File>>,
    checksums: Option<Arc<Mutex<RunningChecksums>>>,
    overwrite: bool,
    /// Bytes of a disk. `None`: a file, which was empty at first, can have holes, and can be truncated.
    capacity: Option<u64>,
    bytes_written: BytesWritten,
    meter: WriteMeter,
}

/// How the file of a dump is created.
#[derive(Debug, Clone, Copy)]
pub struct DumpFileOptions<'a> {
    /// Whether a file that exists may be replaced, or a disk overwritten.
    pub overwrite: bool,
    /// Whether checksums are computed of what is written.
    pub checksums: bool,
    /// Device and inode of the files that are being read, which are never replaced.
    pub sources: &'a [(u64, u64)],
}

impl<'a> DumpFileOptions<'a> {
    /// A dump holds every secret of the machine: only its owner may read it.
    fn create(self) -> CreateOptions<'a> {
        CreateOptions {
            naming: Naming::AtOnce,
            overwrite: self.overwrite,
            special: Special::Disks,
            private: true,
            sources: self.sources,
        }
    }
}

impl OutputFile {
    /// Refuses a path that must not be written to, and changes nothing.
    pub fn check(path: &Path, options: DumpFileOptions<'_>) -> Result<(), OutputError> {
        if options.checksums {
            checksums::check(path, options.overwrite, options.sources)?;
        }
        NewFile::check(path, options.create())
    }

    /// Creates the file, where [`check`](Self::check) allows it, or opens the disk. Adds what is written to
    /// `bytes_written`.
    pub fn create(
        path: &Path,
        options: DumpFileOptions<'_>,
        bytes_written: BytesWritten,
    ) -> Result<Self, OutputError> {
        Self::check(path, options)?;
        let file = NewFile::create(path, options.create())?;
        let capacity = capacity(file.file()).map_err(OutputError::io(path, "examine"))?;
        if options.checksums && capacity.is_some() {
            return Err(OutputError::Refused(format!(
                "{} is a disk: checksums are a file next to the output, and a disk has no directory; omit --checksums",
                path.display()
            )));
        }
        if options.overwrite && capacity.is_none() {
            checksums::remove_replaced(path, options.sources);
        }
        let direct = open_direct(path, file.file());
        let checksums = options.checksums.then(Arc::default);
        let overwrite = options.overwrite;
        let meter = WriteMeter::default();
        Ok(Self { file: Arc::new(file), direct, checksums, overwrite, capacity, bytes_written, meter })
    }

    /// Creates an unnamed temporary file in the directory of `path`.
    pub fn temporary(path: &Path) -> Result<Self, OutputError> {
        Ok(Self {
            file: Arc::new(NewFile::temporary(path)?),
            direct: None,
            checksums: None,
            overwrite: false,
            capacity: None,
            bytes_written: BytesWritten::default(),
            meter: WriteMeter::default(),
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// The open file.
    pub fn file(&self) -> &File {
        self.file.file()
    }

    /// Returns the same file, for reading.
    pub fn reader(&self) -> Arc<dyn ReadAt> {
        Arc::new(self.clone())
    }

    /// Returns whether it is a file, which can have holes and be truncated, rather than a disk.
    pub fn is_regular(&self) -> bool {
        self.capacity.is_none()
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written.get()
    }

    /// Writes the checksums to `PATH.sums`, if they are enabled.
    pub fn write_checksums(&self) -> Result<(), ChecksumError> {
        let Some(checksums) = &self.checksums else { return Ok(()) };
        let running = std::mem::take(&mut *checksums.lock().unwrap_or_else(PoisonError::into_inner));
        let fail = |source| ChecksumError::Io { path: self.path().to_owned(), action: "read back", source };
        running.finish(self).map_err(fail)?.write(&Checksums::path_of(self.path()), self.overwrite)
    }

    /// Removes a file that holds nothing of use: see [`NewFile::discard`].
    pub fn discard(&self) {
        self.file.discard();
    }

    /// Returns the blocks of `length` bytes from `offset` to the file system.
    pub fn free(&self, offset: u64, length: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        if !self.is_regular() {
            return Ok(());
        }
        self.invalidate_checksums(offset, length);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.file(), flags, offset, length)?)
    }

    /// Sets the size of a file. Bytes past its previous end read as zeros.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        if !self.is_regular() {
            return Ok(());
        }
        self.invalidate_checksums(size, u64::MAX);
        self.file().set_len(size)
    }

    /// Writes `bytes`. Also returns how many of them went to the page cache.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> (Result<(), WriteError>, usize) {
        let aligned = offset.is_multiple_of(DIRECT_IO_ALIGNMENT as u64)
            && bytes.as_ptr().addr().is_multiple_of(DIRECT_IO_ALIGNMENT);
        let whole = if aligned { bytes.len() / DIRECT_IO_ALIGNMENT * DIRECT_IO_ALIGNMENT } else { 0 };
        let mut done = 0;
        if let Some(direct) = self.direct.as_deref().filter(|_| whole > 0) {
            match write_all(direct, offset, &bytes[..whole]) {
                Ok(()) => done = whole,
                Err((written, error)) if error.kind() == io::ErrorKind::InvalidInput => {
                    // This file system wants a larger alignment, or a short write ended between blocks.
                    done = written;
                    self.direct = None;
                }
                Err((written, source)) => return (Err(WriteError::Write { written, source }), 0),
            }
        }
        let result = write_all(self.file(), offset + done as u64, &bytes[done..])
            .map_err(|(written, source)| WriteError::Write { written: written + done, source });
        (result, bytes.len() - done)
    }

    /// Zeroes a range of a disk.
    fn zero(&mut self, offset: u64, length: u64) -> Result<(), WriteError> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        // Since Linux 4.9; older kernels, and disks that cannot, return an error.
        match fallocate(self.file(), FallocateFlags::ZERO_RANGE, offset, length) {
            Ok(()) => {
                self.invalidate_checksums(offset, length);
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

    fn invalidate_checksums(&self, offset: u64, length: u64) {
        if let Some(checksums) = &self.checksums {
            checksums.lock().unwrap_or_else(PoisonError::into_inner).changed(offset, length);
        }
    }
}

/// Returns the bytes of a disk, `None` for a file. The disk is written from its start.
fn capacity(mut file: &File) -> io::Result<Option<u64>> {
    if file.metadata()?.is_file() {
        return Ok(None);
    }
    // stat(2) has no size for devices.
    let size = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    Ok(Some(size))
}

/// Opens `path` again with O_DIRECT. Returns `None` if it is no longer `file`.
fn open_direct(path: &Path, file: &File) -> Option<Arc<File>> {
    let mut options = OpenOptions::new();
    options.write(true);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_DIRECT);
    let direct = options.open(path).ok()?;
    let (one, other) = (direct.metadata().ok()?, file.metadata().ok()?);
    ((one.dev(), one.ino()) == (other.dev(), other.ino())).then(|| Arc::new(direct))
}

/// Writes all of `bytes`. An error comes with the number of bytes written before it.
fn write_all(file: &File, offset: u64, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while written < bytes.len() {
        match file.write_at(&bytes[written..], offset + written as u64) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

impl Output for OutputFile {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let meter = self.meter.clone();
        let result = meter.measure_write(bytes.len(), || self.write_at(offset, bytes));
        if let Some(checksums) = &self.checksums {
            checksums.lock().unwrap_or_else(PoisonError::into_inner).wrote(offset, bytes, result.is_ok());
        }
        self.bytes_written.add(result.as_ref().map_or_else(WriteError::written, |()| bytes.len()) as u64);
        result
    }

    fn reserve(&mut self, offset: u64, length: u64) -> Result<(), WriteError> {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        if length == 0 {
            return Ok(());
        }
        if !self.is_regular() {
            return self.zero(offset, length);
        }
        match fallocate(self.file(), FallocateFlags::empty(), offset, length) {
            // A hole does as well, except that a full disk is noticed later.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        Self::set_size(self, size)
    }

    fn end(&self) -> u64 {
        ReadAt::size(self)
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.meter.measure_sync(|| self.file().sync_data()).map_err(WriteError::from)
    }

    fn is_sparse(&self) -> bool {
        self.is_regular()
    }

    fn can_rewrite(&self) -> bool {
        true
    }

    fn costs(&self) -> WriteCosts {
        self.meter.costs()
    }
}

impl ReadAt for OutputFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file().read_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.capacity.unwrap_or_else(|| self.file().metadata().map_or(0, |meta| meta.len()))
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn identity(&self) -> (u64, u64) {
        self.file().metadata().map_or((0, 0), |meta| (meta.dev(), meta.ino()))
    }
}
