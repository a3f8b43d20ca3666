//! arm64.

mod stub;

use pagehaul_elfcore::EM_AARCH64;
use pagehaul_elfcore::notes::{
    NT_ARM_FPMR, NT_ARM_GCS, NT_ARM_HW_BREAK, NT_ARM_HW_WATCH, NT_ARM_PAC_ENABLED_KEYS, NT_ARM_PAC_MASK,
    NT_ARM_PACA_KEYS, NT_ARM_PACG_KEYS, NT_ARM_POE, NT_ARM_SSVE, NT_ARM_SVE, NT_ARM_SYSTEM_CALL,
    NT_ARM_TAGGED_ADDR_CTRL, NT_ARM_TLS, NT_ARM_ZA, NT_ARM_ZT, NT_PRFPREG,
};

use super::{Architecture, set_word, word};

// Indices in `struct user_pt_regs` (arch/arm64/include/uapi/asm/ptrace.h), in words; X0 to X30 come first.
const X8: usize = 8;
const SP: usize = 31;
const PC: usize = 32;
const PSTATE: usize = 33;
/// Bits of `pstate` that demand a landing pad at the next instruction: an indirect branch was the last one.
const BTYPE: u64 = 3 << 10;

pub(super) static ARCHITECTURE: Architecture = Architecture {
    elf_machine: EM_AARCH64,
    general_registers: 34 * 8,
    // `enum aarch64_regset` (arch/arm64/kernel/ptrace.c).
    register_sets: &[
        (NT_PRFPREG, "CORE"),
        (NT_ARM_TLS, "LINUX"),
        (NT_ARM_HW_BREAK, "LINUX"),
        (NT_ARM_HW_WATCH, "LINUX"),
        (NT_ARM_FPMR, "LINUX"),
        (NT_ARM_SYSTEM_CALL, "LINUX"),
        (NT_ARM_SVE, "LINUX"),
        (NT_ARM_SSVE, "LINUX"),
        (NT_ARM_ZA, "LINUX"),
        (NT_ARM_ZT, "LINUX"),
        (NT_ARM_PAC_MASK, "LINUX"),
        (NT_ARM_PAC_ENABLED_KEYS, "LINUX"),
        (NT_ARM_PACA_KEYS, "LINUX"),
        (NT_ARM_PACG_KEYS, "LINUX"),
        (NT_ARM_TAGGED_ADDR_CTRL, "LINUX"),
        (NT_ARM_POE, "LINUX"),
        (NT_ARM_GCS, "LINUX"),
    ],
    // ZA is a square of up to 256 bytes a side, with a header.
    register_set_room: (64 << 10) + 4096,
    system_call: &[0x01, 0x00, 0x00, 0xd4],
    alignment: 4,
    program_counter: PC,
    number: X8,
    result: 0,
    arguments: [0, 1, 2, 3, 4, 5],
    stack_pointer: SP,
    enter,
    current_call: Some(NT_ARM_SYSTEM_CALL),
    // System calls leave streaming mode, and keep the lower 128 bits of the vector registers only (Documentation/arch/arm64/
    // sve.rst and sme.rst). At most one of the two is in use.
    vector_sets: &[NT_ARM_SVE, NT_ARM_SSVE],
    stub: stub::STUB,
};

fn enter(registers: &mut [u8], address: u64) {
    set_word(registers, PC, address);
    let state = word(registers, PSTATE);
    set_word(registers, PSTATE, state & !BTYPE);
}
