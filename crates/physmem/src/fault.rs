//! Bytes that vanish beneath a mapping: a file that was cut, a disk that fails, memory that is poisoned. The system
//! says so with SIGBUS at the moment of the read. A handler puts zeroes in the place of the page and counts, so that
//! the reader goes on and learns afterwards that what it saw was not the file.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Mappings watched at once. Past this many a fault ends the process, as it would without the handler.
const SLOTS: usize = 1024;

struct Slot {
    /// Address range of the mapping; `start` is 0 when the slot is free, 1 while it is being filled.
    start: AtomicUsize,
    end: AtomicUsize,
    faults: AtomicU64,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), faults: AtomicU64::new(0) } };
        SLOTS];

static INSTALLED: OnceLock<()> = OnceLock::new();

/// Watches one mapping.
pub(crate) struct Guard {
    slot: Option<&'static Slot>,
}

/// Starts to watch `length` bytes from `start`.
pub(crate) fn guard(start: usize, length: usize) -> Guard {
    INSTALLED.get_or_init(install);
    // Threads start looking at different places so that they do not meet on one slot.
    let hint = start >> 12;
    let slot = (0..SLOTS)
        .map(|step| &TABLE[(hint + step) % SLOTS])
        .find(|slot| slot.start.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok());
    if let Some(slot) = slot {
        slot.faults.store(0, Ordering::Relaxed);
        slot.end.store(start + length, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
    }
    Guard { slot }
}

impl Guard {
    /// Pages that could not be read.
    pub(crate) fn faults(&self) -> u64 {
        self.slot.map_or(0, |slot| slot.faults.load(Ordering::Relaxed))
    }

    /// Ends the watch; to be called before the mapping is undone.
    pub(crate) fn release(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.start.store(0, Ordering::Release);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.release();
    }
}

fn install() {
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature SA_SIGINFO asks for and calls only
    // what is allowed in a signal handler: atomics, mmap and sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_bus_error(_signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: the system passes a valid siginfo, and SIGBUS carries an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &TABLE {
        let start = slot.start.load(Ordering::Acquire);
        if start > 1 && address >= start && address < slot.end.load(Ordering::Relaxed) {
            slot.faults.fetch_add(1, Ordering::Relaxed);
            let page = address & !4095;
            // SAFETY: the page is part of a mapping this process made and still owns; it is replaced by zeroes.
            let put = unsafe {
                libc::mmap(
                    page as *mut libc::c_void,
                    4096,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            if put != libc::MAP_FAILED {
                return;
            }
        }
    }
    // Not ours: let it take its usual course when the instruction runs again.
    // SAFETY: as in `install`; SIG_DFL is a valid disposition.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}
