//! The page tables of processes.

use pagehaul_capture::ProcessTables;
use pagehaul_inspect::{Machine, Task, tasks};
use pagehaul_kernel::VirtualMemory;

use crate::find::FindError;

/// Finds the page tables of the processes `pids`.
pub(crate) fn find(
    machine: &Machine<'_>,
    memory: &VirtualMemory<'_>,
    pids: &[u32],
    record: &mut Vec<String>,
) -> Result<Vec<ProcessTables>, FindError> {
    if pids.is_empty() {
        return Ok(Vec::new());
    }
    let tasks = tasks(machine).map_err(FindError::reading("the list of tasks"))?;
    let mut found: Vec<ProcessTables> = Vec::new();
    for pid in pids {
        let Some(task) = tasks.by_pid(*pid) else {
            let broken = tasks.broken.first().map(|why| format!(" (the list of tasks is damaged: {why})"));
            return Err(FindError::NotThere(format!(
                "no process has PID {pid}{}; expected PIDs that `pagehaul triage --tasks` lists",
                broken.unwrap_or_default()
            )));
        };
        let process = of_task(machine, memory, task)?;
        // Without its name, which `--erase names` would not find in the record.
        let line = format!("keep process {}", task.tgid);
        // Two threads of a process have the same memory.
        if !record.contains(&line) {
            record.push(line);
        }
        if !found.iter().any(|known| known.root == process.root) {
            found.push(process);
        }
    }
    Ok(found)
}

fn of_task(
    machine: &Machine<'_>,
    memory: &VirtualMemory<'_>,
    task: &Task,
) -> Result<ProcessTables, FindError> {
    let name = format!("{}/{}", task.comm, task.tgid);
    if task.kernel_thread || task.mm.0 == 0 {
        let why = if task.kernel_thread { "is a kernel thread and" } else { "has ended and" };
        return Err(FindError::NotThere(format!("{} {why} has no memory of user space", task.label())));
    }
    let reading = || FindError::reading(format!("the memory of {name}"));
    let mm = machine.space().object(task.mm.0, "mm_struct").map_err(reading())?;
    let top = mm.get("pgd").and_then(|top| top.pointer()).map_err(reading())?;
    match memory.physical(top) {
        Ok(root) => Ok(ProcessTables { name, root }),
        Err(why) => {
            Err(FindError::Broken { what: format!("the top page table of {name}"), why: why.to_string() })
        }
    }
}
