//! Notes of CPUs: those that QEMU writes, and those that a crashed kernel left in memory.

use pagehaul_elfcore::notes;
use pagehaul_inspect::{Machine, saved_registers};
use pagehaul_kernel::{AddressSpace, VirtualMemory};
use pagehaul_physmem::PhysMemory;

/// Bits of CR3 that are an address.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// CR3 in QEMU's note of an x86 CPU (`QEMUCPUState`, target/i386/arch_dump.c): behind version and size, 18 registers, 10 segments of 24
/// bytes, CR0 to CR2.
const CR3: usize = 8 + 18 * 8 + 10 * 24 + 3 * 8;

/// Returns the page tables that CPUs used, by QEMU's notes of them.
pub(crate) fn page_tables(all: &[u8]) -> Vec<u64> {
    let of_cpus = notes::iter(all).filter(|note| note.name == b"QEMU" && note.kind == 0);
    let cr3 = |desc: &[u8]| Some(u64::from_le_bytes(desc.get(CR3..CR3 + 8)?.try_into().ok()?));
    let mut roots: Vec<u64> = of_cpus
        .filter_map(|note| cr3(note.desc))
        .map(|cr3| cr3 & ADDRESS)
        .filter(|root| *root != 0)
        .collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Returns the notes of the CPUs as `/proc/vmcore` of the crashed kernel shows them, from what the CPUs left in memory (`crash_notes`).
/// `all_notes` has its VMCOREINFO. Empty if they left nothing.
pub(crate) fn of_crash(memory: &dyn PhysMemory, all_notes: &[u8]) -> Vec<u8> {
    let Ok(space) = AddressSpace::discover(memory) else { return Vec::new() };
    let virtual_memory = VirtualMemory::new(&space, memory);
    let Ok(machine) = Machine::open(&space, &virtual_memory, all_notes) else { return Vec::new() };
    let mut of_cpus = Vec::new();
    for registers in saved_registers(&machine) {
        notes::push(&mut of_cpus, "CORE", notes::NT_PRSTATUS, &registers);
    }
    of_cpus
}
