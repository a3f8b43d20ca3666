//! What all users of a dump share.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::{Source, SourceError};
use pyo3::Python;

use crate::errors::ReadFailure;
use crate::opened::Opened;
use crate::reader::Reader;

/// A dump and its idle readers.
pub(crate) struct Shared {
    pub(crate) opened: Arc<Opened>,
    cache_bytes: usize,
    /// Locked only with the GIL, so that no fork leaves it locked.
    idle: Mutex<Vec<Reader>>,
}

impl Shared {
    pub(crate) fn open(paths: &[PathBuf], cache_bytes: usize) -> Result<Self, SourceError> {
        let source = Source::open_all(paths, MapPolicy::default())?;
        let opened = Arc::new(Opened::new(source));
        Ok(Self { opened, cache_bytes, idle: Mutex::default() })
    }

    /// Calls `then` with a reader that no other thread uses: the GIL is released while a file is read.
    fn with_reader<T>(&self, _py: Python<'_>, then: impl FnOnce(&mut Reader) -> T) -> T {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut reader = idle.unwrap_or_else(|| Reader::open(Arc::clone(&self.opened), self.cache_bytes));
        let result = then(&mut reader);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
        result
    }

    /// Fills `buf` with physical memory.
    pub(crate) fn physical(&self, py: Python<'_>, paddr: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        self.with_reader(py, |reader| reader.physical(paddr, buf))
    }

    /// Fills `buf` with memory at a kernel virtual address.
    pub(crate) fn kernel(&self, py: Python<'_>, vaddr: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        let space = self.opened.space(py)?;
        self.with_reader(py, |reader| reader.kernel(space, vaddr, buf))
    }

    /// Returns the physical address of a kernel virtual address.
    pub(crate) fn translate(&self, py: Python<'_>, vaddr: u64) -> Result<u64, ReadFailure> {
        let space = self.opened.space(py)?;
        self.with_reader(py, |reader| reader.translate(space, vaddr))
    }

    /// Returns whether kernel virtual addresses can be translated.
    pub(crate) fn has_page_tables(&self, py: Python<'_>) -> bool {
        self.opened.space(py).is_ok()
    }
}
