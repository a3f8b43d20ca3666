//! ptrace requests, and waiting for tracees. Every request must come from the thread that seized the tracee: a tracer is a
//! thread, not a process.

use std::io;
use std::mem::MaybeUninit;

use libc::{c_int, c_long, c_uint, c_void, pid_t};
use pagehaul_elfcore::notes::NT_PRSTATUS;

use crate::arch::HOST;

/// Bytes of `siginfo_t` on every 64-bit architecture.
pub(crate) const SIGINFO: usize = 128;

/// Kinds of requests (`include/uapi/linux/ptrace.h`); C libraries give them different types.
mod requests {
    use libc::c_uint;

    pub(super) const PEEKDATA: c_uint = 2;
    pub(super) const POKEDATA: c_uint = 5;
    pub(super) const CONT: c_uint = 7;
    pub(super) const DETACH: c_uint = 17;
    pub(super) const SYSCALL: c_uint = 24;
    pub(super) const SETOPTIONS: c_uint = 0x4200;
    pub(super) const GETEVENTMSG: c_uint = 0x4201;
    pub(super) const GETSIGINFO: c_uint = 0x4202;
    pub(super) const GETREGSET: c_uint = 0x4204;
    pub(super) const SETREGSET: c_uint = 0x4205;
    pub(super) const SEIZE: c_uint = 0x4206;
    pub(super) const INTERRUPT: c_uint = 0x4207;
    pub(super) const GETSIGMASK: c_uint = 0x420a;
    pub(super) const SETSIGMASK: c_uint = 0x420b;
    pub(super) const GET_SYSCALL_USER_DISPATCH_CONFIG: c_uint = 0x4211;
}

/// The state of a tracee.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Nothing has happened yet.
    Running,
    /// Stopped by `PTRACE_INTERRUPT`, or in a group-stop (a signal other than SIGTRAP).
    Trapped(c_int),
    /// Stopped before the delivery of a signal, which the tracer decides on.
    Signal(c_int),
    /// Stopped at a requested event: `PTRACE_EVENT_CLONE` and the like.
    Event(c_int),
    Gone,
}

