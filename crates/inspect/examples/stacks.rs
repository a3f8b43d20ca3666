//! Prints tasks, CPUs and modules with all stacks as JSON: `stacks DUMP`.

use std::path::PathBuf;
use std::time::Instant;

use pagehaul_inspect::{Machine, StackTrace, cpus, system, task_stack, tasks};
use pagehaul_kernel::{AddressSpace, VirtualMemory};
use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::Source;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dump = PathBuf::from(std::env::args().nth(1).ok_or("usage: stacks DUMP")?);
    let start = Instant::now();
    let source = Source::open(&dump, MapPolicy::default())?;
    let kernel = AddressSpace::discover(source.memory())?;
    let memory = VirtualMemory::new(&kernel, source.memory());
    let machine = Machine::open(&kernel, &memory, source.memory().notes())?;
    eprintln!("open {:?} {:?}", start.elapsed(), machine.warnings());
    let unwinder = machine.unwinder();
    let tasks = tasks(&machine)?;
    let cpus = cpus(&machine, &unwinder)?;
    let stacks: Vec<(u32, Option<StackTrace>)> =
        tasks.all.iter().map(|task| (task.pid, task_stack(&machine, &unwinder, task).ok())).collect();
    eprintln!("all {:?} {:?}", start.elapsed(), tasks.broken);
    println!(
        "{}",
        serde_json::json!({
            "system": system(&machine), "modules": machine.modules(), "tasks": tasks.all, "cpus": cpus, "stacks": stacks,
        })
    );
    Ok(())
}
