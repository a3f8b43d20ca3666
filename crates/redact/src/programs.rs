//! The programs of a dump: its log may name any of them.

use pagehaul_inspect::{Machine, tasks};
use pagehaul_kernel::{AddressSpace, VirtualMemory};
use pagehaul_physmem::PhysMemory;

/// Returns the names of the programs that ran, where the dump has them.
pub fn programs(memory: &dyn PhysMemory) -> Vec<String> {
    let Ok(space) = AddressSpace::discover(memory) else { return Vec::new() };
    let virt = VirtualMemory::new(&space, memory);
    let tasks = Machine::open(&space, &virt, memory.notes()).ok().and_then(|machine| tasks(&machine).ok());
    let all = tasks.map(|tasks| tasks.all).unwrap_or_default();
    all.into_iter().filter(|task| !task.kernel_thread).map(|task| task.comm).collect()
}
