//! Runs a command, with all that it starts, and does something at one of its system calls.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How long a run may take before it counts as hung, and is killed.
pub const HUNG: Duration = Duration::from_secs(120);

/// What is done at a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The command gets a signal, before the call.
    Signal(i32),
    /// A helper process of the command gets SIGKILL, before one of its calls. Only calls of helpers count.
    KillHelper,
    /// The command gets a signal, before a call of one of its helper processes. Only calls of helpers count.
    SignalAtHelper(i32),
    /// The call fails with this error number, undone.
    Error(i32),
    /// The system call with this number fails with this error number. Only these calls of the command's own program count.
    Call(i64, i32),
    /// The command gets SIGKILL before the system call with this number. Only these calls of the command's own program count.
    KillAt(i64),
    /// The first write of so many bytes fails with EIO. The moment does not matter.
    FailWrite(u64),
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Trace {
    /// System calls that count: of all threads and processes, unless the fault says otherwise.
    pub calls: usize,
    /// The number of the call at which the fault was, if it came to that.
    pub at: Option<i64>,
    /// The command's exit status, unless a signal ended it.
    pub code: Option<i32>,
    /// The command's PID.
    pub pid: i32,
    /// Whether it had to be killed.
    pub hung: bool,
}

const EVENTS: i32 = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;

fn ptrace(request: libc::c_uint, tid: i32, data: usize) -> i64 {
    // SAFETY: `data` is a number, or the address of registers that live through the call.
    unsafe { libc::ptrace(request, tid, 0, data) }
}

/// Runs the command until it and all that it started have ended; the `fault` is at its system call number `moment`.
/// A run that hangs is killed.
#[expect(clippy::zombie_processes, reason = "waited for with all that it starts")]
pub fn run(command: &mut Command, moment: usize, fault: Fault) -> Trace {
    let trace_me = || match ptrace(libc::PTRACE_TRACEME, 0, 0) {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    // SAFETY: it makes one system call, which is allowed between fork and exec.
    let child = unsafe { command.pre_exec(trace_me) }.spawn().unwrap();
    let main = child.id() as i32;
    let (over, end) = channel::<()>();
    let known = &Mutex::new(HashSet::new());
    thread::scope(|scope| {
        let watchdog = scope.spawn(move || {
            let hung = end.recv_timeout(HUNG) == Err(RecvTimeoutError::Timeout);
            if hung {
                for &tid in known.lock().unwrap().iter() {
                    // SAFETY: numbers only. Nothing has waited for it, so no other has its number.
                    unsafe { libc::kill(tid, libc::SIGKILL) };
                }
            }
            hung
        });
        let mut trace = follow(main, moment, fault, known);
        drop(over);
        trace.hung = watchdog.join().unwrap();
        trace
    })
}

/// Waits for the stops of all threads, and lets them go on.
fn follow(main: i32, moment: usize, fault: Fault, known: &Mutex<HashSet<i32>>) -> Trace {
    let mut trace = Trace { pid: main, ..Trace::default() };
    // Threads inside a system call, and those whose call is to fail at its end.
    let (mut inside, mut failing) = (HashSet::new(), HashSet::new());
    loop {
        let mut status = 0;
        // Those this thread traces, and no children of others.
        // SAFETY: the status is room for one int.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid < 0 {
            return trace;
        }
        let mut known = known.lock().unwrap();
        if !libc::WIFSTOPPED(status) {
            if tid == main {
                trace.code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
            }
            known.remove(&tid);
            if known.is_empty() {
                return trace;
            }
            continue;
        }
        let signal = libc::WSTOPSIG(status);
        let mut deliver = 0;
        if known.insert(tid) {
            // Its first stop, with nothing to deliver.
            inside.remove(&tid);
            ptrace(libc::PTRACE_SETOPTIONS, tid, EVENTS as usize);
        } else if signal == libc::SIGTRAP | 0x80 {
            // SAFETY: all zeros are valid registers.
            let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
            let address = (&raw mut registers).addr();
            if inside.remove(&tid) {
                if failing.remove(&tid) {
                    let error = match fault {
                        Fault::Error(error) | Fault::Call(_, error) => error,
                        _ => libc::EIO,
                    };
                    ptrace(libc::PTRACE_GETREGS, tid, address);
                    registers.rax = -i64::from(error) as u64;
                    ptrace(libc::PTRACE_SETREGS, tid, address);
                }
            } else {
                inside.insert(tid);
                ptrace(libc::PTRACE_GETREGS, tid, address);
                let call = registers.orig_rax as i64;
                let is_for_helpers = matches!(fault, Fault::KillHelper | Fault::SignalAtHelper(_));
                let helper = if is_for_helpers { helper(main, tid) } else { None };
                let counts = match fault {
                    _ if is_for_helpers => helper.is_some(),
                    Fault::Call(number, _) => number == call && is_wait(&registers) && is_own(main, tid),
                    Fault::KillAt(number) => number == call && is_own(main, tid),
                    _ => true,
                };
                trace.calls += usize::from(counts);
                if counts && trace.calls >= moment && trace.at.is_none() {
                    let acts = match fault {
                        Fault::None => false,
                        Fault::Call(..) | Fault::KillAt(_) => true,
                        Fault::Signal(_) | Fault::KillHelper | Fault::SignalAtHelper(_) => true,
                        Fault::Error(_) => can_fail(call) && !is_exec_report(&registers) && is_own(main, tid),
                        Fault::FailWrite(bytes) => call == libc::SYS_write && registers.rdx == bytes,
                    };
                    trace.at = acts.then_some(call);
                    let killed = match fault {
                        Fault::KillHelper => helper.map(|helper| (helper, libc::SIGKILL)),
                        Fault::KillAt(_) => Some((main, libc::SIGKILL)),
                        Fault::Signal(signal) | Fault::SignalAtHelper(signal) => Some((main, signal)),
                        _ => None,
                    };
                    match killed {
                        _ if !acts => {}
                        Some((pid, signal)) => {
                            // SAFETY: numbers only.
                            unsafe { libc::kill(pid, signal) };
                        }
                        None => {
                            failing.insert(tid);
                            // A close that fails has closed the descriptor (close(2)).
                            if call != libc::SYS_close {
                                registers.orig_rax = u64::MAX;
                                ptrace(libc::PTRACE_SETREGS, tid, address);
                            }
                        }
                    }
                }
            }
        } else if status >> 16 == 0 {
            deliver = signal as usize;
        }
        ptrace(libc::PTRACE_SYSCALL, tid, deliver);
    }
}

