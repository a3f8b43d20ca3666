//! Registers of each CPU, from its NT_PRSTATUS note.

use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use pagehaul_physmem::Arch;
use serde::Serialize;

/// Where `pr_pid` is in the `struct elf_prstatus` of 64-bit machines (include/linux/elfcore.h), and where `pr_reg` starts.
const PID: usize = 32;
const REGISTERS: usize = 112;

/// The 64-bit words of `pr_reg`, in order; and which of them are the address of the instruction, the stack pointer and
/// the flags.
struct Names {
    all: &'static [&'static str],
    summary: [&'static str; 3],
}

/// `struct user_regs_struct` (arch/x86/include/asm/user_64.h).
const X86_64: Names = Names {
    all: &[
        "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
        "rdi", "orig_rax", "rip", "cs", "rflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
    ],
    summary: ["rip", "rsp", "rflags"],
};

/// `struct user_pt_regs` (arch/arm64/include/uapi/asm/ptrace.h).
const AARCH64: Names = Names {
    all: &[
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
        "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29",
        "x30", "sp", "pc", "pstate",
    ],
    summary: ["pc", "sp", "pstate"],
};

/// `s390_regs` (arch/s390/include/uapi/asm/ptrace.h), up to the access registers.
const S390X: Names = Names {
    all: &[
        "psw_mask", "psw_addr", "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11",
        "r12", "r13", "r14", "r15",
    ],
    summary: ["psw_addr", "r15", "psw_mask"],
};

/// `struct pt_regs` (arch/powerpc/include/uapi/asm/ptrace.h).
const PPC64: Names = Names {
    all: &[
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

/// `struct user_regs_struct` (arch/riscv/include/uapi/asm/ptrace.h). It has no flags; tp points to the task.
const RISCV64: Names = Names {
    all: &[
        "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
        "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
    ],
    summary: ["pc", "sp", "tp"],
};

/// Registers of a CPU.
#[derive(Debug, Serialize)]
pub struct CpuRegisters {
    /// Its number in the order of the notes.
    pub cpu: usize,
    /// PID of the task it ran; 0 for the idle task.
    pub pid: u32,
    /// Names and values.
    pub registers: Vec<(&'static str, u64)>,
    /// The names of those that a summary shows.
    #[serde(skip)]
    summary: [&'static str; 3],
}

/// Returns the registers of every CPU that left them, on 64-bit machines whose layout is known.
pub fn registers_of(notes: &[u8], arch: Arch) -> Vec<CpuRegisters> {
    let names = match arch.machine {
        _ if !arch.wide => return Vec::new(),
        0 | 62 => X86_64,
        183 => AARCH64,
        22 => S390X,
        21 => PPC64,
        243 => RISCV64,
        _ => return Vec::new(),
    };
    let order = |mut bytes: [u8; 8], size: usize| {
        if arch.big_endian {
            bytes[..size].reverse();
        }
        u64::from_le_bytes(bytes)
    };
    notes::iter(notes)
        .filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS)
        .enumerate()
        .filter_map(|(cpu, note)| {
            let [a, b, c, d] = *note.desc.get(PID..)?.first_chunk()?;
            let pid = order([a, b, c, d, 0, 0, 0, 0], 4) as u32;
            let (words, _) = note.desc.get(REGISTERS..)?.get(..names.all.len() * 8)?.as_chunks::<8>();
            let values = words.iter().map(|word| order(*word, 8));
            Some(CpuRegisters {
                cpu,
                pid,
                registers: names.all.iter().copied().zip(values).collect(),
                summary: names.summary,
            })
        })
        .collect()
}

impl CpuRegisters {
    /// The address of the instruction, the stack pointer and the flags.
    pub fn summary(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.summary.into_iter().map(|name| {
            let found = self.registers.iter().find(|(known, _)| *known == name);
            (name, found.map_or(0, |(_, value)| *value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_where_each_machine_has_them() {
        let arch = |machine, big_endian| Arch { machine, big_endian, ..Arch::X86_64 };
        // The word of the instruction's address, and the last word, by machine.
        let cases = [
            (arch(62, false), 16, 26, "rip"),
            (arch(183, false), 32, 33, "pc"),
            (arch(22, true), 1, 17, "psw_addr"),
            (arch(21, false), 32, 43, "nip"),
            (arch(21, true), 32, 43, "nip"),
            (arch(243, false), 0, 31, "pc"),
        ];
        for (arch, at, last, name) in cases {
            let mut desc = vec![0; REGISTERS + 400];
            let mut put = |at: usize, value: u64, size: usize| {
                let bytes = value.to_le_bytes();
                desc[at..at + size].copy_from_slice(&bytes[..size]);
                if arch.big_endian {
                    desc[at..at + size].reverse();
                }
            };
            put(PID, 4711, 4);
            put(REGISTERS + at * 8, 0xffff_8000_1234_5678, 8);
            put(REGISTERS + last * 8, 77, 8);
            let mut bytes = Vec::new();
            notes::push(&mut bytes, "CORE", NT_PRSTATUS, &desc);
            let cpus = registers_of(&bytes, arch);
            assert_eq!(cpus[0].pid, 4711, "{name}");
            assert_eq!(cpus[0].summary().next(), Some((name, 0xffff_8000_1234_5678)));
            assert_eq!(cpus[0].registers.last().map(|(_, value)| *value), Some(77), "{name}");
        }
        assert!(registers_of(&[], arch(8, false)).is_empty());
    }
}
