//! Page tables seen through `/proc/PID/pagemap`.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use pagehaul_pool::map_numbers;

use crate::units::page_size;

/// `struct page_region` of PAGEMAP_SCAN (`include/uapi/linux/fs.h`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) categories: u64,
}

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanArguments {
    pub(crate) size: u64,
    pub(crate) flags: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) walk_end: u64,
    pub(crate) regions: u64,
    pub(crate) regions_len: u64,
    pub(crate) max_pages: u64,
    pub(crate) category_inverted: u64,
    pub(crate) category_mask: u64,
    pub(crate) category_any: u64,
    pub(crate) return_mask: u64,
}

/// The mapping's writes are tracked by asynchronous write protection (userfaultfd).
pub(crate) const PAGE_IS_WPALLOWED: u64 = 1;
/// Written to since it was last protected; pages of untracked mappings always count as written.
pub(crate) const PAGE_IS_WRITTEN: u64 = 1 << 1;
/// A file's page, or shared memory's.
const PAGE_IS_FILE: u64 = 1 << 2;
pub(crate) const PAGE_IS_PRESENT: u64 = 1 << 3;
pub(crate) const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// The kernel's page of zeros, shared by all that was read but never written.
const PAGE_IS_PFNZERO: u64 = 1 << 5;
/// Written to since the marks of `clear_refs` were cleared.
pub(crate) const PAGE_IS_SOFT_DIRTY: u64 = 1 << 7;
/// Categories that Linux 6.7 does not have, such as guard regions.
pub(crate) const PAGE_IS_NEWER: u64 = !0 << 8;
/// `_IOWR('f', 16, struct pm_scan_arg)`, since Linux 6.7 (commit 52526ca7fdb9, "fs/proc/task_mmu: implement IOCTL to
/// get and optionally clear info about PTEs").
pub(crate) const PAGEMAP_SCAN: libc::c_ulong =
    3 << 30 | (size_of::<ScanArguments>() as libc::c_ulong) << 16 | (b'f' as libc::c_ulong) << 8 | 16;
/// Protects the pages found, in the same step as finding them (`PM_SCAN_WP_MATCHING`). Skips untracked mappings.
const PROTECT: u64 = 1;
/// Bytes of one read of a pagemap file where the kernel cannot scan.
const ENTRIES: usize = 64 << 10;
/// Bytes of addresses at least that a thread looks at in a row, and parts for each thread at most.
const PART: u64 = 64 << 20;
const PARTS: u64 = 8;
/// Regions asked for at a time.
const REGIONS: usize = 4096;

/// The page tables of a process.
pub(crate) struct Pagemap {
    file: Arc<File>,
    regions: Vec<PageRegion>,
    can_scan: bool,
}

impl ScanArguments {
    /// Whether the scan finds pages that are in these categories.
    pub(crate) fn finds(&self, categories: u64) -> bool {
        let seen = categories ^ self.category_inverted;
        seen & self.category_mask == self.category_mask
            && (self.category_any == 0 || seen & self.category_any != 0)
    }
}

