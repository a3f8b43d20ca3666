//! What all users of a dump share.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagehaul_images::ImageError;
use pagehaul_physmem::MapPolicy;
use pagehaul_physmem::file::shown;
use pyo3::Python;

use crate::errors::ReadFailure;
use crate::opened::Opened;
use crate::reader::Reader;

/// A dump and its idle readers.
pub(crate) struct Shared {
    paths: Vec<PathBuf>,
    cache_bytes: usize,
    /// `None` once the dump is closed. Locked only with the GIL, so that no fork leaves it locked.
    open: Mutex<Option<Open>>,
}

/// What holds the files. A reader that is in use does so until its call returns.
struct Open {
    opened: Arc<Opened>,
    idle: Vec<Reader>,
}

impl Shared {
    pub(crate) fn open(paths: &[PathBuf], cache_bytes: usize) -> Result<Self, ImageError> {
        pagehaul_encryption::hold(None, paths).map_err(pagehaul_vmcore::SourceError::from)?;
        let source = pagehaul_images::open_all(paths, None, MapPolicy::default())?;
        let paths = source.paths().to_vec();
        let open = Open { opened: Arc::new(Opened::new(source)), idle: Vec::new() };
        Ok(Self { paths, cache_bytes, open: Mutex::new(Some(open)) })
    }

    pub(crate) fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn closed(&self) -> ReadFailure {
        ReadFailure::Closed(
            shown(self.paths.first().map_or(Path::new(""), PathBuf::as_path)).display().to_string(),
        )
    }

    /// Returns the open dump.
    pub(crate) fn opened(&self) -> Result<Arc<Opened>, ReadFailure> {
        self.lock().as_ref().map(|open| Arc::clone(&open.opened)).ok_or_else(|| self.closed())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_none()
    }

    /// Closes the files. Calls of other threads go on to their end.
    pub(crate) fn close(&self, py: Python<'_>) {
        let open = self.lock().take();
        // Unmapping a large file takes a while.
        py.detach(|| drop(open));
    }

    /// Calls `then` with a reader that no other thread uses: the GIL is released while a file is read.
    fn with_reader<T>(
        &self,
        _py: Python<'_>,
        then: impl FnOnce(&mut Reader) -> Result<T, ReadFailure>,
    ) -> Result<T, ReadFailure> {
        let idle = match self.lock().as_mut() {
            Some(open) => open.idle.pop().ok_or_else(|| Arc::clone(&open.opened)),
            None => return Err(self.closed()),
        };
        let mut reader = idle.unwrap_or_else(|opened| Reader::open(opened, self.cache_bytes));
        let result = then(&mut reader);
        if let Some(open) = self.lock().as_mut() {
            open.idle.push(reader);
        }
        result
    }

    /// Fills `buf` with physical memory.
    pub(crate) fn physical(&self, py: Python<'_>, paddr: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        self.with_reader(py, |reader| reader.physical(paddr, buf))
    }

    /// Fills `buf` with memory at a kernel virtual address.
    pub(crate) fn kernel(&self, py: Python<'_>, vaddr: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        self.with_reader(py, |reader| reader.kernel(py, vaddr, buf))
    }

    /// Returns the physical address of a kernel virtual address.
    pub(crate) fn translate(&self, py: Python<'_>, vaddr: u64) -> Result<u64, ReadFailure> {
        self.with_reader(py, |reader| reader.translate(py, vaddr))
    }
}
