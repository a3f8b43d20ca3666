//! Blocking signals, for processes that must not end at any moment.

use std::io;
use std::marker::PhantomData;

/// Bytes of the kernel's `sigset_t`.
const SIZE: usize = 8;
/// Every signal that can be blocked: all but SIGKILL and SIGSTOP.
pub(crate) const ALL: u64 = u64::MAX;
/// The signals that people and service managers send to end a program.
pub(crate) const ENDING: u64 =
    bit(libc::SIGTERM) | bit(libc::SIGINT) | bit(libc::SIGHUP) | bit(libc::SIGQUIT);

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals blocked in the calling thread until this is dropped. A process started meanwhile has them blocked from its
/// first instruction on, past its exec.
pub(crate) struct Blocked {
    before: u64,
    /// A mask is a thread's.
    _not_send: PhantomData<*const ()>,
}

impl Blocked {
    /// Blocks `signals`; those that are blocked already stay so.
    pub(crate) fn new(signals: u64) -> io::Result<Self> {
        let mut before = 0;
        change(libc::SIG_BLOCK, signals, &mut before)?;
        Ok(Self { before, _not_send: PhantomData })
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It cannot fail: the same call has set a mask before.
        let _ = change(libc::SIG_SETMASK, self.before, &mut 0);
    }
}

/// Changes the calling thread's mask. The kernel's call, since C libraries keep some signals unblocked.
fn change(how: libc::c_int, signals: u64, before: &mut u64) -> io::Result<()> {
    let (set, old): (*const u64, *mut u64) = (&raw const signals, before);
    // SAFETY: both point to masks of `SIZE` bytes that live through the call.
    match unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, SIZE) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn processes_are_started_with_signals_blocked_and_this_one_goes_on_as_before() {
        let masks = || {
            let output = Command::new("grep").args(["SigBlk", "/proc/self/status"]).output().unwrap();
            let line = String::from_utf8(output.stdout).unwrap();
            u64::from_str_radix(line.trim_start_matches("SigBlk:").trim(), 16).unwrap()
        };
        let before = masks();
        let blocked = Blocked::new(ENDING).unwrap();
        assert_eq!(masks(), before | ENDING);
        drop(blocked);
        assert_eq!(masks(), before);
        let blocked = Blocked::new(ALL).unwrap();
        assert_eq!(masks(), ALL & !(bit(libc::SIGKILL) | bit(libc::SIGSTOP)));
        drop(blocked);
        assert_eq!(masks(), before);
    }
}
