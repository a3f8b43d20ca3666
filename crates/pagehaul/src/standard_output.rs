//! Whether there is a standard output.
//!
//! Before `main`, Rust opens `/dev/null` where the caller has closed a standard descriptor (`>&-`): a dump written there
//! would be lost with exit status 0. Later it is indistinguishable from a `/dev/null` of the caller, so this module
//! checks before.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // SAFETY: fcntl(F_GETFD) reads the flags of a descriptor, which need not be open.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

// SAFETY: the section holds pointers to functions that the C library calls before `main`; `look` has the type it expects
// (its arguments are optional) and uses nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

/// Returns whether the caller closed standard output.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Returns why no dump or core can be written to standard output, if so.
pub(crate) fn refusal() -> Option<&'static str> {
    if is_closed() {
        Some("standard output is closed; redirect it, or name an output file")
    } else if io::stdout().is_terminal() {
        Some("standard output is a terminal; redirect it, or name an output file")
    } else {
        None
    }
}

/// Returns the width of the terminal that standard output is, in characters.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}
