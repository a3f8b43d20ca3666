//! Which system calls fail with EPERM: those that start programs, reach other machines or processes, or change this machine.
//!
//! A list of refusals rather than of permissions: what an allocator or a C library calls differs between builds, and
//! Landlock already covers files.

use libc::c_long;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// kexec_file_load, which libc lacks for arm64: x86_64's number, and that of `asm-generic/unistd.h`.
const KEXEC_FILE_LOAD: c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };

const REFUSED: &[c_long] = &[
    // Programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other machines.
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_setns,
    libc::SYS_unshare,
    // Mounts, and files around Landlock.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_by_handle_at,
    libc::SYS_io_uring_setup,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
];

/// A kernel without seccomp filters leaves the command as it was.
pub(super) fn restrict() {
    let _ = try_restrict();
}

fn try_restrict() -> Result<(), seccompiler::Error> {
    let filter = SeccompFilter::new(
        REFUSED.iter().map(|&number| (number, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.cast_unsigned()),
        std::env::consts::ARCH.try_into()?,
    )?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter_all_threads(&program)
}
