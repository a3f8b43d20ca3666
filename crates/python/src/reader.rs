//! A reader of memory with a cache, for one thread at a time.

use std::ops::Range;
use std::sync::Arc;

use pagehaul_kernel::TranslateError;
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, ReadError, View};
use pyo3::Python;
use self_cell::self_cell;

use crate::cache::PageCache;
use crate::errors::ReadFailure;
use crate::opened::{Opened, Space};

/// Reads of this size and larger neither use the cache nor fill it.
const LARGE: usize = 64 << 10;

self_cell! {
    /// A view and what it reads from.
    pub(crate) struct Reader {
        owner: Arc<Opened>,
        #[not_covariant]
        dependent: CachedView,
    }
}

/// A view with a cache in front. Its caller holds the GIL, which it releases while it reads a file.
struct CachedView<'a> {
    inner: Box<dyn View + 'a>,
    cache: PageCache,
}

impl Reader {
    pub(crate) fn open(opened: Arc<Opened>, cache_bytes: usize) -> Self {
        Self::new(opened, |opened| CachedView {
            inner: opened.source.memory().view(),
            cache: PageCache::new(cache_bytes),
        })
    }

    /// Fills `buf` from a physical address.
    pub(crate) fn physical(&mut self, paddr: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        self.with_dependent_mut(|_, view| Ok(view.read(paddr, buf)?))
    }

    /// Fills `buf` from a kernel virtual address. The direct map is translated by subtraction: the dump may lack its page tables.
    pub(crate) fn kernel(&mut self, py: Python<'_>, vaddr: u64, buf: &mut [u8]) -> Result<(), ReadFailure> {
        self.with_dependent_mut(|opened, view| {
            let space = opened.space(py)?;
            let (mut at, mut rest) = (vaddr, buf);
            while !rest.is_empty() {
                let (paddr, len) = locate(space, view, at)?;
                let len = usize::try_from(len).unwrap_or(usize::MAX).min(rest.len());
                let (piece, later) = rest.split_at_mut(len);
                view.read(paddr, piece).map_err(|source| TranslateError::Contents {
                    vaddr: at,
                    paddr,
                    source,
                })?;
                rest = later;
                if !rest.is_empty() {
                    at = at.checked_add(len as u64).ok_or(TranslateError::NotCanonical { vaddr })?;
                }
            }
            Ok(())
        })
    }

    /// Returns the physical address of a kernel virtual address.
    pub(crate) fn translate(&mut self, py: Python<'_>, vaddr: u64) -> Result<u64, ReadFailure> {
        self.with_dependent_mut(|opened, view| Ok(locate(opened.space(py)?, view, vaddr)?.0))
    }
}

/// Returns the physical address, and how many bytes from there are contiguous.
fn locate(space: &Space, view: &mut dyn View, vaddr: u64) -> Result<(u64, u64), TranslateError> {
    let found = match space.direct_map.extent(vaddr) {
        Some(extent) => extent,
        None => space.tables.translator().translate(view, vaddr)?,
    };
    Ok((found.paddr, found.len.max(1)))
}

impl View for CachedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        // A reader of page tables or of a page's rest: `read` is what counts.
        self.inner.window(paddr, len)
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        self.inner.will_need(ranges);
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        self.inner.end_of_hole(paddr)
    }

    fn take_fault(&mut self) -> bool {
        self.inner.take_fault()
    }

    fn read(&mut self, paddr: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        if buf.len() >= LARGE {
            return read_file(self.inner.as_mut(), paddr, buf);
        }
        let (mut at, mut rest) = (paddr, buf);
        while !rest.is_empty() {
            let (number, inside) = (at >> PAGE_SHIFT, at as usize % PAGE_SIZE);
            let (piece, later) = rest.split_at_mut(rest.len().min(PAGE_SIZE - inside));
            self.read_in_page(number, inside, piece)?;
            rest = later;
            if !rest.is_empty() {
                at = at.checked_add(piece.len() as u64).ok_or(ReadError::NotPresent { paddr })?;
            }
        }
        Ok(())
    }
}

impl CachedView<'_> {
    fn read_in_page(&mut self, number: u64, inside: usize, piece: &mut [u8]) -> Result<(), ReadError> {
        let Self { inner, cache } = self;
        let range = inside..inside + piece.len();
        if let Some(bytes) = cache.get(number).and_then(|page| page.get(range.clone())) {
            piece.copy_from_slice(bytes);
            return Ok(());
        }
        let paddr = number << PAGE_SHIFT;
        if cache.fill(number, |page| read_file(inner.as_mut(), paddr, page)).is_err() {
            // A segment may begin or end inside the page.
            return read_file(inner.as_mut(), paddr + inside as u64, piece);
        }
        let bytes = cache.get(number).and_then(|page| page.get(range)).unwrap_or_default();
        piece.copy_from_slice(bytes);
        Ok(())
    }
}

/// Reads without the GIL.
fn read_file(view: &mut (dyn View + '_), paddr: u64, buf: &mut [u8]) -> Result<(), ReadError> {
    Python::attach(|py| {
        py.detach(|| {
            view.read(paddr, buf)?;
            if view.take_fault() {
                let reason = "the file became shorter or its disk failed".into();
                return Err(ReadError::Damaged { paddr, reason });
            }
            Ok(())
        })
    })
}
