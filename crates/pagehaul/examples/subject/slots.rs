//! Threads that map, move and unmap pieces of memory as allocators do. Neighbours become one mapping, and are moved apart again.

use std::ptr::null_mut;

const PAGE: usize = 4096;
/// Pieces of each thread.
const SLOTS: usize = 64;

pub fn start() {
    for number in 1..=4u64 {
        std::thread::spawn(move || churn(number * 88_172_645_463_325_252));
    }
}

/// Ends the process if the kernel does not move a piece.
fn churn(mut state: u64) -> ! {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let mut slots: Vec<(*mut libc::c_void, usize)> = Vec::new();
    loop {
        if slots.len() < SLOTS {
            let length = PAGE * (16 + next() % 64);
            let slot = map(length, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: the first bytes of the new mapping.
            unsafe { slot.cast::<u64>().write_volatile(length as u64) };
            slots.push((slot, length));
            continue;
        }
        let number = next() % SLOTS;
        let (slot, length) = slots[number];
        if next() % 2 == 0 {
            // SAFETY: the slot's own memory, which nothing points to any more.
            unsafe { libc::munmap(slot, length) };
            slots.swap_remove(number);
            continue;
        }
        let room = map(length, libc::PROT_NONE);
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the slot's own memory moves to memory that nothing uses.
        let moved = unsafe { libc::mremap(slot, length, length, flags, room) };
        // SAFETY: the first bytes of the slot.
        if moved != room || unsafe { room.cast::<u64>().read_volatile() } != length as u64 {
            eprintln!("mremap: {}", std::io::Error::last_os_error());
            std::process::abort();
        }
        slots[number].0 = room;
    }
}

fn map(length: usize, protection: i32) -> *mut libc::c_void {
    // SAFETY: a new mapping.
    let slot =
        unsafe { libc::mmap(null_mut(), length, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    assert_ne!(slot, libc::MAP_FAILED);
    slot
}
