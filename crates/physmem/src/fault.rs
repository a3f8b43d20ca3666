//! Mapped bytes that cannot be read: the file was truncated, the disk fails, memory is poisoned. The kernel raises SIGBUS
//! at the read. A handler maps zeros in place of the page and counts the fault: the reader continues, and learns
//! afterwards that the bytes were not those of the file.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Mappings watched at once. With more, a fault ends the process, as it would without the handler.
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

/// Bytes of a page of this machine, 4 to 64 KiB: mmap takes no others. Set before the handler can run, which must not look
/// it up.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Watches one mapping.
pub(crate) struct Guard {
    slot: Option<&'static Slot>,
}

/// Starts to watch `length` bytes from `start`.
pub(crate) fn guard(start: usize, length: usize) -> Guard {
    INSTALLED.get_or_init(install);
    // Threads start at different slots, so that they do not contend for one.
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

    /// Stops watching; must precede the unmapping.
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

/// What handled SIGBUS before: Rust's own handler, which detects stack overflows, or that of a program which uses this
/// crate. Set before the handler here can run.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

fn install() {
    PAGE.store(rustix::param::page_size(), Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature SA_SIGINFO asks for and calls only
    // what is allowed in a signal handler: atomics, mmap, sigaction, raise, and the previous handler.
    unsafe {
        let mut previous: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut previous);
        PREVIOUS.get_or_init(|| previous);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid siginfo. Its address is one only in a signal that the kernel itself raised.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code > 0 && replace_page(address) {
        return;
    }
    chain(signal, code, info, context);
}

/// Maps zeros in place of the page at `address` and counts the fault, if a watched mapping has that page.
fn replace_page(address: usize) -> bool {
    for slot in &TABLE {
        let start = slot.start.load(Ordering::Acquire);
        if start > 1 && address >= start && address < slot.end.load(Ordering::Relaxed) {
            slot.faults.fetch_add(1, Ordering::Relaxed);
            let page = PAGE.load(Ordering::Relaxed);
            // SAFETY: the page is part of a mapping this process made and still owns; it is replaced by zeros.
            let put = unsafe {
                libc::mmap(
                    (address & !(page - 1)) as *mut libc::c_void,
                    page,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            return put != libc::MAP_FAILED;
        }
    }
    false
}

/// Passes a signal that is not about a watched mapping to the handler that was there before.
fn chain(signal: libc::c_int, code: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get();
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    let takes_info = previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    if handler == libc::SIG_IGN && code <= 0 {
        // Only signals that processes send can be ignored.
        return;
    }
    // SAFETY: `handler` is what sigaction returned for this signal: a disposition, or a function with the signature that
    // its flags say. For the default disposition the signal is raised again; it is blocked until this handler returns.
    unsafe {
        if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
            libc::raise(signal);
        } else if takes_info {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}
