//! CPUs: what each ran, from its run queue and the registers it saved.

use pagehaul_btf::Fault;
use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use serde::Serialize;

use crate::crash_notes::{saved_status, until_crash};
use crate::tasks::task_at;
use crate::unwind::Unwinder;
use crate::{Hex, Machine, StackTrace, Task, registers};

/// A CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Cpu {
    /// Its number.
    pub number: u64,
    /// Its current task, the idle task included.
    pub task: Option<Task>,
    /// Tasks on its run queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runnable: Option<u64>,
    /// Whether it saved its registers: it answered the NMI, or crashed itself.
    pub saved_registers: bool,
    /// Whether it was in user mode.
    pub user_mode: bool,
    /// Whether interrupts were on, by its saved flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts_on: Option<bool>,
    /// Whether it runs its idle task.
    pub idle: bool,
    /// Whether it is the CPU that crashed.
    pub crashed: bool,
    /// The registers that it saved, in the order in which oopses print them.
    #[serde(skip)]
    pub registers: Vec<(&'static str, Hex)>,
    /// Its stack; empty in user mode and without registers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackTrace>,
}

/// The CPU that crashed: `crashing_cpu` (x86), or `panic_cpu`.
pub(crate) fn crashed_cpu(machine: &Machine<'_>) -> Option<u64> {
    ["crashing_cpu", "panic_cpu"]
        .into_iter()
        .find_map(|symbol| machine.u32(symbol).ok().map(|cpu| cpu as i32).filter(|cpu| *cpu >= 0))
        .map(|cpu| cpu as u64)
        .filter(|cpu| *cpu < machine.cpu_count())
}

/// Reads all CPUs that ran until the crash.
pub fn cpus(machine: &Machine<'_>, unwinder: &Unwinder<'_>) -> Result<Vec<Cpu>, Fault> {
    let online = until_crash(machine)?;
    let crashed = crashed_cpu(machine);
    let in_file: Vec<&[u8]> = notes::iter(machine.notes())
        .filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS)
        .map(|note| note.desc)
        .collect();
    Ok(online
        .iter()
        .enumerate()
        .map(|(at, number)| {
            let status = saved_status(machine, *number).or_else(|| {
                // A hypervisor's dump has them in the file only, one for each CPU that is online.
                let usable = in_file.len() == online.len();
                in_file.get(at).filter(|_| usable).map(|status| status.to_vec())
            });
            read(machine, unwinder, *number, status.as_deref(), crashed == Some(*number))
        })
        .collect())
}

fn read(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    number: u64,
    status: Option<&[u8]>,
    crashed: bool,
) -> Cpu {
    let queue = machine.per_cpu("runqueues", number).and_then(|queue| machine.space().object(queue, "rq"));
    let current = queue.as_ref().ok().and_then(|queue| queue.get("curr").ok()?.pointer().ok());
    let idle = queue.as_ref().ok().and_then(|queue| queue.get("idle").ok()?.pointer().ok());
    let runnable = queue.ok().and_then(|queue| queue.number("nr_running").ok());
    let saved = status.and_then(|status| registers::saved(machine, status));
    let stack = saved.as_ref().filter(|saved| !saved.mode.user).map(|saved| {
        let stack = unwinder.unwind(saved.registers);
        StackTrace::new(machine, &stack)
    });
    Cpu {
        number,
        task: current.and_then(|current| task_at(machine, current).ok()),
        runnable,
        saved_registers: saved.is_some(),
        user_mode: saved.as_ref().is_some_and(|saved| saved.mode.user),
        interrupts_on: saved.as_ref().and_then(|saved| saved.mode.interrupts_on),
        idle: current.is_some() && current == idle,
        crashed,
        registers: saved.map_or_else(Vec::new, |saved| saved.named),
        stack,
    }
}

impl Cpu {
    /// Returns the address of its current task.
    pub fn task_address(&self) -> Option<Hex> {
        self.task.as_ref().map(|task| task.address)
    }
}