impl Pagemap {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(File::open(path)?))
    }

    /// Of an open pagemap file.
    pub(crate) fn new(file: impl Into<Arc<File>>) -> Self {
        Self { file: file.into(), regions: vec![PageRegion::default(); REGIONS], can_scan: true }
    }

    /// Passes the pages in `window` that are in memory or swapped out to `push`, without the page of zeros where the kernel
    /// can exclude it. Returns the address up to which it scanned.
    pub(crate) fn present(
        &mut self,
        window: Range<u64>,
        push: &mut impl FnMut(Range<u64>),
    ) -> io::Result<u64> {
        if self.can_scan {
            match self.scan(&window, push) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
                    self.can_scan = false;
                }
                other => return other,
            }
        }
        present_by_entries(&self.file, window, push)
    }

    fn scan(&mut self, window: &Range<u64>, push: &mut impl FnMut(Range<u64>)) -> io::Result<u64> {
        let (found, end) = self.request(Query { not: PAGE_IS_PFNZERO, ..Query::new(window) })?;
        found.iter().for_each(|region| push(region.start..region.end));
        Ok(end)
    }

    /// Whether there is any page in `window` that is the process's own, not a file's. Fails where the kernel cannot scan.
    pub(crate) fn has_own(&mut self, window: Range<u64>) -> io::Result<bool> {
        let query = Query { not: PAGE_IS_PFNZERO | PAGE_IS_FILE, most: 1, ..Query::new(&window) };
        self.request(query).map(|(found, _)| !found.is_empty())
    }

    /// Write-protects the pages in `window` that were written to since they last were, and passes them to `push`. Skips
    /// mappings that are not tracked. Returns the address up to which the kernel scanned.
    pub(crate) fn protect_written(
        &mut self,
        window: &Range<u64>,
        push: &mut impl FnMut(Range<u64>),
    ) -> io::Result<u64> {
        let query = Query { flags: PROTECT, is: PAGE_IS_WRITTEN, not: PAGE_IS_PFNZERO, ..Query::new(window) };
        let (found, end) = self.request(query)?;
        found.iter().for_each(|region| push(region.start..region.end));
        Ok(end)
    }

    /// Passes the pages in `window` to `push` that are in memory or swapped out, with the categories in `wanted` that they are
    /// in. Returns the address up to which the kernel scanned.
    pub(crate) fn categories(
        &mut self,
        window: &Range<u64>,
        wanted: u64,
        push: &mut impl FnMut(PageRegion),
    ) -> io::Result<u64> {
        let (found, end) = self.request(Query { not: PAGE_IS_PFNZERO, wanted, ..Query::new(window) })?;
        found.iter().for_each(|region| push(*region));
        Ok(end)
    }

    /// Returns what [`categories`](Self::categories) passes on of all of `range`, looked at by up to `threads` threads.
    pub(crate) fn categories_by(
        &self,
        range: &Range<u64>,
        wanted: u64,
        threads: usize,
    ) -> io::Result<Vec<PageRegion>> {
        let length = range.end - range.start;
        let part = (length / (threads as u64 * PARTS)).max(PART).next_multiple_of(PART);
        let look = |pagemap: &mut Self, number: u64| {
            let mut found = Vec::new();
            let mut at = range.start + number * part;
            let end = range.end.min(at + part);
            while at < end {
                match pagemap.categories(&(at..end), wanted, &mut |region| found.push(region)) {
                    Ok(next) => at = next,
                    Err(error) => return Some(Err(error)),
                }
            }
            Some(Ok(found))
        };
        let worker = || Self::new(Arc::clone(&self.file));
        let mut all: Vec<PageRegion> = Vec::new();
        for found in map_numbers("scan", threads, length.div_ceil(part), worker, look) {
            for region in found? {
                match all.last_mut() {
                    Some(last) if last.end == region.start && last.categories == region.categories => {
                        last.end = region.end;
                    }
                    _ => all.push(region),
                }
            }
        }
        Ok(all)
    }

    /// Makes the scan that `arguments` describe, within `window`. Returns the regions, at most `most`, and the address up to
    /// which the kernel scanned.
    pub(crate) fn repeat(
        &mut self,
        arguments: &ScanArguments,
        window: &Range<u64>,
        most: usize,
    ) -> io::Result<(&[PageRegion], u64)> {
        let (start, end) = (window.start, window.end);
        self.ask(ScanArguments { start, end, ..*arguments }, most)
    }

    /// Asks for the regions that a query describes, as many as there is room for, and the address up to which the kernel
    /// scanned.
    fn request(&mut self, query: Query) -> io::Result<(&[PageRegion], u64)> {
        let arguments = ScanArguments {
            size: size_of::<ScanArguments>() as u64,
            flags: query.flags,
            start: query.window.start,
            end: query.window.end,
            max_pages: query.most,
            category_inverted: query.not,
            category_mask: query.is | query.not,
            category_any: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: query.wanted,
            ..ScanArguments::default()
        };
        self.ask(arguments, REGIONS)
    }

    fn ask(&mut self, mut arguments: ScanArguments, most: usize) -> io::Result<(&[PageRegion], u64)> {
        arguments.regions = self.regions.as_mut_ptr().addr() as u64;
        arguments.regions_len = self.regions.len().min(most) as u64;
        // SAFETY: the struct is as the kernel has it, and names room for `regions_len` regions, alive for the call.
        let count = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut arguments) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        let found = self.regions.get(..count as usize).unwrap_or_default();
        // Where it found more than 512 regions, the kernel leaves the address at which it emptied its own buffer last
        // (`do_pagemap_scan`, since commit 52526ca7fdb9 of Linux 6.7), behind which it has found more.
        let is_all = arguments.max_pages == 0 && found.len() < arguments.regions_len as usize;
        let end = match found.last() {
            _ if is_all => arguments.end,
            last => arguments.walk_end.max(last.map_or(0, |last| last.end)),
        };
        // It always gets on, so that no caller asks forever.
        Ok((found, end.clamp(arguments.start + 1, arguments.end)))
    }
}

/// A scan for pages that are in memory or swapped out.
struct Query {
    window: Range<u64>,
    flags: u64,
    /// Categories that a page must be in, and those that it must not be in.
    is: u64,
    not: u64,
    /// Categories to return.
    wanted: u64,
    /// Pages at most (0: all).
    most: u64,
}

