//! Borrowing a thread of a stopped process: it makes system calls for us, and is put back as it was.

use std::io;

use crate::error::ProcessError;
use crate::inject::{Caller, SUSPEND_SECCOMP, no_snapshot};
use crate::mapping;
use crate::procfs::Status;
use crate::ptrace;
use crate::stop::Stopped;
use crate::stub::Stub;
use crate::vdso::Vdso;

/// A thread that makes system calls for us.
pub(crate) struct Borrowed {
    pub(crate) caller: Caller,
    /// Trace options that its children need as well.
    pub(crate) options: libc::c_int,
    /// A system call instruction of the vDSO, which its children have too.
    pub(crate) instruction: u64,
    /// The code by which it restores itself; copied with the process's memory.
    pub(crate) stub: Option<Stub>,
}

/// Has a thread of a stopped process make system calls. It has its registers back when this returns, also after an error.
pub(crate) fn with_thread<T>(
    held: &mut Stopped,
    act: impl FnOnce(&mut Borrowed) -> Result<T, ProcessError>,
) -> Result<T, ProcessError> {
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
    let caller = Caller::new(tid, instruction, options, stub.as_ref()).map_err(|error| {
        if seccomp && error.raw_os_error() == Some(libc::EPERM) {
            no_snapshot(pid, "its seccomp filters could kill it for forking, and only root may suspend them")
        } else {
            failed("its thread could not be taken over")(error)
        }
    })?;
    let mut borrowed = Borrowed { caller, options, instruction, stub };
    let result = act(&mut borrowed);
    // Restores the registers in every case.
    let restored = borrowed.caller.restore().map_err(failed("its registers could not be restored"));
    if let Some(stub) = &stub
        && restored.is_ok()
    {
        // A snapshot that is left behind never runs.
        let _ = stub.clear(tid);
    }
    if let Some(signal) = borrowed.caller.stop_signal {
        // SAFETY: numbers only. Sends the deferred stop signal.
        unsafe { libc::kill(pid, signal) };
    }
    let value = result?;
    restored?;
    Ok(value)
}
