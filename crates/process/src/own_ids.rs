//! Numbers of processes as the process that is saved sees them. A core has those of its PID namespace, as the kernel's own
//! cores do (`task_pid_vnr()` in fs/binfmt_elf.c): debuggers compare them with numbers in its memory.

use crate::error::ProcessError;
use crate::procfs::{Stat, Status};
use crate::units::Pid;

/// The numbers of a thread that a core holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) process: Pid,
    pub(crate) thread: Pid,
    /// These are 0 if they are not in the namespace.
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
}

/// How a process numbers itself and its relatives.
pub(crate) struct OwnIds {
    pid: Pid,
    /// None if its namespace is this program's.
    nested: Option<Ids>,
}

impl OwnIds {
    /// Of a process. On kernels before 4.1, which do not say them, all numbers are this program's.
    pub(crate) fn of(pid: Pid) -> Result<Self, ProcessError> {
        let status = Status::read(pid)?;
        if status.ns_pids.len() < 2 {
            return Ok(Self { pid, nested: None });
        }
        let last = |ids: &[Pid]| ids.last().copied().unwrap_or(0);
        // Each number is that of a namespace further in. A parent's namespace is its child's, or one outside of it.
        let parent = Status::read(status.parent).unwrap_or_default().ns_pids;
        let nested = Ids {
            process: last(&status.ns_pids),
            thread: 0,
            parent: parent.get(status.ns_pids.len() - 1).copied().unwrap_or(0),
            group: last(&status.ns_groups),
            session: last(&status.ns_sessions),
        };
        Ok(Self { pid, nested: Some(nested) })
    }

    /// Of one of its threads.
    pub(crate) fn of_thread(&self, tid: Pid, stat: &Stat) -> Ids {
        match self.nested {
            None => Ids {
                process: self.pid,
                thread: tid,
                parent: stat.parent,
                group: stat.group,
                session: stat.session,
            },
            Some(ids) => {
                let thread = Status::read(tid).ok().and_then(|status| status.ns_pids.last().copied());
                Ids { thread: thread.unwrap_or(tid), ..ids }
            }
        }
    }
}
