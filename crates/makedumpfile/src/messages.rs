//! Messages at makedumpfile's message levels, never waiting for the console.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bits of --message-level.
pub(crate) const PROGRESS: u8 = 1;
pub(crate) const COMMON: u8 = 2;
pub(crate) const ERROR: u8 = 4;
pub(crate) const DEBUG: u8 = 8;
pub(crate) const REPORT: u8 = 16;

/// Bytes per write: a terminal that is ready takes at least as many (`WAKEUP_CHARS`, drivers/tty/n_tty.c).
const PIECE: usize = 256;
/// How long all messages of a run wait for a console together. A serial console of 9,600 baud takes 960 bytes a second.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where messages go.
#[derive(Debug)]
pub(crate) struct Messages {
    /// The bits of --message-level.
    level: u8,
    /// Standard output carries the dump.
    output_taken: bool,
    /// Time left for waiting.
    patience: Duration,
}

impl Messages {
    pub(crate) fn new(level: i64, output_taken: bool) -> Self {
        // An invalid level is reported at the default level.
        let level = u8::try_from(level).ok().filter(|level| *level <= 31).unwrap_or(7);
        Self { level, output_taken, patience: PATIENCE }
    }

    /// Returns whether messages of this kind are printed.
    pub(crate) fn shows(&self, kind: u8) -> bool {
        self.level & kind != 0
    }

    /// Prints a line of the given kind.
    pub(crate) fn say(&mut self, kind: u8, line: &str) {
        if !self.shows(kind) {
            return;
        }
        if kind == ERROR || self.output_taken {
            self.alarm(line);
        } else {
            send(std::io::stdout(), &format!("{line}\n"), &mut self.patience);
        }
    }

    /// Prints a line on standard error at every message level.
    pub(crate) fn alarm(&mut self, line: &str) {
        send(std::io::stderr(), &format!("{line}\n"), &mut self.patience);
    }
}

/// Prints text on standard error only if it can be taken at once.
pub(crate) fn show_at_once(text: &str) {
    let mut patience = Duration::ZERO;
    send(std::io::stderr(), text, &mut patience);
}

/// Writes text, and waits no longer than `patience` for the reader. The rest is lost.
fn send(mut to: impl Write + AsFd, text: &str, patience: &mut Duration) {
    for piece in text.as_bytes().chunks(PIECE) {
        let begun = Instant::now();
        let ready = is_ready(&to, *patience);
        *patience = patience.saturating_sub(begun.elapsed());
        if !ready || to.write_all(piece).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Returns whether `to` takes bytes within `patience`.
fn is_ready(to: &impl AsFd, patience: Duration) -> bool {
    let mut polled = [PollFd::new(to, PollFlags::OUT)];
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    match poll(&mut polled, Some(&timeout)) {
        Ok(ready) => ready > 0 && polled[0].revents().contains(PollFlags::OUT),
        // What cannot be polled is a file.
        Err(_) => true,
    }
}
