//! Code that a thread runs if its tracer dies while the thread makes a system call for it.
//!
//! The kernel detaches the tracees of a dead tracer as they are (`exit_ptrace()`, kernel/ptrace.c) and restores no
//! registers. So the injected system call is followed by code that does it. The code and the registers are in the zero
//! bytes between the end of the vDSO's image and the end of its last page, which no program uses. The write gives the
//! process its own copy of that page, as a breakpoint of a debugger does.
//!
//! The code uses neither the stack, on which other coroutines or a shadow stack may be, nor instructions that change
//! flags. Of the registers, it changes only those that it restores.

use std::io;

use crate::Pid;
use crate::ptrace;
use crate::registers::{self, register_value};
use crate::vdso::Vdso;

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
/// Start of the code that only restores.
const RESTORE: u64 = 0x37;
/// The signal mask, the registers R11 to RDI in the order of `struct user_regs_struct`, and RIP.
const DATA: usize = 11 * 8;
const SIZE: usize = CODE.len() + DATA;

/// The place of the code in a process.
pub(crate) struct Stub {
    address: u64,
}

impl Stub {
    /// Writes the code to a process whose threads are all stopped, through the thread `tid`. Returns `None` if there is
    /// no room, the kernel forbids the write, or a thread still runs code that a killed run left.
    pub(crate) fn place(vdso: &Vdso, tid: Pid, threads: impl Iterator<Item = Pid>) -> Option<Self> {
        let room = vdso.code.get(vdso.code.len().checked_sub(SIZE)?..)?;
        let stub = Self { address: vdso.address + (vdso.code.len() - SIZE) as u64 };
        if !is_free(room) {
            return None;
        }
        if !is_zero(room) {
            let mut threads = threads.filter_map(|tid| ptrace::general_registers(tid).ok());
            if threads.any(|registers| (stub.address..).contains(&register_value(&registers, registers::RIP)))
            {
                return None;
            }
        }
        stub.write(tid, 0, &CODE).ok()?;
        Some(stub)
    }

    /// The `syscall` instruction that the code follows.
    pub(crate) fn call(&self) -> u64 {
        self.address
    }

    /// Sets the state to restore. Returns the registers with which a thread resumes at the code that restores it.
    pub(crate) fn load(&self, tid: Pid, saved: &[u8], mask: u64) -> io::Result<Vec<u8>> {
        let mut data = mask.to_ne_bytes().to_vec();
        data.extend_from_slice(&saved[registers::R11 * 8..registers::ORIG_RAX * 8]);
        let (call, result) =
            (register_value(saved, registers::ORIG_RAX), register_value(saved, registers::RAX));
        let mut instruction = register_value(saved, registers::RIP);
        if let Some(again) = restarted(call, result) {
            // Past the mask and R11 to R8.
            data[5 * 8..6 * 8].copy_from_slice(&again.to_ne_bytes());
            instruction -= 2;
        }
        data.extend_from_slice(&instruction.to_ne_bytes());
        self.write(tid, CODE.len() as u64, &data)?;
        let mut registers = saved.to_vec();
        registers[registers::RIP * 8..][..8].copy_from_slice(&(self.address + RESTORE).to_ne_bytes());
        // Not inside a system call: the kernel restarts nothing.
        registers[registers::ORIG_RAX * 8..][..8].copy_from_slice(&u64::MAX.to_ne_bytes());
        Ok(registers)
    }

    /// Clears the code, in the process or a copy of it.
    pub(crate) fn clear(&self, tid: Pid) -> io::Result<()> {
        // From the end: see `is_free`.
        (0..SIZE / 8).rev().try_for_each(|word| ptrace::poke(tid, self.address + word as u64 * 8, 0))
    }

    fn write(&self, tid: Pid, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (word, at) in bytes.as_chunks::<8>().0.iter().zip((self.address + offset..).step_by(8)) {
            ptrace::poke(tid, at, u64::from_ne_bytes(*word))?;
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether bytes at the end of the vDSO are zeros, or what a run that was killed has left. There is data only while the
/// code is whole.
fn is_free(room: &[u8]) -> bool {
    let Some((code, data)) = room.split_first_chunk::<{ CODE.len() }>() else { return false };
    let mut words = code.chunks(8).zip(CODE.chunks(8));
    words.all(|(word, ours)| word == ours || is_zero(word)) && (*code == CODE || is_zero(data))
}

/// The system call with which a thread goes on that was stopped inside one, where the kernel would restart it
/// (`arch_do_signal_or_restart()`, arch/x86/kernel/signal.c).
fn restarted(call: u64, result: u64) -> Option<u64> {
    /// include/linux/errno.h.
    const ERESTARTSYS: i64 = 512;
    const ERESTARTNOINTR: i64 = 513;
    const ERESTARTNOHAND: i64 = 514;
    const ERESTART_RESTARTBLOCK: i64 = 516;
    if call.cast_signed() < 0 {
        return None;
    }
    match -result.cast_signed() {
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND => Some(call),
        ERESTART_RESTARTBLOCK => Some(libc::SYS_restart_syscall.cast_unsigned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_leave_is_free_and_all_else_is_not() {
        let mut room = [0; SIZE];
        assert!(is_free(&room));
        for word in 0..SIZE / 8 {
            // A killed write, and a killed clear.
            if let Some(code) = CODE.get(word * 8..word * 8 + 8) {
                room[word * 8..word * 8 + 8].copy_from_slice(code);
            } else {
                room[word * 8] = 1;
            }
            assert!(is_free(&room), "{word}");
        }
        for word in (0..SIZE / 8).rev() {
            room[word * 8..word * 8 + 8].fill(0);
            assert!(is_free(&room), "{word}");
        }
        for at in 0..SIZE {
            let mut room = [0; SIZE];
            room[at] = 0xff;
            assert!(!is_free(&room), "{at}");
        }
    }

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
