//! Registers: what the PRSTATUS note of a CPU has, and what the scheduler leaves of a task.

use crate::page_size::PageSize;

/// Offset of `pr_pid` in `struct elf_prstatus` of 64-bit machines (include/linux/elfcore.h).
pub const PR_PID: usize = 32;
/// Offset of `pr_reg` in `struct elf_prstatus` of 64-bit machines.
pub const PR_REG: usize = 112;

/// A word of registers by its index, where it can be read.
pub type Word<'a> = &'a dyn Fn(usize) -> Option<u64>;

/// The 64-bit words of `pr_reg`, in order.
#[derive(Debug)]
pub struct StatusRegisters {
    /// The names of all words.
    pub names: &'static [&'static str],
    /// The names of the address of the instruction, the stack pointer and the flags.
    pub summary: [&'static str; 3],
}

/// Registers of an architecture whose stacks can be unwound. `struct pt_regs` starts with the same words as `pr_reg`.
#[derive(Debug)]
pub struct Registers {
    /// The words of `pr_reg`.
    pub status: StatusRegisters,
    /// Bytes of `struct elf_prstatus`.
    pub status_bytes: usize,
    /// Names and words in the order in which oopses print them.
    pub printed: &'static [(&'static str, usize)],
    /// Word of the program counter.
    pub ip: usize,
    /// Word of the stack pointer.
    pub sp: usize,
    /// Word of the frame pointer.
    pub frame_pointer: usize,
    /// Word of the return address, where calls leave it in a register.
    pub link: Option<usize>,
}

/// Where the scheduler leaves the registers of a task that does not run.
#[derive(Debug)]
pub struct SwitchedOut {
    /// The member of `struct task_struct` that has the stack pointer.
    pub stack_pointer: &'static str,
    /// The record at the stack pointer that has the other registers; else they are members of `struct task_struct`. `[N]` after
    /// a name is an element of an array.
    pub pushed: Option<&'static str>,
    /// The member with the program counter.
    pub ip: &'static str,
    /// The member with the frame pointer.
    pub frame_pointer: &'static str,
    /// Names of further registers, and their members.
    pub preserved: &'static [(&'static str, &'static str)],
    /// Functions at which a task starts that never ran: nothing called them.
    pub starts: &'static [&'static str],
}

/// What a CPU was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMode {
    /// Whether it was in user mode.
    pub user: bool,
    /// Whether interrupts were on, if its registers say so.
    pub interrupts_on: Option<bool>,
}

/// How stacks are unwound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwinding {
    /// By ORC tables (`Documentation/arch/x86/orc-unwinder.rst`).
    Orc,
    /// By frame records (AAPCS64): the frame pointer points to the caller's and the return address.
    FrameRecords,
    /// By frame records that lie below the address in the frame pointer, the other way round (RISC-V psABI).
    FrameRecordsBelow,
}

/// Bytes of a kernel stack: 16 KiB without KASAN, and at least a page where stacks are mapped page by page.
pub(crate) const fn stack_of_16_kib(page: PageSize) -> u64 {
    let page = page.bytes() as u64;
    if page > 16 << 10 { page } else { 16 << 10 }
}

/// Returns the words of `pr_reg` of 64-bit machines by `e_machine`, of those without an [`Arch`](crate::Arch) too.
pub(crate) fn of_others(elf_machine: u16) -> Option<&'static StatusRegisters> {
    Some(match elf_machine {
        22 => &S390X,
        21 => &PPC64,
        _ => return None,
    })
}

/// `s390_regs` (arch/s390/include/uapi/asm/ptrace.h), up to the access registers.
static S390X: StatusRegisters = StatusRegisters {
    names: &[
        "psw_mask", "psw_addr", "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11",
        "r12", "r13", "r14", "r15",
    ],
    summary: ["psw_addr", "r15", "psw_mask"],
};

/// `struct pt_regs` (arch/powerpc/include/uapi/asm/ptrace.h).
static PPC64: StatusRegisters = StatusRegisters {
    names: &[
        "r0",
        "r1",
        "r2",
        "r3",
        "r4",
        "r5",
        "r6",
        "r7",
        "r8",
        "r9",
        "r10",
        "r11",
        "r12",
        "r13",
        "r14",
        "r15",
        "r16",
        "r17",
        "r18",
        "r19",
        "r20",
        "r21",
        "r22",
        "r23",
        "r24",
        "r25",
        "r26",
        "r27",
        "r28",
        "r29",
        "r30",
        "r31",
        "nip",
        "msr",
        "orig_gpr3",
        "ctr",
        "link",
        "xer",
        "ccr",
        "softe",
        "trap",
        "dar",
        "dsisr",
        "result",
    ],
    summary: ["nip", "r1", "msr"],
};
