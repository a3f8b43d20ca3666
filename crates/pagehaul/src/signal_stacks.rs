//! Threads without a stack of their own for signals.
//!
//! Rust's runtime gives each thread one, for its handlers of SIGSEGV and SIGBUS, which name a thread whose stack overflowed. Where
//! there is no memory for it (a limit of address space, strict accounting of memory), the new thread panics before it runs any code of
//! ours, and aborts where there is no memory to unwind. The runtime leaves both out where these signals have handlers already: the
//! kernel then ends the program as it ends one in C, and a thread that cannot be created is an error.

use std::mem::zeroed;
use std::ptr::null_mut;

extern "C" fn install() {
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature that SA_SIGINFO asks for.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            libc::sigaction(signal, &action, null_mut());
        }
    }
}

/// Leaves the signal to the kernel: the instruction that failed runs again when this returns.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: both calls are allowed in a signal handler, and the system passes a valid siginfo.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let is_sent = (*info).si_code <= 0;
        if is_sent {
            // Delivered when this returns.
            libc::raise(signal);
        }
    }
}

// SAFETY: the section holds pointers to functions that the C library calls before `main`, and before Rust's runtime looks for
// handlers; `install` has the type it expects (its arguments are optional) and uses nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static INSTALL: extern "C" fn() = install;