/// Makes a request that takes addresses of this program's memory.
///
/// # Safety
/// `addr` and `data` must be valid for the request (ptrace(2)). Addresses must refer to memory that lives through the call
/// and is as large as what the kernel reads or writes, and writable if it writes.
unsafe fn request(kind: c_uint, tid: pid_t, addr: usize, data: usize) -> io::Result<c_long> {
    let (addr, data) = (
        std::ptr::with_exposed_provenance_mut::<c_void>(addr),
        std::ptr::with_exposed_provenance_mut::<c_void>(data),
    );
    // SAFETY: promised by the caller.
    let attempt = || unsafe { libc::ptrace(kind as _, tid, addr, data) };
    // A request that fails has done nothing, and may succeed when there is memory again. A system call that a thread makes for
    // us cannot be undone halfway.
    let result = Some(attempt()).filter(|result| *result != -1).unwrap_or_else(attempt);
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Makes a request that takes a number: only CONT, DETACH, SYSCALL, SETOPTIONS, SEIZE and INTERRUPT.
fn control(kind: c_uint, tid: pid_t, number: c_int) -> io::Result<()> {
    // SAFETY: these requests take no address.
    unsafe { request(kind, tid, 0, number as usize) }.map(drop)
}

/// Becomes the tracer of a thread, without stopping it.
pub(crate) fn seize(tid: pid_t) -> io::Result<()> {
    control(requests::SEIZE, tid, 0)
}

/// Asks a seized thread to stop. The kernel restarts its system call when it resumes.
pub(crate) fn interrupt(tid: pid_t) -> io::Result<()> {
    control(requests::INTERRUPT, tid, 0)
}

/// Detaches from a stopped thread and delivers the signal it was stopped at (0 for none).
pub(crate) fn detach(tid: pid_t, signal: c_int) -> io::Result<()> {
    control(requests::DETACH, tid, signal)
}

/// Resumes a stopped thread until the next start or end of a system call.
pub(crate) fn to_system_call(tid: pid_t) -> io::Result<()> {
    control(requests::SYSCALL, tid, 0)
}

/// Resumes a stopped thread.
pub(crate) fn resume(tid: pid_t) -> io::Result<()> {
    control(requests::CONT, tid, 0)
}

/// Returns whether a stopped thread's system calls go to its own handler instead of the kernel (prctl's
/// PR_SET_SYSCALL_USER_DISPATCH); kernels before 6.4 do not report it.
pub(crate) fn dispatches_system_calls(tid: pid_t) -> bool {
    // Mode, selector's address, offset, length.
    let mut config = [0u64; 4];
    let size = size_of_val(&config);
    // SAFETY: the kernel writes `size` bytes to the configuration, which has as many.
    let found = unsafe {
        request(
            requests::GET_SYSCALL_USER_DISPATCH_CONFIG,
            tid,
            size,
            config.as_mut_ptr().expose_provenance(),
        )
    };
    found.is_ok() && config[0] != 0
}

/// Sets the `PTRACE_O_*` options.
pub(crate) fn set_options(tid: pid_t, options: c_int) -> io::Result<()> {
    control(requests::SETOPTIONS, tid, options)
}

/// Returns the message of the event at which a thread is stopped, such as the ID of a new thread.
pub(crate) fn event_message(tid: pid_t) -> io::Result<u64> {
    let mut message: u64 = 0;
    // SAFETY: the kernel writes an unsigned long.
    unsafe { request(requests::GETEVENTMSG, tid, 0, (&raw mut message).expose_provenance()) }?;
    Ok(message)
}

/// Returns a register set (`NT_*` number) of a stopped thread; `None` if the machine lacks these registers.
pub(crate) fn registers(tid: pid_t, kind: u32) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0u8; HOST.register_set_room];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: the iovec names memory that is ours, as long as it says; the kernel writes to both.
    let read =
        unsafe { request(requests::GETREGSET, tid, kind as usize, (&raw mut iov).expose_provenance()) };
    match read {
        Ok(_) => {
            bytes.truncate(iov.iov_len);
            bytes.shrink_to_fit();
            Ok(Some(bytes))
        }
        // EINVAL: the architecture has no such set; ENODEV, EOPNOTSUPP: this processor or thread lacks it.
        Err(error)
            if matches!(
                error.raw_os_error(),
                Some(libc::EINVAL | libc::ENODEV | libc::EOPNOTSUPP | libc::ENXIO)
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the general registers of a stopped thread of a 64-bit process.
pub(crate) fn general_registers(tid: pid_t) -> io::Result<Vec<u8>> {
    let registers = registers(tid, NT_PRSTATUS)?.unwrap_or_default();
    if registers.len() == HOST.general_registers {
        Ok(registers)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Reads one word of the memory of a stopped thread's process. A word of all ones counts as unreadable.
pub(crate) fn peek(tid: pid_t, address: u64) -> io::Result<u64> {
    // SAFETY: the kernel reads the tracee's memory. The C library passes its own place for the word, and returns the word.
    unsafe { request(requests::PEEKDATA, tid, address as usize, 0) }.map(|word| word as u64)
}

/// Writes one word to the memory of a stopped thread's process, regardless of its protection: private memory is copied first.
pub(crate) fn poke(tid: pid_t, address: u64, word: u64) -> io::Result<()> {
    // SAFETY: the kernel writes to the tracee's memory, not to ours.
    unsafe { request(requests::POKEDATA, tid, address as usize, word as usize) }.map(drop)
}

/// Writes a register set of a stopped thread.
pub(crate) fn set_registers(tid: pid_t, kind: u32, bytes: &[u8]) -> io::Result<()> {
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the iovec names `bytes`, from which the kernel only reads; it writes the length to the iovec.
    unsafe { request(requests::SETREGSET, tid, kind as usize, (&raw mut iov).expose_provenance()) }.map(drop)
}

/// Returns the signal information of the stop; `None` in a group-stop.
pub(crate) fn signal_info(tid: pid_t) -> Option<[u8; SIGINFO]> {
    let mut info = [0u64; SIGINFO / 8];
    // SAFETY: the kernel writes a siginfo_t, which has as many bytes.
    unsafe { request(requests::GETSIGINFO, tid, 0, info.as_mut_ptr().expose_provenance()) }.ok()?;
    let mut bytes = [0; SIGINFO];
    for (out, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(info) {
        *out = word.to_ne_bytes();
    }
    Some(bytes)
}

/// Returns the signals that a stopped thread blocks.
pub(crate) fn signal_mask(tid: pid_t) -> io::Result<u64> {
    let mut mask: u64 = 0;
    // SAFETY: the kernel writes a mask of the size that `addr` says.
    unsafe { request(requests::GETSIGMASK, tid, size_of::<u64>(), (&raw mut mask).expose_provenance()) }?;
    Ok(mask)
}

/// Sets the signals that a stopped thread blocks.
pub(crate) fn set_signal_mask(tid: pid_t, mask: u64) -> io::Result<()> {
    // SAFETY: the kernel reads a mask of the size that `addr` says.
    unsafe { request(requests::SETSIGMASK, tid, size_of::<u64>(), (&raw const mask).expose_provenance()) }
        .map(drop)
}

/// Returns the state of a tracee, or waits until it stops or ends.
pub(crate) fn wait(tid: pid_t, block: bool) -> io::Result<Waited> {
    let mut status = MaybeUninit::<c_int>::zeroed();
    let flags = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    let mut is_certain = false;
    loop {
        // SAFETY: `status` is room for one int.
        let result = unsafe { libc::waitpid(tid, status.as_mut_ptr(), flags) };
        if result == -1 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // As with requests: a thread that is taken for gone is not freed.
                Some(libc::ECHILD) if !std::mem::replace(&mut is_certain, true) => continue,
                // It is gone: another thread called exec, or its tracer died.
                Some(libc::ECHILD) => return Ok(Waited::Gone),
                _ => return Err(error),
            }
        }
        if result == 0 {
            return Ok(Waited::Running);
        }
        // SAFETY: it was zero from the start, and the kernel has written an int.
        let status = unsafe { status.assume_init() };
        if !libc::WIFSTOPPED(status) {
            return Ok(Waited::Gone);
        }
        let signal = libc::WSTOPSIG(status);
        return Ok(match status >> 16 {
            0 => Waited::Signal(signal),
            libc::PTRACE_EVENT_STOP => Waited::Trapped(signal),
            event => Waited::Event(event),
        });
    }
}
