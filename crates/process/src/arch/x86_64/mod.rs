//! x86_64.

mod stub;

use pagehaul_elfcore::EM_X86_64;
use pagehaul_elfcore::notes::{NT_PRFPREG, NT_X86_SHSTK, NT_X86_XSTATE};

use super::{Architecture, set_word};

// Indices in `struct user_regs_struct` of <sys/user.h>, in words.
const R11: usize = 6;
const R10: usize = 7;
const R9: usize = 8;
const R8: usize = 9;
const RAX: usize = 10;
const RDX: usize = 12;
const RSI: usize = 13;
const RDI: usize = 14;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const RSP: usize = 19;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    elf_machine: EM_X86_64,
    general_registers: 27 * 8,
    register_sets: &[(NT_PRFPREG, "CORE"), (NT_X86_XSTATE, "LINUX"), (NT_X86_SHSTK, "LINUX")],
    // XSAVE with AMX takes 11 KiB.
    register_set_room: 16 << 10,
    system_call: &[0x0f, 0x05],
    alignment: 1,
    program_counter: RIP,
    number: RAX,
    result: RAX,
    arguments: [RDI, RSI, RDX, R10, R8, R9],
    stack_pointer: RSP,
    enter,
    current_call: None,
    vector_sets: &[],
    stub: stub::STUB,
};

fn enter(registers: &mut [u8], address: u64) {
    set_word(registers, RIP, address);
    // Not inside a system call: the kernel restarts nothing.
    set_word(registers, ORIG_RAX, u64::MAX);
}