impl Query {
    fn new(window: &Range<u64>) -> Self {
        Self { window: window.clone(), flags: 0, is: 0, not: 0, wanted: PAGE_IS_PFNZERO, most: 0 }
    }
}

/// Existing pages from a pagemap file's entries, for kernels before 6.7, which lack PAGEMAP_SCAN. Gives the address up
/// to which it looked.
fn present_by_entries(file: &File, window: Range<u64>, push: &mut impl FnMut(Range<u64>)) -> io::Result<u64> {
    let page_size = page_size();
    let mut bytes = vec![0; ENTRIES];
    let mut at = window.start;
    while at < window.end {
        let wanted = (((window.end - at) / page_size) as usize * 8).min(ENTRIES);
        let got = file.read_at(&mut bytes[..wanted], at / page_size * 8)? / 8;
        if got == 0 {
            // No page tables from here on.
            break;
        }
        for (index, entry) in bytes[..got * 8].as_chunks::<8>().0.iter().enumerate() {
            // Bit 63: in memory; bit 62: swapped out (Documentation/admin-guide/mm/pagemap.rst).
            if u64::from_le_bytes(*entry) >> 62 != 0 {
                let page = at + index as u64 * page_size;
                push(page..page + page_size);
            }
        }
        at += got as u64 * page_size;
    }
    Ok(window.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_by_categories() {
        let data = ScanArguments {
            category_inverted: PAGE_IS_PFNZERO | PAGE_IS_FILE,
            category_mask: PAGE_IS_PFNZERO | PAGE_IS_FILE,
            category_any: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            ..ScanArguments::default()
        };
        assert!(data.finds(PAGE_IS_PRESENT) && data.finds(PAGE_IS_SWAPPED | 1 << 8));
        assert!(!data.finds(PAGE_IS_PRESENT | PAGE_IS_FILE) && !data.finds(PAGE_IS_WRITTEN));
        let guards = ScanArguments { category_mask: 1 << 8, ..ScanArguments::default() };
        assert!(guards.finds(PAGE_IS_SWAPPED | 1 << 8) && !guards.finds(PAGE_IS_PRESENT));
    }

    /// Both ways agree on memory of this process, of which every third page was written to: more regions than there is room for at once.
    #[test]
    fn touched_pages_are_found() {
        let (pages, page_bytes) = (3 * (REGIONS + 700), page_size());
        let bytes = page_bytes as usize;
        // SAFETY: a new mapping; no other memory changes.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), pages * bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: within the mapping; small pages, so that neighbours stay untouched; reads map the page of zeros.
        unsafe {
            libc::madvise(base, pages * bytes, libc::MADV_NOHUGEPAGE);
            for page in (0..pages).step_by(3) {
                base.cast::<u8>().add(page * bytes).write_volatile(1);
            }
            base.cast::<u8>().add(bytes).read_volatile();
        }
        let start = base.addr() as u64;
        let window = start..start + pages as u64 * page_bytes;
        let expected: Vec<u64> = (0..pages as u64).step_by(3).map(|page| start + page * page_bytes).collect();
        let mut pagemap = Pagemap::open(Path::new("/proc/self/pagemap")).unwrap();
        let mut found = Vec::new();
        let mut at = window.start;
        while at < window.end {
            at = pagemap.present(at..window.end, &mut |range| found.push(range.start)).unwrap();
        }
        if pagemap.can_scan {
            assert_eq!(found, expected);
        }
        let mut entries = Vec::new();
        present_by_entries(&pagemap.file, window.clone(), &mut |range| entries.push(range.start)).unwrap();
        entries.retain(|page| *page != start + page_bytes);
        assert_eq!(entries, expected);
        if pagemap.can_scan {
            // Several threads see what one sees, also of much more than is mapped.
            for range in [start..start + pages as u64 * page_bytes, start - (5 << 30)..start + (3 << 30)] {
                let [one, several] = [1, 4].map(|threads| {
                    let found = pagemap.categories_by(&range, PAGE_IS_PRESENT, threads).unwrap();
                    // Neighbours are in one region.
                    let own = found
                        .into_iter()
                        .map(|region| region.start.max(window.start)..region.end.min(window.end));
                    own.filter(|range| !range.is_empty()).collect::<Vec<_>>()
                });
                assert_eq!(one, several);
                assert_eq!(one.len(), expected.len());
            }
        }
        // SAFETY: nothing refers to it any more.
        unsafe { libc::munmap(base, pages * bytes) };
    }
}
