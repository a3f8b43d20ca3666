//! A pager for reports on a terminal, as git has one: `$PAGEHAUL_PAGER`, `$PAGER`, or `less -FRX`.
//!
//! Commands on dumps can start no program once they are confined, so a helper is started before: this program again, which becomes the
//! pager when there is output. Until then the terminal is as it was, for progress and questions.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;

use rustix::event::{PollFd, PollFlags, poll};

use crate::standard_output;

/// The hidden command that waits for output.
pub(crate) const HELPER: &str = "hold-pager";
/// What git sets for less, unless the user has: quit if all is on one screen, pass colours, leave the text on the screen.
const LESS: &str = "FRX";

/// The pager, and the messages for standard error that wait until it has ended.
struct Pager {
    child: Child,
    has_output: bool,
    kept: Vec<String>,
}

static PAGER: Mutex<Option<Pager>> = Mutex::new(None);

/// Starts the helper where standard output is a terminal, and makes its pipe the standard output. Without a pager, output goes to the
/// terminal.
pub(crate) fn start() {
    if standard_output::is_closed()
        || !io::stdout().is_terminal()
        || standard_output::is_console(io::stdout())
    {
        return;
    }
    // A pager in the background (`&`, timeout(1)) would be stopped when it reads the terminal.
    let foreground = rustix::termios::tcgetpgrp(io::stdout());
    if foreground.is_ok_and(|foreground| foreground != rustix::process::getpgrp()) {
        return;
    }
    let Some(program) = program() else { return };
    let Ok(this) = std::env::current_exe() else { return };
    standard_output::note_terminal();
    let mut helper = Command::new(this);
    helper.args([OsStr::new(HELPER), &program]).stdin(Stdio::piped());
    let Ok(mut child) = helper.spawn() else { return };
    let Some(pipe) = child.stdin.take() else { return };
    // Not kept open as another file: the process that fetches URLs would have it, too, and the pager never see the end.
    // SAFETY: both descriptors are open, and nothing owns that of standard output.
    if unsafe { libc::dup2(pipe.as_raw_fd(), libc::STDOUT_FILENO) } < 0 {
        return;
    }
    if let Ok(mut pager) = PAGER.lock() {
        *pager = Some(Pager { child, has_output: false, kept: Vec::new() });
    }
}

/// The user's pager, or less, if it can be run.
fn program() -> Option<OsString> {
    let chosen = std::env::var_os("PAGEHAUL_PAGER").or_else(|| std::env::var_os("PAGER"));
    // -R passes colours, whatever the user's LESS is.
    let chosen = chosen.unwrap_or_else(|| "less -R".into());
    (!chosen.is_empty() && chosen != "cat" && can_run(&chosen)).then_some(chosen)
}

/// Whether the shell will find the program of a command. What is not a plain word is left to the shell.
fn can_run(command: &OsStr) -> bool {
    let bytes = command.as_bytes();
    let mut words = bytes.split(|byte| byte.is_ascii_whitespace());
    let word = words.find(|word| !word.is_empty() && *word != b"exec");
    let Some(word) = word else { return false };
    if !word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._+-".contains(byte) || *byte >= 0x80) {
        return true;
    }
    let is_program = |path: &Path| {
        let access = rustix::fs::access(path, rustix::fs::Access::EXEC_OK);
        path.is_file() && access.is_ok()
    };
    let word = Path::new(OsStr::from_bytes(word));
    if word.as_os_str().as_bytes().contains(&b'/') {
        return is_program(word);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| is_program(&directory.join(word)))
}

/// Notes that there is output.
pub(crate) fn begin() {
    let Ok(mut pager) = PAGER.lock() else { return };
    if let Some(pager) = pager.as_mut().filter(|pager| !pager.has_output) {
        pager.has_output = true;
        // Ctrl-C is the pager's: this process must not leave it alone with the terminal.
        // SAFETY: no handler, and no other thread depends on the action.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    }
}

/// Keeps lines for standard error until the pager has ended. Returns whether it did.
pub(crate) fn keep(lines: &str) -> bool {
    let Ok(mut pager) = PAGER.lock() else { return false };
    let Some(pager) = pager.as_mut().filter(|pager| pager.has_output) else { return false };
    pager.kept.push(lines.to_owned());
    true
}

/// Waits until the user has read the output. Nothing can be printed to standard output afterwards.
pub(crate) fn end() {
    let Some(mut pager) = PAGER.lock().ok().and_then(|mut pager| pager.take()) else { return };
    let _ = io::stdout().flush();
    // SAFETY: standard output is the pipe, and what would be printed to it now is lost.
    unsafe { rustix::io::close(libc::STDOUT_FILENO) };
    let _ = pager.child.wait();
    for lines in pager.kept {
        let _ = writeln!(io::stderr(), "{lines}");
    }
}

/// Becomes the pager when there is something to read, and ends if there will be nothing.
pub(crate) fn hold(program: &OsStr) -> ExitCode {
    let stdin = io::stdin();
    let mut files = [PollFd::new(&stdin, PollFlags::IN)];
    while poll(&mut files, None) == Err(rustix::io::Errno::INTR) {}
    if !files[0].revents().contains(PollFlags::IN) {
        return ExitCode::SUCCESS;
    }
    let mut pager = Command::new("sh");
    pager.arg("-c").arg(program);
    if std::env::var_os("LESS").is_none() {
        pager.env("LESS", LESS);
    }
    let error = pager.exec();
    let _ = writeln!(io::stderr(), "pagehaul: cannot run a pager: {error}; PAGER= prints without one");
    ExitCode::FAILURE
}
