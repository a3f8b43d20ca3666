//! Ends the program with one sentence if the system has no more memory. Rust's own handler prints a backtrace with
//! RUST_BACKTRACE=1, which takes memory, fails again, and waits for itself forever. Where the address space is limited, memory
//! lasts longer.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, which ends the program instead of returning null.
struct EndWhenExhausted;

#[global_allocator]
static ALLOCATOR: EndWhenExhausted = EndWhenExhausted;

// SAFETY: every call goes to the system's allocator, with the caller's arguments, and returns what it returned.
unsafe impl GlobalAlloc for EndWhenExhausted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        check(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        check(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        check(unsafe { System.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[inline]
fn check(pointer: *mut u8) -> *mut u8 {
    if pointer.is_null() {
        end();
    }
    pointer
}

/// Makes all threads allocate from one heap if the address space is limited: glibc reserves 64 MiB of it for the heap of each
/// thread (`HEAP_MAX_SIZE`, malloc/arena.c), so that a few threads have used up what a limit leaves.
pub(crate) fn spare_address_space() {
    #[cfg(target_env = "gnu")]
    if rustix::process::getrlimit(rustix::process::Resource::As).current.is_some() {
        // SAFETY: changes a setting of the allocator, before there are other threads.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

#[cold]
fn end() -> ! {
    const SENTENCE: &[u8] = b"pagehaul: no memory is left: of the machine, or within a limit (ulimit -v)\n";
    // SAFETY: the bytes live as long as the program, which ends here. Nothing allocates; an incomplete dump stays marked as
    // such.
    unsafe {
        libc::write(libc::STDERR_FILENO, SENTENCE.as_ptr().cast(), SENTENCE.len());
        libc::_exit(1)
    }
}
