//! The tasks of a dump: its log may name any of them.

use pagehaul_inspect::{Machine, tasks};
use pagehaul_kernel::{AddressSpace, VirtualMemory};
use pagehaul_physmem::PhysMemory;

use crate::names::TaskName;

/// Returns the names of the tasks, where the dump has them.
pub fn task_names(memory: &dyn PhysMemory) -> Vec<TaskName> {
    let Ok(space) = AddressSpace::discover(memory) else { return Vec::new() };
    let virt = VirtualMemory::new(&space, memory);
    let tasks = Machine::open(&space, &virt, memory.notes()).ok().and_then(|machine| tasks(&machine).ok());
    let all = tasks.map(|tasks| tasks.all).unwrap_or_default();
    all.into_iter().map(|task| TaskName { name: task.comm, is_kernel_thread: task.kernel_thread }).collect()
}
