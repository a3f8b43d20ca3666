//! Asynchronous write protection by userfaultfd: the kernel answers the faults itself, and records which pages were written
//! to (Linux 6.7, commit d61ea1cb0095, "userfaultfd: UFFD_FEATURE_WP_ASYNC").
//!
//! All marks go away with the descriptor, so also when this program is killed.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// `UFFDIO_API`, `UFFDIO_REGISTER` and `UFFDIO_WRITEPROTECT` of include/uapi/linux/userfaultfd.h.
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const WRITEPROTECT: libc::c_ulong = 0xc018_aa06;
/// `UFFD_API`.
const VERSION: u64 = 0xaa;
/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`, `UFFD_FEATURE_WP_UNPOPULATED` (without it PAGEMAP_SCAN protects nothing) and
/// `UFFD_FEATURE_WP_ASYNC`.
const FEATURES: u64 = 1 | 1 << 13 | 1 << 15;
/// `UFFDIO_REGISTER_MODE_WP`.
const MODE_WP: u64 = 1 << 1;
/// Bytes whose protection is removed at a time, so that the process never waits long for its page tables.
const STEP: u64 = 32 << 20;

/// A descriptor that tracks writes to the memory of the process that opened it.
pub(super) struct Userfault(OwnedFd);

impl Userfault {
    /// Sets up a new userfaultfd. Fails on kernels before 6.7.
    pub(super) fn new(descriptor: OwnedFd) -> io::Result<Self> {
        let this = Self(descriptor);
        this.control(API, &mut [VERSION, FEATURES, 0])?;
        Ok(this)
    }

    /// One that was set up before.
    pub(super) fn again(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// The descriptor.
    pub(super) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Starts tracking a mapping. No page is protected yet.
    pub(super) fn register(&self, range: &Range<u64>) -> io::Result<()> {
        self.control(REGISTER, &mut [range.start, range.end - range.start, MODE_WP, 0])
    }

    /// Removes the protection of a mapping.
    pub(super) fn release(&self, range: &Range<u64>) {
        let mut start = range.start;
        while start < range.end {
            let length = STEP.min(range.end - start);
            // It fails where the mapping is gone, and with it the protection.
            let _ = self.control(WRITEPROTECT, &mut [start, length, 0]);
            start += length;
        }
    }

    fn control<const N: usize>(&self, request: libc::c_ulong, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: the number of words is that of the request's struct, whose fields all have 64 bits.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, words.as_mut_ptr()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
