//! Windows on a file: mapped if the system allows it, else read into a buffer.
//!
//! # Why a `&[u8]` over a mapping is sound
//! A reference promises that its bytes do not change. Two things could change them:
//!
//! - **The file.** /proc/vmcore is memory that no kernel writes to any more. A saved file may be written by another process,
//!   as any mapped file may; it is mapped only on request ([`Access::Map`]).
//! - **The fault handler**, which replaces a page that fails by zeros ([`fault`]). Mostly a page fails at its first read: then
//!   nothing saw other bytes, and the zeros stay, since nothing else is ever mapped there. A page can fail after a
//!   successful read only if memory is poisoned in between (/proc/vmcore; its page-table entries are set at mmap and
//!   cannot be reclaimed), or if a saved file is truncated or evicted and its disk fails.
//!
//! For that last case no reference outlives its use of the bytes: [`Window::bytes`] lends them until the next call. Its users
//! are safe Rust code, which at worst computes garbage from two versions of a byte, asks
//! [`take_fault`](crate::View::take_fault) and discards it; C libraries get a copy (`codec::Compressor`). Nothing
//! decides on memory safety by mapped bytes: no `unsafe` block outside this module has them as an index, length or pointer.
//!
//! Copies of all bytes would make this moot, and were tried: they cost 3 to 4 % of a capture at level 31 (6 GiB vmcore).

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

use crate::fault;
use crate::file::{PlainFile, ReadAt};

/// Bytes of the smallest page of a running system.
const GRAIN: u64 = 4096;
/// Bytes of the first window, when sequential access is not yet known. /proc/vmcore fills in the page table of all that
/// is mapped at once: a window of 4 MiB costs several times as much, for one page of a page table.
const FIRST: u64 = 64 << 10;
/// Factor by which each consecutive window grows.
const GROWTH: u64 = 4;

/// How files are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapPolicy {
    /// Bytes mapped at a time at most, a power of two of at least 4096. Every window costs 8 bytes of page table per
    /// 4 KiB and a TLB flush when it is unmapped; a 12 TiB machine mapped at once would need 24 GiB of page tables.
    pub window: u64,
    /// Whether to map or read.
    pub access: Access,
}

/// How the bytes of a file are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// /proc/vmcore is mapped, every other file read: reading /proc/vmcore maps and unmaps each page, while a saved file
    /// costs a page fault for 16 pages when mapped and one copy in the processor's cache when read.
    Auto,
    /// Always map.
    Map,
    /// Always read.
    Read,
}

impl Default for MapPolicy {
    fn default() -> Self {
        Self { window: 4 << 20, access: Access::Auto }
    }
}

/// A file and the way to map it, shared by the threads that read it.
pub struct MappedFile {
    file: Backing,
    /// Bytes mapped at a time at most.
    window: u64,
    /// Whether mapping is impossible.
    refused: AtomicBool,
    /// Whether the kernel generates the file (/proc).
    in_proc: bool,
}

/// Where the bytes come from.
enum Backing {
    /// A file of the system.
    Plain(PlainFile),
    /// Bytes that exist in no file, and cannot be mapped: a flattened stream rearranged.
    Other(Box<dyn ReadAt>),
}

impl Backing {
    fn plain(&self) -> Option<&PlainFile> {
        match self {
            Self::Plain(file) => Some(file),
            Self::Other(_) => None,
        }
    }

    fn as_read_at(&self) -> &dyn ReadAt {
        match self {
            Self::Plain(file) => file,
            Self::Other(file) => &**file,
        }
    }
}

impl MappedFile {
    /// Returns a file of bytes that cannot be mapped.
    pub fn unmapped(file: Box<dyn ReadAt>) -> Self {
        Self { file: Backing::Other(file), window: GRAIN, refused: AtomicBool::new(true), in_proc: false }
    }

