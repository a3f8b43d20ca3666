//! A process and its descendants.

use std::fs;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::procfs::{self, Pid, Stat};

/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process, told from a later one with the same PID by the time it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    start: u64,
    /// Whether a signal had stopped it when it was listed.
    is_stopped: bool,
}

/// Lists a process and all that descend from it, parents first. The list is complete only if none of them runs.
pub(crate) fn list(root: Pid) -> Vec<Process> {
    let mut tree: Vec<Process> = Process::read(root).into_iter().collect();
    let mut next = 0;
    while let Some(&Process { pid: parent, .. }) = tree.get(next) {
        next += 1;
        for tid in procfs::threads(parent).unwrap_or_default() {
            let children = fs::read_to_string(procfs::path(parent, &format!("task/{tid}/children")));
            let pids = children.unwrap_or_default();
            tree.extend(pids.split_whitespace().filter_map(|pid| Process::read(pid.parse().ok()?)));
        }
    }
    tree
}

impl Process {
    fn read(pid: Pid) -> Option<Self> {
        let stat = Stat::read(pid, pid).ok()?;
        Some(Self { pid, start: stat.start, is_stopped: stat.state == b'T' })
    }

    /// Its state as of now, unless it is gone and waited for.
    fn state(&self) -> Option<u8> {
        let stat = Stat::read(self.pid, self.pid).ok()?;
        (stat.start == self.start).then_some(stat.state)
    }

    fn is_dead(&self) -> bool {
        matches!(self.state(), None | Some(b'Z' | b'X'))
    }

    /// Sends it a signal. A process that took over its PID gets none.
    fn signal(&self, signal: Signal) {
        let Some(pid) = rustix::process::Pid::from_raw(self.pid) else { return };
        // The descriptor refers to one process for good, so that the check holds for whom the signal reaches.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && self.state().is_some()
        {
            // Fails only if it has ended.
            let _ = pidfd_send_signal(&process, signal);
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
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
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
        process.signal(Signal::CONT);
    }
}

/// Kills all of them.
pub(crate) fn kill(tree: &[Process]) {
    for process in tree {
        process.signal(Signal::KILL);
    }
}

/// Blocks until all of them have ended; their parents may still have to wait for them.
pub(crate) fn wait_for_end(tree: &[Process]) {
    let begun = Instant::now();
    while !tree.iter().all(Process::is_dead) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
