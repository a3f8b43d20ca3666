//! Systems that allow fewer threads than are wanted.

// Not every test uses all of it.
#![allow(dead_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has the command start no thread: clone fails with EAGAIN, as it does where pids.max is reached. Processes can be
/// started.
pub fn no_threads(command: &mut Command) -> &mut Command {
    let instruction = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = libc::BPF_JMP | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let error = |number: i32| libc::SECCOMP_RET_ERRNO | number as u32;
    let filter = [
        instruction(load, 0, 0, 0),
        // Its flags are in memory, which a filter cannot see; C libraries do without it.
        instruction(jump | libc::BPF_JEQ, libc::SYS_clone3 as u32, 0, 1),
        instruction(give, error(libc::ENOSYS), 0, 0),
        instruction(jump | libc::BPF_JEQ, libc::SYS_clone as u32, 0, 3),
        // The first argument's lower half.
        instruction(load, 16, 0, 0),
        instruction(jump | libc::BPF_JSET, libc::CLONE_THREAD as u32, 0, 1),
        instruction(give, error(libc::EAGAIN), 0, 0),
        instruction(give, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let install = move || {
        let mut filter = filter;
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: numbers, and a program that lives through the call.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: it makes two system calls and allocates nothing, which is allowed between fork and exec.
    unsafe { command.pre_exec(install) }
}

/// Runs the command as a user who may have so many threads and processes. Only root can; others' limits count what else
/// they run.
pub fn few_threads(command: &mut Command, user: u32, most: u64) -> &mut Command {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    let set = move || {
        // SAFETY: the pointer is to a limit that lives through the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    command.uid(user).gid(user);
    // SAFETY: it makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(set) }
}
