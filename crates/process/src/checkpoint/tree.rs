//! A process and its descendants.

use std::fs;
use std::time::{Duration, Instant};

use crate::procfs::{self, Pid, Status};

/// How long killed processes may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process and all that descend from it, parents first.
pub(crate) fn of(pid: Pid) -> Vec<Pid> {
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        next += 1;
        for tid in procfs::threads(parent).unwrap_or_default() {
            let children = fs::read_to_string(procfs::path(parent, &format!("task/{tid}/children")));
            tree.extend(
                children.unwrap_or_default().split_whitespace().filter_map(|id| id.parse::<Pid>().ok()),
            );
        }
    }
    tree
}

/// Bytes of memory that these processes have of their own or share.
pub(crate) fn resident(tree: &[Pid]) -> u64 {
    let pages = |pid: &Pid| -> Option<u64> {
        procfs::read_text(*pid, "statm").ok()?.split_whitespace().nth(1)?.parse().ok()
    };
    tree.iter().filter_map(pages).sum::<u64>() * crate::PAGE
}

/// Sends a signal to all of them that are there.
pub(crate) fn signal(tree: &[Pid], signal: i32) {
    for &pid in tree {
        if Status::read(pid).is_ok_and(|status| !status.is_dead()) {
            // SAFETY: numbers only.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

/// Ends all of them and waits until they have; what is left of them then is up to their parents.
pub(crate) fn end(tree: &[Pid]) {
    signal(tree, libc::SIGKILL);
    let is_dead = |pid: &Pid| Status::read(*pid).map_or(true, |status| status.is_dead());
    let begun = Instant::now();
    while !tree.iter().all(is_dead) && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}
