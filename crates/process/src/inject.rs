//! System calls by a stopped process: a thread executes a system call instruction of the vDSO, then gets its registers back.
//!
//! A thread that was inside a system call when it was stopped has a result there that makes the kernel restart the
//! call after signals are handled. It must therefore get its registers back on the way out of the kernel, before
//! signals are handled: at a stop of `PTRACE_INTERRUPT`'s kind, not at the end of a system call.
//!
//! On arm64 the kernel has already undone the interrupted call at such a stop: the thread is about to make it again
//! (`do_signal()`, arch/arm64/kernel/signal.c). Whether the kernel would have it continue an interrupted sleep instead
//! (`restart_syscall`) shows only when it makes the call.

use std::io;

use pagehaul_elfcore::notes::NT_PRSTATUS;

use crate::arch::{HOST, set_word, word};
use crate::error::ProcessError;
use crate::ptrace::{self, Waited};
use crate::stub::Stub;
use crate::units::Pid;

/// Stops at both ends of system calls are distinguished from signals; new processes are traced from their first instruction on.
const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK;
/// The kernel kills the tracee when its tracer dies. For our own children only.
pub(crate) const EXIT_WITH_TRACER: libc::c_int = libc::PTRACE_O_EXITKILL;
/// Seccomp filters do not apply while traced (Linux 4.3; needs CAP_SYS_ADMIN).
pub(crate) const SUSPEND_SECCOMP: libc::c_int = 1 << 21;
/// The stop at the start or end of a system call.
const SYSTEM_CALL: i32 = libc::SIGTRAP | 0x80;
/// The number of no system call (`NO_SYSCALL`, arch/arm64/include/asm/ptrace.h).
const NO_CALL: i32 = -1;
/// Every signal that can be blocked.
const ALL_SIGNALS: u64 = u64::MAX;

/// A stopped thread that makes system calls for us. [`restore`](Self::restore) must precede its resumption.
pub(crate) struct Caller {
    tid: Pid,
    instruction: u64,
    saved: Vec<u8>,
    /// A register set that system calls would truncate.
    vectors: Option<(u32, Vec<u8>)>,
    mask: u64,
    /// The process that a call created, by its PID in the tracer's namespace.
    child: Option<Pid>,
    /// A stop signal came meanwhile, and is sent again later.
    pub(crate) stop_signal: Option<i32>,
}

impl Caller {
    /// Takes over a thread stopped by `PTRACE_INTERRUPT`. With a stub, the thread continues as before if its tracer dies.
    pub(crate) fn new(
        tid: Pid,
        instruction: u64,
        options: libc::c_int,
        stub: Option<&Stub>,
    ) -> io::Result<Self> {
        let saved = ptrace::general_registers(tid)?;
        let vectors = vectors(tid)?;
        let mask = ptrace::signal_mask(tid)?;
        ptrace::set_options(tid, OPTIONS | options)?;
        let instruction = stub.map_or(instruction, Stub::call);
        let mut caller = Self { tid, instruction, saved, vectors, mask, child: None, stop_signal: None };
        if let Err(error) = caller.take_over(stub) {
            ptrace::set_registers(tid, NT_PRSTATUS, &caller.saved)?;
            ptrace::set_signal_mask(tid, mask)?;
            return Err(error);
        }
        Ok(caller)
    }

    fn take_over(&mut self, stub: Option<&Stub>) -> io::Result<()> {
        if let Some(set) = HOST.current_call {
            ptrace::set_signal_mask(self.tid, ALL_SIGNALS)?;
            self.find_call(set)?;
        }
        if let Some(stub) = stub {
            // Before the mask: from here on the thread would restore both.
            ptrace::set_registers(self.tid, NT_PRSTATUS, &stub.load(self.tid, &self.saved, self.mask)?)?;
        }
        // No handler may run on registers that are not its own.
        ptrace::set_signal_mask(self.tid, ALL_SIGNALS)
    }

    /// If the thread is about to make a system call, has the kernel begin it and skip it, to learn which one it is: that of
    /// the registers, or `restart_syscall` for an interrupted one. `set` is [`HOST.current_call`](HOST).
    fn find_call(&mut self, set: u32) -> io::Result<()> {
        let next = word(&self.saved, HOST.program_counter);
        let instruction =
            ptrace::peek(self.tid, next & !7).map(|word| (word >> (next % 8 * 8)).to_ne_bytes());
        if !instruction.is_ok_and(|bytes| bytes.starts_with(HOST.system_call)) {
            return Ok(());
        }
        self.run_to(ptrace::to_system_call, |waited| waited == Waited::Signal(SYSTEM_CALL))?;
        let number = word(&ptrace::general_registers(self.tid)?, HOST.number);
        set_word(&mut self.saved, HOST.number, number);
        ptrace::set_registers(self.tid, set, &NO_CALL.to_ne_bytes())?;
        self.run_to(ptrace::to_system_call, |waited| waited == Waited::Signal(SYSTEM_CALL))
    }

