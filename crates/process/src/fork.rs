//! Snapshots: a child of a stopped process made by fork, which never runs an instruction of the program.
//!
//! A child of the process itself would become a zombie that only the process can remove. So the process makes a helper
//! that shares its memory (no copy), the helper forks the snapshot, the helper is killed, and the process waits for it
//! (all while it is stopped). The snapshot is then a child of init, or of the nearest subreaper, and the process is
//! unchanged.

use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use crate::borrow::{Borrowed, with_thread};
use crate::error::ProcessError;
use crate::inject::{self, Caller, EXIT_WITH_TRACER, no_snapshot, wait_for_child};
use crate::mapping::Mapping;
use crate::procfs::{self, Status};
use crate::ptrace::{self, Waited};
use crate::stop::Stopped;
use crate::stub::Stub;
use crate::units::Pid;

/// Both share descriptors and working directory with the process, so that no file is held open twice.
const SHARED: u64 = (libc::CLONE_FILES | libc::CLONE_FS) as u64;
/// All descriptors, in a new table (`CLOSE_RANGE_UNSHARE`, Linux 5.9).
const CLOSE_ALL: [u64; 6] = [0, u32::MAX as u64, 2, 0, 0, 0];

/// A copy-on-write copy of a process that never runs. Dropping it kills it, and so does the death of this program.
pub(crate) struct Snapshot {
    pub(crate) pid: Pid,
    /// A `syscall` instruction in its memory.
    instruction: u64,
    caller: Option<Caller>,
    /// Copied with the process's memory.
    stub: Option<Stub>,
}

/// Verifies that a snapshot can be made, before anything is touched.
pub(crate) fn check(pid: Pid, mappings: &[Mapping]) -> Result<(), ProcessError> {
    // The snapshot and its helper must be killed at the end; a tracer may not signal what it may trace.
    // SAFETY: numbers only; signal 0 only checks.
    if unsafe { libc::kill(pid, 0) } != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM) {
        return Err(no_snapshot(
            pid,
            "it belongs to another user, and the copy could not be killed; run pagehaul as root, or with CAP_KILL",
        ));
    }
    let status = Status::read(pid)?;
    if status.ns_pids.last() == Some(&1) {
        return Err(no_snapshot(
            pid,
            "it is the init of its PID namespace, and the snapshot would be left as its zombie child",
        ));
    }
    // A fork notifies the monitor of userfaultfd, and waits for it; the monitor may be a thread of the stopped process.
    if mappings.iter().any(|mapping| mapping.has(b"um") || mapping.has(b"uw")) {
        return Err(no_snapshot(pid, "it uses userfaultfd, which a fork would disturb"));
    }
    Ok(())
}

/// Makes a stopped process fork.
pub(crate) fn fork(held: &mut Stopped) -> Result<Snapshot, ProcessError> {
    let pid = held.pid();
    with_thread(held, |borrowed| {
        let child = family(pid, borrowed)?;
        Ok(Snapshot { pid: child, instruction: borrowed.instruction, caller: None, stub: borrowed.stub })
    })
}

/// Process, helper, snapshot.
fn family(pid: Pid, borrowed: &mut Borrowed) -> Result<Pid, ProcessError> {
    let (copy_id, child) = with_helper(pid, borrowed, |helper, _| {
        clone(helper, SHARED | libc::SIGCHLD as u64).map_err(failed(pid, "it could not fork"))
    })?;
    if Status::read(child).is_ok_and(|status| status.parent == pid) {
        // A subreaper inherits orphans below it.
        kill(child, borrowed.instruction).map_err(failed(pid, "the snapshot could not be killed"))?;
        reap(&mut borrowed.caller, copy_id).map_err(failed(pid, "the snapshot could not be waited for"))?;
        return Err(no_snapshot(
            pid,
            "it is a subreaper, and the snapshot would be left as its zombie child",
        ));
    }
    Ok(child)
}

/// Has a stopped process make a helper that shares its memory, its descriptors and its working directory. The helper is
/// gone when this returns.
fn with_helper<T>(
    pid: Pid,
    borrowed: &mut Borrowed,
    act: impl FnOnce(&mut Caller, Pid) -> Result<T, ProcessError>,
) -> Result<T, ProcessError> {
    let Borrowed { caller, options, instruction, .. } = borrowed;
    // No signal at its end, so that the process does not notice.
    let (id, helper) =
        clone(caller, SHARED | libc::CLONE_VM as u64).map_err(failed(pid, "it could not clone"))?;
    let result = Caller::new(helper, caller.instruction(), *options | EXIT_WITH_TRACER, None)
        .map_err(failed(pid, "its helper could not be taken over"))
        .and_then(|mut made| act(&mut made, helper));
    kill(helper, *instruction).map_err(failed(pid, "its helper could not be killed"))?;
    reap(caller, id).map_err(failed(pid, "its helper could not be waited for"))?;
    result
}