/// The process of a thread, if it runs the command's program and is not the command itself.
fn helper(main: i32, tid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    (pid != main && program(pid) == program(main)).then_some(pid)
}

/// The program that a thread runs: errors are for the command's own, not for others that it starts.
fn program(tid: i32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{tid}/exe")).ok()
}

/// Whether a thread runs the command's program.
fn is_own(main: i32, tid: i32) -> bool {
    program(tid) == program(main)
}

/// Whether a call can fail as a wait for a futex does; calls of other kinds can. Waking does not fail.
fn is_wait(registers: &libc::user_regs_struct) -> bool {
    let operation = registers.rsi as i32 & libc::FUTEX_CMD_MASK;
    registers.orig_rax as i64 != libc::SYS_futex
        || [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&operation)
}

/// Whether a call reads from a child whether its exec failed: 8 bytes of a socket pair, which the kernel does not fail. The
/// standard library would wait for the child's end (`std::process::Command::spawn`), and CRIU for its socket.
fn is_exec_report(registers: &libc::user_regs_struct) -> bool {
    registers.orig_rax as i64 == libc::SYS_recvfrom && registers.rdx == 8
}

/// Whether a call may fail with any error. The calls that are listed do not return, or return specific errors, which
/// [`Fault::Call`] injects.
fn can_fail(call: i64) -> bool {
    let never = [
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_rt_sigreturn,
        libc::SYS_ptrace,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_close,
        libc::SYS_kill,
        libc::SYS_futex,
        libc::SYS_clock_nanosleep,
        libc::SYS_rt_sigprocmask,
    ];
    !never.contains(&call)
}
