//! Whether there is a standard output, and what it is.
//!
//! Before `main`, Rust opens `/dev/null` where the caller has closed a standard descriptor (`>&-`): a dump written there
//! would be lost with exit status 0. Later it is indistinguishable from a `/dev/null` of the caller, so this module
//! checks before.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);
/// What standard output was before it became the pipe to a pager.
static TERMINAL: OnceLock<Terminal> = OnceLock::new();

#[derive(Debug, Clone, Copy)]
struct Terminal {
    width: Option<usize>,
    takes_colours: bool,
}

impl Terminal {
    fn look() -> Self {
        // https://no-color.org: any value but an empty one.
        let refuses = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_capable = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
        let width = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col.into());
        Self {
            width: width.filter(|width| *width > 0),
            takes_colours: is_capable && !refuses && io::stdout().is_terminal(),
        }
    }
}

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

/// Notes what terminal standard output is, before it becomes something else.
pub(crate) fn note_terminal() {
    TERMINAL.get_or_init(Terminal::look);
}

/// Returns the width of the terminal that standard output is, in characters.
pub(crate) fn terminal_width() -> Option<usize> {
    TERMINAL.get_or_init(Terminal::look).width
}

/// Whether standard output is a terminal on which the user wants colours.
pub(crate) fn takes_colours() -> bool {
    TERMINAL.get_or_init(Terminal::look).takes_colours
}

/// Returns whether a terminal is /dev/console or a serial line: a bar sends more than 9,600 baud carry.
pub(crate) fn is_console(terminal: impl AsFd) -> bool {
    let device = rustix::fs::fstat(terminal).map(|stat| stat.st_rdev);
    device.is_ok_and(|device| is_slow(rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Pseudo-terminals are 136 to 143, virtual terminals 4:0 to 4:63 (Documentation/admin-guide/devices.txt).
fn is_slow(major: u32, minor: u32) -> bool {
    !matches!((major, minor), (136..=143, _) | (4, 0..=63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consoles_and_serial_lines_have_no_bar() {
        let slow = [(5, 1), (4, 64), (204, 64), (136, 0), (4, 1)].map(|(major, minor)| is_slow(major, minor));
        assert_eq!(slow, [true, true, true, false, false]);
    }
}
