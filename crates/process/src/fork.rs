//! Snapshots: a child of a stopped process made by fork, which never runs an instruction of the program.
//!
//! A child of the process itself would become a zombie that only the process can remove. So the process makes a helper
//! that shares its memory (no copy), the helper forks the snapshot, the helper is killed, and the process waits for it
//! (all while it is stopped). The snapshot is then a child of init, or of the nearest subreaper, and the process is
//! unchanged.

use std::fs;
use std::io;

use crate::Pid;
use crate::ProcessError;
use crate::inject::{self, Caller, EXIT_WITH_TRACER, SUSPEND_SECCOMP, no_snapshot, wait_for_child};
use crate::mapping::{self, Mapping};
use crate::procfs::{self, Status};
use crate::ptrace::{self, Waited};
use crate::stop::Stopped;
use crate::stub::Stub;
use crate::vdso::Vdso;

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
    let mappings = mapping::read_plain(pid, held.threads().first().map_or(pid, |thread| thread.tid))?;
    let clean = held.threads().iter().find(|thread| thread.clean).map(|thread| thread.tid);
    let tid = clean.ok_or_else(|| {
        no_snapshot(pid, "all its threads are stopped or on their way to a signal; try again")
    })?;
    let vdso = Vdso::read(tid, &mappings);
    let (vdso, instruction) = vdso
        .and_then(|vdso| vdso.system_call().map(|instruction| (vdso, instruction)))
        .ok_or_else(|| no_snapshot(pid, "it has no vDSO with a system call in it"))?;
    if ptrace::dispatches_system_calls(tid) {
        return Err(no_snapshot(pid, "it handles its system calls itself (syscall user dispatch)"));
    }
    let seccomp = Status::read(tid)?.seccomp != 0;
    let options = if seccomp { SUSPEND_SECCOMP } else { 0 };
    let failed = |what: &'static str| move |error: io::Error| no_snapshot(pid, format!("{what}: {error}"));
    let stub = Stub::place(&vdso, tid, held.threads().iter().map(|thread| thread.tid));
    let mut caller = Caller::new(tid, instruction, options, stub.as_ref()).map_err(|error| {
        if seccomp && error.raw_os_error() == Some(libc::EPERM) {
            no_snapshot(pid, "its seccomp filters could kill it for forking, and only root may suspend them")
        } else {
            failed("its thread could not be taken over")(error)
        }
    })?;
    let result = family(pid, &mut caller, options, instruction);
    // Restores the registers in every case.
    let restored = caller.restore().map_err(failed("its registers could not be restored"));
    if let Some(stub) = &stub
        && restored.is_ok()
    {
        // A snapshot that is left behind never runs.
        let _ = stub.clear(tid);
    }
    if let Some(signal) = caller.stop_signal {
        // SAFETY: numbers only. Sends the deferred stop signal.
        unsafe { libc::kill(pid, signal) };
    }
    let child = result?;
    let snapshot = Snapshot { pid: child, instruction, caller: None, stub };
    restored?;
    Ok(snapshot)
}

/// Process, helper, snapshot. `instruction` is a `syscall` of the vDSO, which all three have.
fn family(
    pid: Pid,
    caller: &mut Caller,
    options: libc::c_int,
    instruction: u64,
) -> Result<Pid, ProcessError> {
    let failed = |what: &'static str| move |error: io::Error| no_snapshot(pid, format!("{what}: {error}"));
    let clone = |caller: &mut Caller, flags: u64| -> io::Result<(i64, Pid)> {
        let id = caller.call(libc::SYS_clone, [flags, 0, 0, 0, 0, 0])?;
        if id < 0 {
            return Err(io::Error::from_raw_os_error(-id as i32));
        }
        let child = caller.take_child().ok_or(io::ErrorKind::NotFound)?;
        wait_for_child(child)?;
        Ok((id, child))
    };
    // No signal at its end, so that the process does not notice.
    let (id, helper) = clone(caller, SHARED | libc::CLONE_VM as u64).map_err(failed("it could not clone"))?;
    let copy = Caller::new(helper, caller.instruction(), options | EXIT_WITH_TRACER, None)
        .and_then(|mut helper| {
            let (id, child) = clone(&mut helper, SHARED | libc::SIGCHLD as u64)?;
            Ok((id, child))
        })
        .map_err(failed("it could not fork"));
    kill(helper, instruction).map_err(failed("its helper could not be killed"))?;
    let mut reap = |id: i64| caller.call(libc::SYS_wait4, [id as u64, 0, libc::__WALL as u64, 0, 0, 0]);
    reap(id).map_err(failed("its helper could not be waited for"))?;
    let (copy_id, child) = copy?;
    if Status::read(child).is_ok_and(|status| status.parent == pid) {
        // A subreaper inherits orphans below it.
        kill(child, instruction).map_err(failed("the snapshot could not be killed"))?;
        reap(copy_id).map_err(failed("the snapshot could not be waited for"))?;
        return Err(no_snapshot(
            pid,
            "it is a subreaper, and the snapshot would be left as its zombie child",
        ));
    }
    Ok(child)
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
