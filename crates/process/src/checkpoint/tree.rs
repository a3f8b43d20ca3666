//! A process and its descendants.

use std::time::{Duration, Instant};

use pagehaul_run::memory;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::ProcessError;
use crate::procfs::{self, Stat};
use crate::units::Pid;

/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process; the time it started distinguishes it from a later one with the same PID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    start: u64,
    /// Whether a signal had stopped it when it was listed.
    is_stopped: bool,
}

/// Lists a process and all that descend from it, parents first. The list is complete only if none of them runs.
pub(crate) fn list(root: Pid) -> Result<Vec<Process>, ProcessError> {
    let mut tree: Vec<Process> = Process::read(root)?.into_iter().collect();
    let mut next = 0;
    while let Some(&Process { pid: parent, .. }) = tree.get(next) {
        next += 1;
        for tid in unless_gone(procfs::threads(parent))?.unwrap_or_default() {
            let children = unless_gone(procfs::read_text(parent, &format!("task/{tid}/children")))?;
            for pid in children.unwrap_or_default().split_whitespace() {
                tree.extend(pid.parse().ok().map(Process::read).transpose()?.flatten());
            }
        }
    }
    Ok(tree)
}

/// None for what could not be read because the process or thread has ended.
fn unless_gone<T>(read: Result<T, ProcessError>) -> Result<Option<T>, ProcessError> {
    match read {
        Err(ProcessError::NoProcess(_)) => Ok(None),
        Err(ProcessError::Proc { source, .. })
            if matches!(source.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) =>
        {
            Ok(None)
        }
        read => read.map(Some),
    }
}

impl Process {
    /// Its PID and when it started.
    pub(super) fn identity(&self) -> (Pid, u64) {
        (self.pid, self.start)
    }

    /// Whether this is a process that has not ended.
    pub(super) fn is((pid, start): (Pid, u64)) -> bool {
        !Self { pid, start, is_stopped: false }.is_dead()
    }

    fn read(pid: Pid) -> Result<Option<Self>, ProcessError> {
        let stat = unless_gone(Stat::read(pid, pid))?;
        Ok(stat.map(|stat| Self { pid, start: stat.start, is_stopped: stat.state == b'T' }))
    }

    /// Whether it has ended; its parent may still have to wait for it.
    pub(super) fn is_dead(&self) -> bool {
        match Stat::read(self.pid, self.pid) {
            Ok(stat) => stat.start != self.start || matches!(stat.state, b'Z' | b'X'),
            Err(error) => matches!(unless_gone::<()>(Err(error)), Ok(None)),
        }
    }

    /// Sends it a signal. A process that took over its PID gets none.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let pid = rustix::process::Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        // The descriptor refers to one process for good, so that the check holds for whom the signal reaches.
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        if self.is_dead() { Ok(()) } else { pidfd_send_signal(&process, signal) }
    }

    /// Sends a signal to a stopped process. Uses its PID if there is no descriptor (EMFILE, ENOMEM). No other process can have
    /// the PID: the process does not end until it is continued, and if it is killed, its parent has to wait for it first.
    fn signal_by_any_means(&self, signal: Signal) {
        if self.signal(signal).is_err()
            && let Some(pid) = rustix::process::Pid::from_raw(self.pid)
        {
            // Fails only if it has ended.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Whether the kernel can signal processes by descriptors: Linux 5.3 (commit 32fcb426ec00, "pid: add pidfd_open()").
pub(crate) fn can_signal() -> bool {
    pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).err() != Some(Errno::NOSYS)
}

/// Bytes of memory that these processes have resident. What some of them share counts once.
pub(crate) fn resident(tree: &[Process]) -> u64 {
    // Pss divides a page by the number of its users (Linux 4.14: commit 493b0e9d945f, "mm: add /proc/pid/smaps_rollup").
    let proportional = |process: &Process| -> Option<u64> {
        let text = procfs::read_text(process.pid, "smaps_rollup").ok()?;
        memory::bytes_of(&text, "Pss:")
    };
    tree.iter().filter_map(proportional).sum()
}

/// Continues those that are stopped, except those that were stopped `before` already.
pub(crate) fn resume(tree: &[Process], before: &[Process]) {
    let was_stopped = |process: &Process| {
        before
            .iter()
            .any(|known| known.is_stopped && known.start == process.start && known.pid == process.pid)
    };
    for process in tree.iter().filter(|process| process.is_stopped && !was_stopped(process)) {
        process.signal_by_any_means(Signal::CONT);
    }
}

/// Kills processes that are traced.
pub(crate) fn kill(tree: &[Process]) {
    tree.iter().for_each(|process| process.signal_by_any_means(Signal::KILL));
}

/// Blocks until all of them have ended, but not forever.
pub(crate) fn wait_for_end(tree: &[Process]) {
    let begun = Instant::now();
    while !tree.iter().all(Process::is_dead) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
