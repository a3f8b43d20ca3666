//! Mappings filled with stamped pages, and the PFNs of these pages.

use crate::Result;
use lab_guest::Class;
use lab_guest::results::{Filled, Range, push_page};
use lab_guest::stamp::{self, Stamp};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Size of the transparent huge pages and of the HugeTLB pages used here, in bytes: PMD size with pages of 4 KiB, a
/// contiguous group with pages of 16 KiB.
pub const HUGE: usize = 2 << 20;

/// Returns the kernel's page size in bytes.
pub fn page_size() -> usize {
    // SAFETY: no memory is passed.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// A mapping without a destructor: its pages must exist when the kernel crashes.
pub struct Mapping {
    address: *mut u8,
    length: usize,
}

impl Mapping {
    /// Maps anonymous memory at a multiple of 2 MiB.
    pub fn anonymous(length: usize, extra_flags: i32) -> Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra_flags;
        if extra_flags & libc::MAP_HUGETLB != 0 {
            return Mapping::map(std::ptr::null_mut(), length, flags, -1);
        }
        // Reserve more than needed, then map over an aligned range in it.
        let wide = Mapping::map(std::ptr::null_mut(), length + HUGE, flags | libc::MAP_NORESERVE, -1)?;
        let start = (wide.address as usize).next_multiple_of(HUGE);
        Mapping::map(start as *mut u8, length, flags | libc::MAP_FIXED, -1)
    }

    /// Maps a file shared and writable.
    pub fn file(file: &File, length: usize) -> Result<Mapping> {
        Mapping::map(std::ptr::null_mut(), length, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(at: *mut u8, length: usize, flags: i32, fd: i32) -> Result<Mapping> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: MAP_FIXED is only used by `anonymous`, over a range it mapped itself, to which nothing else points.
        let address = unsafe { libc::mmap(at.cast(), length, protection, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(format!("mapping {} KiB: {}", length >> 10, io::Error::last_os_error()));
        }
        Ok(Mapping { address: address.cast(), length })
    }

    /// Calls madvise on the whole mapping.
    pub fn advise(&self, advice: i32) -> Result<()> {
        // SAFETY: the range is this mapping; none of the advices used here takes pages away from under a reference.
        let result = unsafe { libc::madvise(self.address.cast(), self.length, advice) };
        crate::system::check(result.into(), &format!("madvise({advice})")).map(drop)
    }

    /// Locks its pages with mlock.
    pub fn lock(&self) -> Result<()> {
        // SAFETY: the range is this mapping.
        crate::system::check(unsafe { libc::mlock(self.address.cast(), self.length) }.into(), "mlock")
            .map(drop)
    }

    /// Returns how many of its pages are resident, mapped by this program or not.
    pub fn resident(&self) -> Result<usize> {
        let mut pages = vec![0_u8; self.length.div_ceil(page_size())];
        // SAFETY: the range is this mapping, and a byte is written for each of its pages.
        let result = unsafe { libc::mincore(self.address.cast(), self.length, pages.as_mut_ptr()) };
        crate::system::check(result.into(), "mincore")?;
        Ok(pages.iter().filter(|&page| page & 1 == 1).count())
    }

    /// Returns the mapped bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped readable and writable for `length` bytes, and borrowed from self alone. Files mapped here
        // are not changed by anyone else.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.length) }
    }

    /// Stamps the pages with sequence numbers from `first`.
    pub fn stamp(&mut self, class: Class, first: u64) {
        for (page, sequence) in self.bytes().chunks_exact_mut(page_size()).zip(first..) {
            stamp::fill(page, Stamp { class, sequence });
        }
    }

    /// Reads a byte of each page, so that the page is mapped.
    pub fn touch(&mut self) {
        for byte in self.bytes().iter().step_by(page_size()) {
            std::hint::black_box(*byte);
        }
    }

    /// Returns the PFNs of the pages, in the order of addresses.
    pub fn ranges(&self, first: u64) -> Result<Vec<Range>> {
        const PRESENT: u64 = 1 << 63;
        const PFN: u64 = (1 << 55) - 1;
        let pagemap = File::open("/proc/self/pagemap").map_err(|e| format!("/proc/self/pagemap: {e}"))?;
        let mut entries = vec![0_u8; self.length / page_size() * 8];
        let offset = (self.address as usize / page_size() * 8) as u64;
        pagemap.read_exact_at(&mut entries, offset).map_err(|e| format!("/proc/self/pagemap: {e}"))?;
        let mut ranges = Vec::new();
        for (entry, sequence) in entries.chunks_exact(8).zip(first..) {
            let entry = u64::from_le_bytes(entry.try_into().unwrap_or_default());
            if entry & PRESENT != 0 && entry & PFN != 0 {
                push_page(&mut ranges, entry & PFN, sequence);
            }
        }
        Ok(ranges)
    }

    /// Stamps the pages and returns the manifest's entry for them.
    pub fn fill(&mut self, class: Class) -> Result<Filled> {
        self.stamp(class, 0);
        self.filled(class)
    }

    /// Returns the manifest's entry for the pages.
    pub fn filled(&self, class: Class) -> Result<Filled> {
        Ok(Filled { class, count: (self.length / page_size()) as u64, ranges: self.ranges(0)? })
    }

    /// Returns the address of a byte, for system calls on a part of the mapping.
    pub fn address(&self, offset: usize) -> *mut libc::c_void {
        self.address.wrapping_add(offset).cast()
    }

    /// Unmaps the memory.
    pub fn unmap(self) {
        // SAFETY: the range is this mapping, and self is gone after this.
        unsafe { libc::munmap(self.address.cast(), self.length) };
    }
}