    /// Returns the address of its system call instruction.
    pub(crate) fn instruction(&self) -> u64 {
        self.instruction
    }

    /// Returns the process that the last call created, if any.
    pub(crate) fn take_child(&mut self) -> Option<Pid> {
        self.child.take()
    }

    /// Makes one system call. Returns its result, negative for an error number.
    pub(crate) fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> io::Result<i64> {
        let mut registers = self.saved.clone();
        set_call(&mut registers, self.instruction, number, arguments);
        ptrace::set_registers(self.tid, NT_PRSTATUS, &registers)?;
        // To its start, and to its end.
        self.run_to(ptrace::to_system_call, |waited| waited == Waited::Signal(SYSTEM_CALL))?;
        self.run_to(ptrace::to_system_call, |waited| waited == Waited::Signal(SYSTEM_CALL))?;
        Ok(word(&ptrace::general_registers(self.tid)?, HOST.result).cast_signed())
    }

    /// Gives the thread its registers and signal mask back, and leaves it stopped by `PTRACE_INTERRUPT` as before.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        ptrace::interrupt(self.tid)?;
        // The kernel handles signals after the interruption, when the thread has its registers.
        ptrace::set_signal_mask(self.tid, self.mask)?;
        ptrace::set_registers(self.tid, NT_PRSTATUS, &self.saved)?;
        if let Some(set) = HOST.current_call {
            // Else the kernel could take the first argument for a result that makes it restart the call.
            ptrace::set_registers(self.tid, set, &NO_CALL.to_ne_bytes())?;
        }
        self.run_to(ptrace::resume, |waited| matches!(waited, Waited::Trapped(_)))?;
        if let Some((set, bytes)) = &self.vectors {
            ptrace::set_registers(self.tid, *set, bytes)?;
        }
        ptrace::set_options(self.tid, 0)
    }

    /// Resumes the thread until the expected kind of stop.
    fn run_to(
        &mut self,
        go: impl Fn(Pid) -> io::Result<()>,
        is_there: impl Fn(Waited) -> bool,
    ) -> io::Result<()> {
        loop {
            go(self.tid)?;
            match ptrace::wait(self.tid, true)? {
                waited if is_there(waited) => return Ok(()),
                Waited::Event(_) => self.child = Some(ptrace::event_message(self.tid)? as Pid),
                // SIGSTOP cannot be blocked.
                Waited::Signal(signal) => self.stop_signal = Some(signal),
                Waited::Trapped(_) | Waited::Running => {}
                Waited::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            }
        }
    }
}

/// Has a stopped process end itself, at a system call instruction: a security module can forbid signals to what it lets be
/// traced.
pub(crate) fn exit(pid: Pid, instruction: u64) -> io::Result<()> {
    let mut registers = ptrace::general_registers(pid)?;
    set_call(&mut registers, instruction, libc::SYS_exit_group, [0; 6]);
    ptrace::set_registers(pid, NT_PRSTATUS, &registers)?;
    ptrace::resume(pid)
}

/// Sets the registers of a thread that is to make a system call.
fn set_call(thread: &mut [u8], instruction: u64, number: libc::c_long, arguments: [u64; 6]) {
    (HOST.enter)(thread, instruction);
    set_word(thread, HOST.number, number as u64);
    for (place, argument) in HOST.arguments.into_iter().zip(arguments) {
        set_word(thread, place, argument);
    }
}

/// Returns the vector registers of a stopped thread if a system call would truncate them.
fn vectors(tid: Pid) -> io::Result<Option<(u32, Vec<u8>)>> {
    /// Offset and bit in `struct user_sve_header` (arch/arm64/include/uapi/asm/ptrace.h): registers in full, not only their
    /// lower 128 bits.
    const FLAGS: usize = 12;
    const REGS_SVE: u8 = 1;
    for &set in HOST.vector_sets {
        if let Some(bytes) = ptrace::registers(tid, set)?
            && bytes.get(FLAGS).is_some_and(|flags| flags & REGS_SVE != 0)
        {
            return Ok(Some((set, bytes)));
        }
    }
    Ok(None)
}

/// Waits until a process that a call has made is stopped at its first instruction.
pub(crate) fn wait_for_child(pid: Pid) -> io::Result<()> {
    loop {
        match ptrace::wait(pid, true)? {
            Waited::Trapped(_) => return Ok(()),
            Waited::Gone => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
            _ => ptrace::resume(pid)?,
        }
    }
}

/// Returns the error of a failed step of a snapshot.
pub(crate) fn no_snapshot(pid: Pid, reason: impl Into<String>) -> ProcessError {
    ProcessError::NoSnapshot { pid, reason: reason.into() }
}
