//! The code that restores a thread.
//!
//! It uses neither the stack, on which other coroutines or a shadow stack may be, nor instructions that change flags. Of the
//! registers, it changes only those that it restores.

use super::{ORIG_RAX, R11, RAX, RIP};
use crate::arch::{StubCode, word};

pub(super) const STUB: StubCode = StubCode { code: &CODE, restore: RESTORE, data_size: DATA, data };

/// x86-64 machine code; the data follows.
#[rustfmt::skip]
const CODE: [u8; 160] = [
    // The call: whatever the tracer set.
    0x0f, 0x05,                                        //   0 syscall
    0x48, 0x89, 0xc1,                                  //   2 mov rcx,rax
    // 0: a child of the process. It ends.
    0xe3, 0x0a,                                        //   5 jrcxz 11
    // An error number: no child to wait for.
    0x48, 0x0f, 0xc9,                                  //   7 bswap rcx
    0x0f, 0xb6, 0xc9,                                  //   a movzx ecx,cl
    0xe3, 0x0e,                                        //   d jrcxz 1d
    0xeb, 0x26,                                        //   f jmp 37
    // exit(0)
    0xbf, 0x00, 0x00, 0x00, 0x00,                      //  11 mov edi,0x0
    0xb8, 0x3c, 0x00, 0x00, 0x00,                      //  16 mov eax,0x3c
    0x0f, 0x05,                                        //  1b syscall
    // wait4(child, 0, __WALL, 0). After a call that made no child it fails with ECHILD.
    0x48, 0x89, 0xc7,                                  //  1d mov rdi,rax
    0xbe, 0x00, 0x00, 0x00, 0x00,                      //  20 mov esi,0x0
    0xba, 0x00, 0x00, 0x00, 0x40,                      //  25 mov edx,0x40000000
    0x41, 0xba, 0x00, 0x00, 0x00, 0x00,                //  2a mov r10d,0x0
    0xb8, 0x3d, 0x00, 0x00, 0x00,                      //  30 mov eax,0x3d
    0x0f, 0x05,                                        //  35 syscall
    // rt_sigprocmask(SIG_SETMASK, mask, 0, 8)
    0xbf, 0x02, 0x00, 0x00, 0x00,                      //  37 mov edi,0x2
    0x48, 0x8d, 0x35, 0x5d, 0x00, 0x00, 0x00,          //  3c lea rsi,[rip: 0xa0]
    0xba, 0x00, 0x00, 0x00, 0x00,                      //  43 mov edx,0x0
    0x41, 0xba, 0x08, 0x00, 0x00, 0x00,                //  48 mov r10d,0x8
    0xb8, 0x0e, 0x00, 0x00, 0x00,                      //  4e mov eax,0xe
    0x0f, 0x05,                                        //  53 syscall
    // The registers, and where it was.
    0x4c, 0x8b, 0x1d, 0x4c, 0x00, 0x00, 0x00,          //  55 mov r11,[rip: 0xa8]
    0x4c, 0x8b, 0x15, 0x4d, 0x00, 0x00, 0x00,          //  5c mov r10,[rip: 0xb0]
    0x4c, 0x8b, 0x0d, 0x4e, 0x00, 0x00, 0x00,          //  63 mov r9,[rip: 0xb8]
    0x4c, 0x8b, 0x05, 0x4f, 0x00, 0x00, 0x00,          //  6a mov r8,[rip: 0xc0]
    0x48, 0x8b, 0x05, 0x50, 0x00, 0x00, 0x00,          //  71 mov rax,[rip: 0xc8]
    0x48, 0x8b, 0x0d, 0x51, 0x00, 0x00, 0x00,          //  78 mov rcx,[rip: 0xd0]
    0x48, 0x8b, 0x15, 0x52, 0x00, 0x00, 0x00,          //  7f mov rdx,[rip: 0xd8]
    0x48, 0x8b, 0x35, 0x53, 0x00, 0x00, 0x00,          //  86 mov rsi,[rip: 0xe0]
    0x48, 0x8b, 0x3d, 0x54, 0x00, 0x00, 0x00,          //  8d mov rdi,[rip: 0xe8]
    0xff, 0x25, 0x56, 0x00, 0x00, 0x00,                //  94 jmp [rip: 0xf0]
    0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00,                //  9a nop [rax+rax*1+0x0]
];
const RESTORE: u64 = 0x37;
/// The signal mask, the registers R11 to RDI in the order of `struct user_regs_struct`, and RIP.
const DATA: usize = 11 * 8;

fn data(saved: &[u8], mask: u64, _: u64) -> Option<Vec<u8>> {
    let mut data = mask.to_ne_bytes().to_vec();
    data.extend_from_slice(saved.get(R11 * 8..ORIG_RAX * 8)?);
    let mut instruction = word(saved, RIP);
    if let Some(again) = restarted(word(saved, ORIG_RAX), word(saved, RAX)) {
        // Past the mask and R11 to R8.
        data.get_mut(5 * 8..6 * 8)?.copy_from_slice(&again.to_ne_bytes());
        instruction -= 2;
    }
    data.extend_from_slice(&instruction.to_ne_bytes());
    Some(data)
}

/// The system call with which a thread goes on that was stopped inside one, where the kernel would restart it
/// (`arch_do_signal_or_restart()`, arch/x86/kernel/signal.c).
fn restarted(call: u64, result: u64) -> Option<u64> {
    /// include/linux/errno.h.
    const ERESTARTSYS: i64 = 512;
    const ERESTARTNOINTR: i64 = 513;
    const ERESTARTNOHAND: i64 = 514;
    const ERESTART_RESTARTBLOCK: i64 = 516;
    /// arch/x86/entry/syscalls/syscall_64.tbl.
    const RESTART_SYSCALL: u64 = 219;
    if call.cast_signed() < 0 {
        return None;
    }
    match -result.cast_signed() {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Some(call),
        ERESTART_RESTARTBLOCK => Some(RESTART_SYSCALL),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_calls_are_made_again_where_the_kernel_would() {
        let error = |number: i64| (-number).cast_unsigned();
        assert_eq!(restarted(7, error(512)), Some(7));
        assert_eq!(restarted(7, error(513)), Some(7));
        assert_eq!(restarted(7, error(514)), Some(7));
        assert_eq!(restarted(35, error(516)), Some(219));
        assert_eq!(restarted(7, error(4)), None);
        assert_eq!(restarted(7, 0), None);
        assert_eq!(restarted(u64::MAX, error(512)), None);
    }
}