/// Has a thread make a child. Returns its PID in the thread's namespace and in this program's.
fn clone(caller: &mut Caller, flags: u64) -> io::Result<(i64, Pid)> {
    let id = caller.call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
    if id < 0 {
        return Err(io::Error::from_raw_os_error(-id as i32));
    }
    let child = caller.take_child().ok_or(io::ErrorKind::NotFound)?;
    wait_for_child(child)?;
    Ok((id, child))
}

/// Has a thread wait for a child that was killed.
fn reap(caller: &mut Caller, id: i64) -> io::Result<i64> {
    caller.call(libc::SYS_wait4, [id as u64, 0, libc::__WALL as u64, 0, 0, 0])
}

fn failed(pid: Pid, what: &'static str) -> impl Fn(io::Error) -> ProcessError {
    move |error| no_snapshot(pid, format!("{what}: {error}"))
}

/// Opens a userfaultfd for the memory of a stopped process. A helper that shares only its memory opens it, in a table of
/// descriptors that dies with the helper, so that none is left in the process.
pub(crate) fn open_userfaultfd(held: &mut Stopped) -> Result<OwnedFd, ProcessError> {
    /// Needs no privilege (`UFFD_USER_MODE_ONLY`, Linux 5.11). The kernel answers asynchronous faults of its own accesses too.
    const USER_MODE_ONLY: u64 = 1;
    const FLAGS: u64 = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64 | USER_MODE_ONLY;
    let pid = held.pid();
    with_thread(held, |borrowed| {
        with_helper(pid, borrowed, |caller, helper| {
            let mut open = || -> io::Result<OwnedFd> {
                let mut call = |number, arguments| match caller.call(number, arguments)? {
                    result if result < 0 => Err(io::Error::from_raw_os_error(-result as i32)),
                    result => Ok(result),
                };
                call(libc::SYS_close_range, CLOSE_ALL)?;
                let number = call(libc::SYS_userfaultfd, [FLAGS, 0, 0, 0, 0, 0])?;
                descriptor_of(helper, number as RawFd)
            };
            open().map_err(failed(pid, "it could not open a userfaultfd"))
        })
    })
}

/// Returns another process's descriptor: Linux 5.6 (commit 8649c322f75c, "pid: Implement pidfd_getfd syscall").
pub(crate) fn descriptor_of(pid: Pid, number: RawFd) -> io::Result<OwnedFd> {
    let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(&process, number, PidfdGetfdFlags::empty())?)
}

impl Snapshot {
    /// Does what the process need not be stopped for. Closes the descriptors shared with it. Leaves its session and
    /// process group, whose number a restart could not reuse before init has waited for the snapshot. Makes
    /// the snapshot the first to be killed when memory is short.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        let mut caller = Caller::new(self.pid, self.instruction, EXIT_WITH_TRACER, None)?;
        // A core holds the vDSO as the kernel made it.
        self.stub.take().map_or(Ok(()), |stub| stub.clear(self.pid))?;
        caller.call(libc::SYS_setsid, [0; 6])?;
        let result = caller.call(libc::SYS_close_range, CLOSE_ALL)?;
        // Left at the end of the call: it never runs again.
        self.caller = Some(caller);
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result as i32));
        }
        // If this fails, the OOM killer treats the snapshot as any other process.
        let _ = fs::write(procfs::path(self.pid, "oom_score_adj"), "1000");
        Ok(())
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        // What can be neither killed nor made to end dies with this program, by EXIT_WITH_TRACER.
        let _ = kill(self.pid, self.instruction);
    }
}

/// Kills a process that we trace, or has it end at the `syscall` `instruction`, and waits for its end.
fn kill(pid: Pid, instruction: u64) -> io::Result<()> {
    // SAFETY: numbers only; the process is ours.
    if unsafe { libc::kill(pid, libc::SIGKILL) } != 0 {
        inject::exit(pid, instruction)?;
    }
    while !matches!(ptrace::wait(pid, true), Ok(Waited::Gone) | Err(_)) {
        // SIGSTOP cannot be blocked.
        let _ = ptrace::resume(pid);
    }
    Ok(())
}
