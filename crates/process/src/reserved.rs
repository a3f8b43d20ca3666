//! Anonymous memory of this program, reserved at once and allocated when it is written to.

use std::io;
use std::ptr::NonNull;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

/// A private anonymous mapping.
pub(crate) struct Reserved {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its mapping; only its users' raw pointers reach the memory.
unsafe impl Send for Reserved {}
// SAFETY: as above.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves `bytes`, rounded up to huge pages, which the kernel uses where it has them.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(HUGE).next_multiple_of(HUGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping; no other memory changes.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping just made. Without huge pages it is slower and as good.
        unsafe { libc::madvise(base, bytes, libc::MADV_HUGEPAGE) };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping is this struct's, and its users hold the struct as long as they use the memory.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
