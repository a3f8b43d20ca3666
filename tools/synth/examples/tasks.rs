//! Writes the vmcore of a machine with many tasks, each with pages of its own: `tasks VMCORE NUMBER [GIB]`. With GIB, the
//! machine has this much memory; what no task needs is zeros.

use std::path::Path;

use pagehaul_synth::{Era, Inside, Machine, Task};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, number, gib @ ..] = arguments.as_slice() else {
        panic!("usage: tasks VMCORE NUMBER [GIB]")
    };
    let number: u32 = number.parse().expect("a number of tasks");
    let stack = vec!["__schedule", "schedule", "schedule_timeout", "do_wait", "worker", "kthread"];
    let task = |pid| Task {
        pid,
        comm: format!("worker/{pid}"),
        // Every hundredth is blocked.
        state: if pid % 100 == 0 { 2 } else { 1 },
        ran: 50,
        stack: stack.clone(),
        pages: Some(u64::from(pid)),
    };
    let inside = Inside {
        tasks: (1..=number).map(task).collect(),
        clock: 100,
        free: 1 << 20,
        counters: [1 << 20, 1 << 20, 1 << 16, 1 << 12],
        recorded: None,
        spread: true,
        ..Inside::default()
    };
    let mut machine = Machine::new(Era::V6_12);
    // A page for each task, and some for the rest.
    let needed = 0x1000_0000 + (u64::from(number) << 13);
    let memory = gib.first().map_or(0, |gib| gib.parse::<u64>().expect("a number of GiB") << 30);
    machine.ram(0x10_0000, needed.max(memory));
    // Behind the struct pages of the kernel, up to 7 GiB of memory.
    machine.inside(0x8000, &inside);
    machine.build().elf().write(Path::new(path)).expect("the vmcore can be written");
}
