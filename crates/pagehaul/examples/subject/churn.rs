//! Threads that change memory in every way that a process has: what is mapped, moved, dropped, shared or written to.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;
use std::sync::{Arc, Barrier};

const PAGE: usize = 4096;
/// Bytes of each thread's memory.
const BYTES: usize = 4 << 20;
/// `MADV_COLLAPSE` (Linux 6.1).
const COLLAPSE: i32 = 25;

/// Memory of one thread, with numbers to write.
struct Area {
    base: *mut u8,
    state: u64,
}

// SAFETY: each thread has its own.
unsafe impl Send for Area {}

/// Starts a thread for each way.
pub fn start() {
    let ways: [fn(&mut Area); 9] =
        [write, remap, map_again, drop_pages, huge, protect, fork, write_from_outside, file];
    // A stack that is mapped later could get a place that a thread has unmapped, and is about to map again.
    let all = Arc::new(Barrier::new(ways.len()));
    for way in ways {
        let mut area = Area { base: map(null_mut(), 0, -1), state: 88_172_645_463_325_252 };
        let all = Arc::clone(&all);
        std::thread::spawn(move || {
            all.wait();
            loop {
                way(&mut area);
                std::thread::yield_now();
            }
        });
    }
}

fn map(at: *mut u8, fixed: i32, file: i32) -> *mut u8 {
    let anonymous = if file < 0 { libc::MAP_ANONYMOUS } else { 0 };
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | anonymous | fixed);
    // SAFETY: a new mapping, or one in place of the area's own.
    let base = unsafe { libc::mmap(at.cast(), BYTES, protection, flags, file, 0) };
    assert_ne!(base, libc::MAP_FAILED);
    base.cast()
}

impl Area {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// A page of the area.
    fn page(&mut self) -> *mut u8 {
        let page = self.next() as usize % (BYTES / PAGE);
        // SAFETY: within the area.
        unsafe { self.base.add(page * PAGE) }
    }

    fn advise(&self, at: *mut u8, bytes: usize, advice: i32) {
        // SAFETY: within the area, which only this thread uses. Not every kernel has every advice.
        unsafe { libc::madvise(at.cast(), bytes, advice) };
    }
}

fn write(area: &mut Area) {
    for _ in 0..16 {
        let (page, value) = (area.page(), area.next());
        // SAFETY: within the area.
        unsafe { page.cast::<u64>().write_volatile(value) };
    }
}

fn remap(area: &mut Area) {
    write(area);
    // SAFETY: the area moves to a place that is free, and its address with it.
    unsafe {
        let room = libc::mmap(null_mut(), BYTES, 0, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        assert_ne!(room, libc::MAP_FAILED);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = libc::mremap(area.base.cast(), BYTES, BYTES, flags, room);
        assert_eq!(moved, room);
        area.base = room.cast();
    }
}

fn map_again(area: &mut Area) {
    write(area);
    // SAFETY: the area's own mapping, of which a part is unmapped and all is mapped again at the same place.
    unsafe { libc::munmap(area.base.cast(), BYTES / 2) };
    map(area.base, libc::MAP_FIXED, -1);
    write(area);
}

fn drop_pages(area: &mut Area) {
    write(area);
    for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_DONTNEED] {
        let page = area.page();
        area.advise(page, PAGE, advice);
    }
    // Maps the page of zeros.
    let page = area.page();
    // SAFETY: within the area.
    unsafe { page.read_volatile() };
}

fn huge(area: &mut Area) {
    let (base, page) = (area.base, area.page());
    area.advise(base, BYTES, libc::MADV_HUGEPAGE);
    write(area);
    area.advise(base, BYTES, COLLAPSE);
    write(area);
    area.advise(page, PAGE, libc::MADV_DONTNEED);
}

fn protect(area: &mut Area) {
    write(area);
    for protection in [libc::PROT_READ, libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: a part of the area, which is not touched before it may be written to again.
        unsafe { libc::mprotect(area.base.add(BYTES / 4).cast(), BYTES / 4, protection) };
    }
}

fn fork(area: &mut Area) {
    write(area);
    // SAFETY: the child writes to its copy of a page and ends, with nothing of the library's in between.
    unsafe {
        let page = area.page();
        let child = libc::fork();
        if child == 0 {
            page.write_volatile(1);
            libc::_exit(0);
        }
        page.write_volatile(2);
        libc::waitpid(child, null_mut(), 0);
    }
}

fn write_from_outside(area: &mut Area) {
    let value = area.next();
    let (ours, theirs) = (
        libc::iovec { iov_base: (&raw const value).cast_mut().cast(), iov_len: 8 },
        libc::iovec { iov_base: area.page().cast(), iov_len: 8 },
    );
    // SAFETY: from a number to the area, through the page tables as any process does.
    unsafe { libc::process_vm_writev(libc::getpid(), &raw const ours, 1, &raw const theirs, 1, 0) };
}

fn file(area: &mut Area) {
    let program = File::open("/proc/self/exe").unwrap();
    // SAFETY: the area's own mapping.
    unsafe { libc::munmap(area.base.cast(), BYTES) };
    area.base = map(null_mut(), 0, program.as_raw_fd());
    // SAFETY: the first page of a program that is longer.
    unsafe { area.base.cast::<u64>().write_volatile(7) };
}
