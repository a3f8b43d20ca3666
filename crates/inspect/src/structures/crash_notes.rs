//! Which CPUs ran until the crash, and the registers that each left in memory (`crash_notes`).

use pagehaul_btf::Fault;

use crate::machine::Machine;

/// Bytes of the note's header and name, "CORE" padded.
const NOTE_HEADER: u64 = 12 + 8;

/// The CPUs that ran until the crash: those online, and those that saved their registers, which arm64 kernels then take offline
/// (`ipi_cpu_crash_stop`, arch/arm64/kernel/smp.c).
pub(crate) fn until_crash(machine: &Machine<'_>) -> Result<Vec<u64>, Fault> {
    let mut cpus = machine.cpu_mask("__cpu_online_mask")?;
    let possible = machine.cpu_mask("__cpu_possible_mask").unwrap_or_default();
    let stopped = possible.into_iter().filter(|cpu| !cpus.contains(cpu));
    let stopped: Vec<u64> = stopped.filter(|cpu| saved_status(machine, *cpu).is_some()).collect();
    cpus.extend(stopped);
    cpus.sort_unstable();
    Ok(cpus)
}

/// Returns `struct elf_prstatus` of each CPU that saved its registers in memory, by CPU number: what the notes of `/proc/vmcore` have.
pub fn saved_registers(machine: &Machine<'_>) -> Vec<Vec<u8>> {
    let possible = machine.cpu_mask("__cpu_possible_mask").unwrap_or_default();
    possible.into_iter().filter_map(|cpu| saved_status(machine, cpu)).collect()
}

/// The PRSTATUS note that the CPU itself left in memory (`crash_notes`): the notes of the file lack CPUs that are
/// offline, and so their numbers.
pub(crate) fn saved_status(machine: &Machine<'_>, cpu: u64) -> Option<Vec<u8>> {
    let area = machine.on_cpu(machine.u64("crash_notes").ok()?, cpu).ok()?;
    let memory = machine.memory();
    let (name, size) = (memory.u32(area).ok()?, memory.u32(area.wrapping_add(4)).ok()?);
    let expected = machine.arch().registers().status_bytes;
    if name != 5 || size as usize != expected {
        return None;
    }
    memory.bytes(area.wrapping_add(NOTE_HEADER), expected).ok()
}
