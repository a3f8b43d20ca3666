//! Registers of each processor, from its NT_PRSTATUS note.

use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use serde::Serialize;

/// `e_machine` of x86_64.
const EM_X86_64: u16 = 62;
/// Where `pr_pid` is in x86_64's `struct elf_prstatus`, and where `pr_reg`, an array of words, starts.
const PID: usize = 32;
const REGISTERS: usize = 112;
/// The words of `pr_reg` (`struct user_regs_struct`, arch/x86/include/asm/user_64.h), in their order.
const NAMES: [&str; 27] = [
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi",
    "orig_rax", "rip", "cs", "rflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
];

/// One processor.
#[derive(Debug, Serialize)]
pub(crate) struct Cpu {
    /// Its number in the order of the notes.
    pub(crate) cpu: usize,
    /// PID of the task it ran; 0 for the idle task.
    pub(crate) pid: u32,
    /// Names and values.
    pub(crate) registers: Vec<(&'static str, u64)>,
}

/// Of every processor that left its registers, on x86_64.
pub(crate) fn of(notes: &[u8], machine: u16) -> Vec<Cpu> {
    if machine != EM_X86_64 && machine != 0 {
        return Vec::new();
    }
    notes::iter(notes)
        .filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS)
        .enumerate()
        .filter_map(|(cpu, note)| {
            let pid = u32::from_le_bytes(*note.desc.get(PID..)?.first_chunk()?);
            let (words, _) = note.desc.get(REGISTERS..REGISTERS + NAMES.len() * 8)?.as_chunks::<8>();
            let registers =
                NAMES.into_iter().zip(words.iter().map(|word| u64::from_le_bytes(*word))).collect();
            Some(Cpu { cpu, pid, registers })
        })
        .collect()
}

impl Cpu {
    /// The value of a register.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.registers.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }
}
