//! What tests of balances share.

// Not every test needs all of it.
#![allow(dead_code)]

use std::path::Path;

use pagehaul_inspect::Machine;
use pagehaul_kernel::{Kernel, VirtualMemory};
use pagehaul_owners::{Balance, Effort, References, balance};
use pagehaul_physmem::{MapPolicy, PhysMemory};
use pagehaul_vmcore::Source;

/// Returns balances of the vmcore at `path`, one for each effort.
pub fn balances<const N: usize>(path: &Path, efforts: [(usize, References); N]) -> Option<[Balance; N]> {
    let source = Source::open(path, MapPolicy::default()).ok()?;
    let memory = source.memory();
    let kernel = Kernel::discover(memory).ok()?;
    let virtual_memory = VirtualMemory::new(kernel.space(), memory);
    let machine = Machine::open(kernel.space(), &virtual_memory, memory.notes()).ok()?;
    let with =
        |(threads, references)| balance(&machine, &kernel, memory, Effort { threads, references }).ok();
    let found: Option<Vec<Balance>> = efforts.into_iter().map(with).collect();
    found?.try_into().ok()
}

/// Returns the balance of memory, with what the kernel's symbols and types lack, which can be all.
pub fn balance_of(memory: &dyn PhysMemory) -> Option<Balance> {
    let kernel = Kernel::discover(memory).ok()?;
    let virtual_memory = VirtualMemory::new(kernel.space(), memory);
    let notes = memory.notes();
    let machine = Machine::open(kernel.space(), &virtual_memory, notes)
        .unwrap_or_else(|why| Machine::without_symbols(kernel.space(), &virtual_memory, notes, &why));
    let effort = Effort { threads: 2, references: References::Never };
    let mut found = balance(&machine, &kernel, memory, effort).ok()?;
    found.missing.extend(machine.warnings().iter().cloned());
    Some(found)
}
