//! The stack of a task that does not run.

use pagehaul_btf::Fault;

use super::registers;
use crate::machine::Machine;
use crate::unwind::{Stack, Unwinder};

/// Unwinds a task that sleeps: from the registers that the scheduler saved.
pub(crate) fn sleeping_stack(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    task: u64,
) -> Result<Stack, Fault> {
    // 68f24b08ee89 (4.9) frees the stack of a task that exited: another task may have it.
    let stack = machine.space().object(task, "task_struct")?.get("stack").and_then(|stack| stack.pointer());
    if stack.is_ok_and(|stack| stack == 0) {
        return Err(Fault::Null(task));
    }
    Ok(unwinder.unwind(registers::sleeping(machine, task)?))
}

/// Returns the bounds of a task's stack.
pub(crate) fn stack_bounds(machine: &Machine<'_>, task: u64) -> Result<std::ops::Range<u64>, Fault> {
    let start = machine.space().object(task, "task_struct")?.get("stack")?.pointer()?;
    Ok(start..start.saturating_add(machine.arch().stack_bytes(machine.page_size())))
}

/// Returns the words of a task's stack above its saved stack pointer, or all if that is invalid, and the first one's address.
pub(crate) fn stack_words(machine: &Machine<'_>, task: u64) -> Result<(u64, Vec<u64>), Fault> {
    let bounds = stack_bounds(machine, task)?;
    let saved = registers::stack_pointer(machine, task)?;
    let start = if bounds.contains(&saved) { saved & !7 } else { bounds.start };
    let len = (bounds.end - start) as usize;
    let (bytes, _) = machine.memory().readable_bytes(start, len);
    Ok((start, bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect()))
}