    /// Returns an open file to be mapped or read.
    pub fn new(file: PlainFile, policy: MapPolicy) -> Self {
        // Mappings start at multiples of the running kernel's pages.
        let grain = GRAIN.max(rustix::param::page_size() as u64);
        let window = policy.window.max(grain).checked_next_power_of_two().unwrap_or(1 << 30);
        let in_proc = is_in_proc(&file);
        let map = match policy.access {
            Access::Auto => in_proc,
            Access::Map => true,
            Access::Read => false,
        };
        Self { file: Backing::Plain(file), window, refused: AtomicBool::new(!map), in_proc }
    }

    /// The file itself.
    pub fn file(&self) -> &dyn ReadAt {
        self.file.as_read_at()
    }

    /// Returns whether it is mapped: that was requested, and the system has not refused.
    pub fn is_mapped(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    /// One thread's window on the file.
    pub fn window(&self) -> Window<'_> {
        Window {
            source: self,
            own: None,
            mapping: None,
            length: 0,
            refused: 0..0,
            buffer: Vec::new(),
            buffered: 0..0,
            faults: 0,
        }
    }
}

/// Whether the kernel generates the file (/proc).
fn is_in_proc(file: &PlainFile) -> bool {
    rustix::fs::fstatfs(file.file()).is_ok_and(|fs| fs.f_type == rustix::fs::PROC_SUPER_MAGIC)
}

/// One thread's sliding window.
pub struct Window<'a> {
    source: &'a MappedFile,
    /// A file in /proc that is read, opened once more for this thread: readers of one open /proc/kcore share
    /// a buffer in the kernel (commit df04abfd181a, "fs/proc/kcore.c: Add bounce buffer for ktext data"), and get each
    /// other's pages.
    own: Option<PlainFile>,
    mapping: Option<Mapping>,
    /// Requested length of the last mapping.
    length: u64,
    /// File offsets that could not be mapped.
    refused: Range<u64>,
    buffer: Vec<u8>,
    /// File offsets in `buffer`.
    buffered: Range<u64>,
    /// Faults of earlier mappings.
    faults: u64,
}

