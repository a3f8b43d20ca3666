//! Child processes.

use crate::Result;
use crate::system::check;

/// How a child ended, and what it used together with the children it waited for.
pub struct Ended {
    /// Exit code, unless a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// CPU seconds in user mode.
    pub user_seconds: f64,
    /// CPU seconds in the kernel.
    pub system_seconds: f64,
    /// Largest resident set, in KiB.
    pub peak_rss_kib: u64,
}

/// Collects a child if it has ended.
pub fn reap(pid: i32) -> Result<Option<Ended>> {
    let mut status = 0;
    // SAFETY: rusage is plain data.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for writes during the call.
    let ended = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage) };
    if check(ended.into(), "wait4")? == 0 {
        return Ok(None);
    }
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok(Some(Ended {
        exit_code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_seconds: seconds(usage.ru_utime),
        system_seconds: seconds(usage.ru_stime),
        peak_rss_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
    }))
}
