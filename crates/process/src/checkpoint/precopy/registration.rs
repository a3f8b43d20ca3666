//! Which mappings of a process are tracked. They are listed and registered while it is stopped: else a mapping could have changed in
//! between, and be split where its old neighbour ended. A program cannot move (mremap) memory of two mappings, one of them tracked: it
//! gets EFAULT, and since Linux 6.17 part of it is moved.

use std::ops::Range;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use super::super::marks::Marked;
use super::tracked::{Reason, is_private_anonymous};
use super::userfault::Userfault;
use crate::agent::{Helper, USERFAULTFD_HELPER};
use crate::error::ProcessError;
use crate::fork::descriptor_of;
use crate::mapping::{self, Mapping};
use crate::units::Pid;
use crate::urgent::Urgent;

pub(super) struct Registration {
    pub(super) userfault: Userfault,
    /// Mappings that were tracked at an earlier checkpoint.
    pub(super) tracked: Vec<Range<u64>>,
    /// Mappings that were registered then, and those that are now.
    pub(super) old: Vec<Range<u64>>,
    pub(super) new: Vec<Range<u64>>,
    /// How long the process was stopped.
    pub(super) stopped: Duration,
}

impl Registration {
    /// Registers the private anonymous memory of a process that had these mappings a moment ago. It is stopped, for the descriptor
    /// and as long as it takes to list and register its mappings, unless all are registered already.
    pub(super) fn new(pid: Pid, kept: Option<Marked>, before: &[Mapping]) -> Result<Self, ProcessError> {
        let is_old = |mapping: &Mapping| mapping.has(b"uw");
        let own = || before.iter().filter(|mapping| is_private_anonymous(mapping));
        let marked: Vec<Range<u64>> =
            own().filter(|mapping| is_old(mapping)).map(|mapping| mapping.range.clone()).collect();
        let kept = match kept {
            Some(Marked { descriptor, tracked, .. }) if own().all(is_old) => {
                let userfault = Userfault::again(descriptor);
                return Ok(Self {
                    userfault,
                    tracked,
                    old: marked,
                    new: Vec::new(),
                    stopped: Duration::ZERO,
                });
            }
            kept => kept,
        };
        let _urgent = Urgent::begin();
        let mut command = Helper::command(USERFAULTFD_HELPER, pid)?;
        let mut helper = Helper::start(pid, command.arg(u8::from(kept.is_none()).to_string()))?;
        let ([number, nanoseconds, ..], _) = helper.ask()?;
        let asked = Instant::now();
        let (userfault, tracked) = match kept {
            Some(kept) => (Userfault::again(kept.descriptor), kept.tracked),
            None => (take_over(helper.pid(), number as RawFd).map_err(ProcessError::Refused)?, Vec::new()),
        };
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for Mapping { range, .. } in mapping::read_plain(pid, pid)?.iter().filter(|m| is_private_anonymous(m))
        {
            let next = marked.partition_point(|marked| marked.end <= range.start);
            if marked.get(next).is_some_and(|marked| marked.start < range.end) {
                old.push(range.clone());
            } else if userfault.register(range).is_ok() {
                new.push(range.clone());
            }
            // One that cannot be tracked is copied in the freeze.
        }
        // The process goes on.
        let _ = helper.end();
        let stopped = Duration::from_nanos(nanoseconds) + asked.elapsed();
        Ok(Self { userfault, tracked, old, new, stopped })
    }
}

/// Takes the descriptor that a helper has opened.
fn take_over(helper: Pid, number: RawFd) -> Result<Userfault, Reason> {
    let descriptor = descriptor_of(helper, number)
        .map_err(|error| format!("its userfaultfd could not be taken over: {error}"))?;
    Userfault::new(descriptor).map_err(|error| {
        format!("this kernel has no asynchronous write protection (Linux 6.7 and newer have it): {error}")
    })
}