impl Window<'_> {
    /// Returns the bytes at `offset`: at least one, at most `len`; none at or past the end of the file.
    pub fn bytes(&mut self, offset: u64, len: usize) -> io::Result<&[u8]> {
        let end = offset.saturating_add(len as u64).min(self.source.file().size());
        if offset >= end {
            return Ok(&[]);
        }
        if self.map(offset, end - offset) {
            // `map` succeeded, so there is a mapping that contains `offset`.
            return Ok(self.mapping.as_ref().map_or(&[], |mapping| mapping.slice(offset..end)));
        }
        self.read(offset, end)
    }

    /// Returns how often mapped bytes were unreadable since the window was created. Bytes handed out between two equal counts
    /// are those of the file.
    pub fn faults(&self) -> u64 {
        self.faults + self.mapping.as_ref().map_or(0, Mapping::faults)
    }

    /// Maps `offset` and what follows it, up to `length` bytes if a window is that long. Returns false if the system refuses.
    fn map(&mut self, offset: u64, length: u64) -> bool {
        // A page that failed reads as zeros in its mapping, so the mapping is not used again.
        let usable = |mapping: &Mapping| mapping.range.contains(&offset) && mapping.faults() == 0;
        if self.mapping.as_ref().is_some_and(usable) {
            return true;
        }
        if self.refused.contains(&offset) || self.source.refused.load(Ordering::Relaxed) {
            return false;
        }
        let Some(file) = self.source.file.plain() else { return false };
        let mut window = FIRST;
        if let Some(left) = self.mapping.take() {
            self.faults += left.faults();
            // A little further on, because another thread took what is between: still sequential.
            let end = left.range.end;
            if (end..end.saturating_add(self.length)).contains(&offset) {
                window = self.length.saturating_mul(GROWTH);
            }
        }
        let window =
            window.max(length.checked_next_power_of_two().unwrap_or(u64::MAX)).min(self.source.window);
        self.length = window;
        let start = offset & !(window - 1);
        // One page more than the window, so that pages at odd file offsets (QEMU's dumps) are whole in one of two.
        let end = start.saturating_add(window + GRAIN).min(file.size());
        match Mapping::new(file, start..end) {
            Ok(mapping) => {
                self.mapping = Some(mapping);
                true
            }
            Err(error) => {
                // /proc/vmcore returns EAGAIN if this range cannot be remapped; the next may be. What
                // refuses the kind of file (pipes, file systems without mmap) refuses it for good.
                if error != rustix::io::Errno::AGAIN {
                    self.source.refused.store(true, Ordering::Relaxed);
                }
                self.refused = start..start.saturating_add(window);
                false
            }
        }
    }

    /// Reads if mapping is impossible. Reads grow while they are sequential, since read() of /proc/vmcore maps every page
    /// separately. They must fit the L2 cache: 1 MiB makes a capture 8 % slower (`-d 0 -c lzo`).
    fn read(&mut self, offset: u64, end: u64) -> io::Result<&[u8]> {
        const MOST: usize = 128 << 10;
        if let Some(file) = self.source.file.plain().filter(|_| self.source.in_proc && self.own.is_none()) {
            self.own = Some(file.reopen()?);
        }
        let file = self.own.as_ref().map_or(self.source.file(), |own| own);
        if !self.buffered.contains(&offset) {
            let sequential = offset == self.buffered.end;
            let last = (self.buffered.end - self.buffered.start) as usize;
            let asked = (end - offset) as usize;
            let size = if sequential { (last * 2).max(asked) } else { asked }.min(MOST);
            // It never shrinks: growing fills it with zeros.
            if self.buffer.len() < size {
                self.buffer.resize(size, 0);
            }
            self.buffered = 0..0;
            let mut done = 0;
            while done < asked.min(size) {
                match file.read_at(offset + done as u64, &mut self.buffer[done..size]) {
                    Ok(0) => break,
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Bytes before the error are good; a read at its offset returns the error again.
                    Err(_) if done > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            self.buffered = offset..offset + done as u64;
        }
        let from = (offset - self.buffered.start) as usize;
        let to = (end.min(self.buffered.end).max(offset) - self.buffered.start) as usize;
        Ok(&self.buffer[from..to])
    }
}

/// A whole file, mapped once for all threads: for small files with random access.
pub struct WholeFile {
    file: PlainFile,
    mapping: Mapping,
}

impl WholeFile {
    /// Maps an open file that is not empty, and populates all pages.
    pub fn new(file: PlainFile) -> io::Result<Self> {
        let mapping = Mapping::new(&file, 0..file.size())?;
        let whole = Self { file, mapping };
        for page in whole.bytes().chunks(GRAIN as usize) {
            std::hint::black_box(page.first());
        }
        Ok(whole)
    }

    /// The file itself.
    pub fn file(&self) -> &PlainFile {
        &self.file
    }

    /// Returns its bytes. Unreadable ones are zeros and counted in [`faults`](Self::faults).
    pub fn bytes(&self) -> &[u8] {
        self.mapping.slice(self.mapping.range.clone())
    }

    /// Returns how often bytes were unreadable.
    pub fn faults(&self) -> u64 {
        self.mapping.faults()
    }
}

/// A range of the file in the address space.
struct Mapping {
    range: Range<u64>,
    base: *mut u8,
    guard: fault::Guard,
}

// SAFETY: the mapping is private to its owner and read-only; moving it between threads changes nothing.
unsafe impl Send for Mapping {}

// SAFETY: it is only read, and its count of faults is atomic.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &PlainFile, range: Range<u64>) -> Result<Self, rustix::io::Errno> {
        let length = (range.end - range.start) as usize;
        // SAFETY: the system chooses the address, so no memory in use is replaced. The mapping is read-only. That
        // the file may shrink or fail beneath it is caught by the fault guard.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ,
                MapFlags::SHARED,
                file.file(),
                range.start,
            )?
        }
        .cast::<u8>();
        let guard = fault::guard(base as usize, length);
        Ok(Self { range, base, guard })
    }

    fn slice(&self, wanted: Range<u64>) -> &[u8] {
        let from = (wanted.start - self.range.start) as usize;
        let to = (wanted.end.min(self.range.end) - self.range.start) as usize;
        // SAFETY: `from..to` lies in the mapping, which lives as long as `self`. When its bytes may change, and why no user
        // of them can tell: see the head of this file.
        unsafe { std::slice::from_raw_parts(self.base.add(from), to - from) }
    }

    fn faults(&self) -> u64 {
        self.guard.faults()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let length = (self.range.end - self.range.start) as usize;
        self.guard.release();
        // SAFETY: base and length are those of the mapping made in `new`, and no slice of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> (tempfile::NamedTempFile, PlainFile) {
        let mut temp = tempfile::NamedTempFile::new().unwrap();
        temp.write_all(bytes).unwrap();
        let plain = PlainFile::open(temp.path()).unwrap();
        (temp, plain)
    }

    fn sample(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at ^ at >> 8) as u8).collect()
    }

    #[test]
    fn mapped_and_read_bytes_are_those_of_the_file() {
        let bytes = sample(5 * 8192 + 100);
        for access in [Access::Map, Access::Read] {
            let (_keep, plain) = file(&bytes);
            let mapped = MappedFile::new(plain, MapPolicy { window: 8192, access });
            let mut window = mapped.window();
            for offset in [0, 1, 8191, 8192, 100, 40000, 41059, 4096, 12288, 12289] {
                let got = window.bytes(offset, 5000).unwrap();
                assert!(!got.is_empty());
                assert_eq!(got, &bytes[offset as usize..offset as usize + got.len()], "at {offset}");
            }
            assert!(window.bytes(bytes.len() as u64, 1).unwrap().is_empty());
            assert!(window.bytes(u64::MAX, 1).unwrap().is_empty());
            assert_eq!(window.faults(), 0);
        }
    }

    #[test]
    fn a_file_cut_beneath_its_mapping_is_noticed() {
        let bytes = sample(16384);
        let (temp, plain) = file(&bytes);
        let mapped = MappedFile::new(plain, MapPolicy { access: Access::Map, ..MapPolicy::default() });
        let mut window = mapped.window();
        assert_eq!(window.bytes(8192, 1).unwrap()[0], bytes[8192]);
        temp.as_file().set_len(4096).unwrap();
        let before = window.faults();
        let sum: u64 = window.bytes(8192, 8192).unwrap().iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(sum, 0);
        assert!(window.faults() > before);
        // A page that failed fails again: its zeros do not become what the file holds.
        let before = window.faults();
        assert_eq!(window.bytes(8192, 1).unwrap()[0], 0);
        assert!(window.faults() > before);
    }

    #[test]
    fn windows_grow_while_they_follow_each_other() {
        let (_keep, plain) = file(&sample(4 << 20));
        let mapped = MappedFile::new(plain, MapPolicy { window: 1 << 20, access: Access::Map });
        let mut window = mapped.window();
        let mut lengths = Vec::new();
        let mut offset = 0;
        while lengths.len() < 5 {
            let got = window.bytes(offset, 1).unwrap();
            assert_eq!(got.len(), 1);
            let mapping = window.mapping.as_ref().unwrap();
            lengths.push((mapping.range.end - GRAIN - mapping.range.start) >> 10);
            offset = mapping.range.end;
        }
        assert_eq!(lengths, [64, 256, 1024, 1024, 1024]);
        // Elsewhere it begins anew, unless more than that is asked for at once.
        window.bytes(0, 1).unwrap();
        assert_eq!(window.length, 64 << 10);
        assert_eq!(window.bytes(2 << 20, 300 << 10).unwrap().len(), 300 << 10);
        assert_eq!(window.length, 512 << 10);
    }
}
