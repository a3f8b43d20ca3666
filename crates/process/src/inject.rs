//! System calls by a stopped process: a thread executes a `syscall` instruction of the vDSO, then gets its registers back.
//!
//! A thread that was inside a system call when it was stopped has a result there that makes the kernel restart the
//! call after signals are handled. It must therefore get its registers back on the way out of the kernel, before
//! signals are handled: at a stop of `PTRACE_INTERRUPT`'s kind, not at the end of a system call.

use std::io;

use pagehaul_elfcore::notes::NT_PRSTATUS;

use crate::Pid;
use crate::ProcessError;
use crate::ptrace::{self, Waited};
use crate::registers::{self, register_value};
use crate::stub::Stub;

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
/// Every signal that can be blocked.
const ALL_SIGNALS: u64 = u64::MAX;

/// A stopped thread that makes system calls for us. [`restore`](Self::restore) must precede its resumption.
pub(crate) struct Caller {
    tid: Pid,
    instruction: u64,
    saved: Vec<u8>,
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
        let mask = ptrace::signal_mask(tid)?;
        ptrace::set_options(tid, OPTIONS | options)?;
        if let Some(stub) = stub {
            // Before the mask: from here on the thread would restore both.
            ptrace::set_registers(tid, NT_PRSTATUS, &stub.load(tid, &saved, mask)?)?;
        }
        // No handler may run on registers that are not its own.
        if let Err(error) = ptrace::set_signal_mask(tid, ALL_SIGNALS) {
            ptrace::set_registers(tid, NT_PRSTATUS, &saved)?;
            return Err(error);
        }
        let instruction = stub.map_or(instruction, Stub::call);
        Ok(Self { tid, instruction, saved, mask, child: None, stop_signal: None })
    }

    /// Returns the address of its `syscall` instruction.
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
        Ok(register_value(&ptrace::general_registers(self.tid)?, registers::RAX).cast_signed())
    }

    /// Gives the thread its registers and signal mask back, and leaves it stopped by `PTRACE_INTERRUPT` as before.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        ptrace::interrupt(self.tid)?;
        // The kernel handles signals after the interruption, when the thread has its registers.
        ptrace::set_signal_mask(self.tid, self.mask)?;
        ptrace::set_registers(self.tid, NT_PRSTATUS, &self.saved)?;
        self.run_to(ptrace::resume, |waited| matches!(waited, Waited::Trapped(_)))?;
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

/// Has a stopped process end itself, at a `syscall` instruction: a security module can forbid signals to what it lets be
/// traced.
pub(crate) fn exit(pid: Pid, instruction: u64) -> io::Result<()> {
    let mut registers = ptrace::general_registers(pid)?;
    set_call(&mut registers, instruction, libc::SYS_exit_group, [0; 6]);
    ptrace::set_registers(pid, NT_PRSTATUS, &registers)?;
    ptrace::resume(pid)
}

/// Sets the registers of a thread that is to make a system call.
fn set_call(thread: &mut [u8], instruction: u64, number: libc::c_long, arguments: [u64; 6]) {
    let mut set = |register: usize, value: u64| {
        if let Some(word) = thread.get_mut(register * 8..register * 8 + 8) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
    };
    set(registers::RIP, instruction);
    set(registers::RAX, number as u64);
    // Not inside a system call: the kernel restarts nothing.
    set(registers::ORIG_RAX, u64::MAX);
    let places =
        [registers::RDI, registers::RSI, registers::RDX, registers::R10, registers::R8, registers::R9];
    for (place, argument) in places.into_iter().zip(arguments) {
        set(place, argument);
    }
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
