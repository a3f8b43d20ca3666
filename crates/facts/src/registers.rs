//! Registers of each CPU, from its NT_PRSTATUS note.

use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use pagehaul_machine::{PR_PID, PR_REG, Platform, arch};
use serde::Serialize;

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
pub fn registers_of(notes: &[u8], platform: Platform) -> Vec<CpuRegisters> {
    // Hypervisors may leave the machine open.
    let machine = if platform.machine == 0 { Platform::X86_64.machine } else { platform.machine };
    let Some(names) = arch::status_registers(machine).filter(|_| platform.wide) else { return Vec::new() };
    let order = |mut bytes: [u8; 8], size: usize| {
        if platform.big_endian {
            bytes[..size].reverse();
        }
        u64::from_le_bytes(bytes)
    };
    notes::iter(notes)
        .filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS)
        .enumerate()
        .filter_map(|(cpu, note)| {
            let [a, b, c, d] = *note.desc.get(PR_PID..)?.first_chunk()?;
            let pid = order([a, b, c, d, 0, 0, 0, 0], 4) as u32;
            let (words, _) = note.desc.get(PR_REG..)?.get(..names.names.len() * 8)?.as_chunks::<8>();
            let values = words.iter().map(|word| order(*word, 8));
            Some(CpuRegisters {
                cpu,
                pid,
                registers: names.names.iter().copied().zip(values).collect(),
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
        let arch = |machine, big_endian| Platform { machine, big_endian, ..Platform::X86_64 };
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
            let mut desc = vec![0; PR_REG + 400];
            let mut put = |at: usize, value: u64, size: usize| {
                let bytes = value.to_le_bytes();
                desc[at..at + size].copy_from_slice(&bytes[..size]);
                if arch.big_endian {
                    desc[at..at + size].reverse();
                }
            };
            put(PR_PID, 4711, 4);
            put(PR_REG + at * 8, 0xffff_8000_1234_5678, 8);
            put(PR_REG + last * 8, 77, 8);
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
