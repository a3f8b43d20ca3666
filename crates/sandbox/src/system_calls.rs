//! Which system calls are answered. Others fail with ENOSYS, as on a kernel that lacks them: C libraries and the standard library
//! then use older ones, and an exploit gets nothing.
//!
//! A list of what is needed rather than of what harms: each kernel release adds system calls. It covers glibc and musl on both
//! architectures; `tests/attempts.rs` tries what must fail, the tests of the commands what must work.

use libc::c_long;
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule};

use crate::Gap;

/// Answered whatever their arguments are: they change nothing but this process, or act on files that are open.
const ALWAYS: &[c_long] = &[
    // Files, by descriptor and by name; Landlock restricts which can be opened.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    // A dump on standard output, which may be a file.
    libc::SYS_ftruncate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fadvise64,
    libc::SYS_ppoll,
    // From the process that fetches URLs.
    libc::SYS_recvfrom,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_gettid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // For the pager, which runs already.
    libc::SYS_wait4,
    // Signals that reach this process.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Facts of this process and machine.
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_sysinfo,
];

/// The same, by names that only x86_64 has.
#[cfg(target_arch = "x86_64")]
const ALWAYS_HERE: &[c_long] = &[
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_getrlimit,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const ALWAYS_HERE: &[c_long] = &[];

/// Answered if the process has outputs.
const WRITING: &[c_long] = &[
    // To the thread that encrypts.
    libc::SYS_pipe2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_fallocate,
    libc::SYS_flock,
    libc::SYS_mkdirat,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
];
#[cfg(target_arch = "x86_64")]
const WRITING_HERE: &[c_long] = &[libc::SYS_mkdir, libc::SYS_link, libc::SYS_unlink, libc::SYS_rename];
#[cfg(not(target_arch = "x86_64"))]
const WRITING_HERE: &[c_long] = &[];

/// Flags with which open(2) creates or changes a file. `O_TMPFILE` includes `O_DIRECTORY`, which does not.
const CREATING: i32 =
    libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC | libc::O_APPEND | (libc::O_TMPFILE & !libc::O_DIRECTORY);
/// What clone(2) has to share for a thread, and namespaces, which it must not leave.
const THREAD: i32 = libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD;
const NAMESPACES: i32 = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// `TCGETS2` of `asm-generic/ioctls.h`, for a `struct termios2` of 44 bytes: newer C libraries ask a terminal by it.
const TCGETS2: u64 = 0x802c_542a;
/// Whether it is a terminal, and its size.
#[allow(clippy::unnecessary_cast)] // musl's are i32
const TERMINAL: [u64; 3] = [libc::TCGETS as u64, TCGETS2, libc::TIOCGWINSZ as u64];

/// Conditions on arguments, all of which have to hold.
type Conditions = Vec<SeccompCondition>;

/// Filters the system calls of all threads. Files are created only if the process `writes`.
pub(crate) fn restrict(writes: bool) -> Option<Gap> {
    try_restrict(writes).err().map(|error| Gap::SystemCalls(error.to_string()))
}

fn try_restrict(writes: bool) -> Result<(), seccompiler::Error> {
    let mut always: Vec<c_long> = [ALWAYS, ALWAYS_HERE].concat();
    if writes {
        always.extend([WRITING, WRITING_HERE].concat());
    }
    let mut rules: Vec<(c_long, Vec<SeccompRule>)> =
        always.into_iter().map(|number| (number, Vec::new())).collect();
    for (number, choices) in conditional(writes)? {
        let choices = choices.into_iter().map(SeccompRule::new).collect::<Result<Vec<_>, _>>()?;
        rules.push((number, choices));
    }
    let filter = SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::Errno(libc::ENOSYS.cast_unsigned()),
        SeccompAction::Allow,
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)
}

/// Returns the system calls that are answered for some arguments only: one of the choices has to hold.
fn conditional(writes: bool) -> Result<Vec<(c_long, Vec<Conditions>)>, seccompiler::BackendError> {
    let is = |index, value: i32| SeccompCondition::new(index, Dword, Eq, value.cast_unsigned().into());
    let is_null = |index| SeccompCondition::new(index, Qword, Eq, 0);
    let masked = |index, mask: i32, value: i32| {
        SeccompCondition::new(
            index,
            Dword,
            MaskedEq(mask.cast_unsigned().into()),
            value.cast_unsigned().into(),
        )
    };
    let one_of = |index, values: &[i32]| {
        values
            .iter()
            .map(|&value| Ok(vec![is(index, value)?]))
            .collect::<Result<Vec<_>, seccompiler::BackendError>>()
    };
    let this = std::process::id().cast_signed();
    // A file is emptied by `ftruncate`, once it is known to be an output.
    let opening = if writes { libc::O_TRUNC } else { CREATING };
    let mut calls = vec![
        (libc::SYS_openat, vec![vec![masked(2, opening, 0)?]]),
        // Memory is never executable: an exploit has to do with the code that is there.
        (libc::SYS_mmap, vec![vec![masked(2, libc::PROT_EXEC, 0)?]]),
        (libc::SYS_mprotect, vec![vec![masked(2, libc::PROT_EXEC, 0)?]]),
        (libc::SYS_clone, vec![vec![masked(0, THREAD | NAMESPACES, THREAD)?]]),
        // What raise(3) and abort(3) call. musl's abort in a thread ends with SIGSEGV instead.
        (libc::SYS_tgkill, vec![vec![is(0, this)?]]),
        (libc::SYS_tkill, vec![vec![is(0, this)?]]),
        // Reads a limit.
        (libc::SYS_prlimit64, vec![vec![is(0, 0)?, is_null(2)?]]),
        (libc::SYS_prctl, one_of(0, &[libc::PR_SET_NAME])?),
        // Never F_SETOWN, which sends signals.
        (
            libc::SYS_fcntl,
            one_of(
                1,
                &[
                    libc::F_GETFD,
                    libc::F_SETFD,
                    libc::F_GETFL,
                    libc::F_SETFL,
                    libc::F_DUPFD,
                    libc::F_DUPFD_CLOEXEC,
                ],
            )?,
        ),
        // Never TIOCSTI, which types into the terminal.
        (
            libc::SYS_ioctl,
            TERMINAL
                .into_iter()
                .map(|request| Ok(vec![SeccompCondition::new(1, Dword, Eq, request)?]))
                .collect::<Result<_, seccompiler::BackendError>>()?,
        ),
        // To the process that fetches URLs, whose socket is connected.
        (libc::SYS_sendto, vec![vec![is_null(4)?]]),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.push((libc::SYS_open, vec![vec![masked(1, opening, 0)?]]));
    if writes {
        // Outputs are the owner's only.
        calls.push((libc::SYS_fchmod, vec![vec![is(1, 0o600)?]]));
    }
    Ok(calls)
}
