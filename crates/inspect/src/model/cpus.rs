//! CPUs: what each ran, from its run queue and the registers it saved.

use pagehaul_btf::Fault;
use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use pagehaul_facts::Kind;
use pagehaul_machine::PR_PID;
use serde::Serialize;

use super::stacks::StackTrace;
use crate::findings::death::Death;
use crate::hex::Hex;
use crate::machine::Machine;
use crate::structures::clock::scheduler_clock;
use crate::structures::crash_notes::{saved_status, until_crash};
use crate::structures::registers;
use crate::structures::tasks::{Task, task_at};
use crate::unwind::Unwinder;

/// Pending calls that are shown of a CPU.
const MAX_CALLS: usize = 16;

/// A CPU.
#[derive(Debug, Clone, Serialize)]
pub struct Cpu {
    /// Its number.
    pub number: u64,
    /// Its current task, the idle task included.
    pub task: Option<Task>,
    /// PID of its current task by the notes, 0 of an idle task: only where the task is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
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
    /// Seconds since its last tick, by the clock of its run queue. None of idle CPUs, whose ticks stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_without_tick: Option<f64>,
    /// Functions that other CPUs asked it to call, by IPI, which it has not called yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_calls: Vec<String>,
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

/// What the notes have of each CPU (`struct elf_prstatus`).
fn in_notes<'a>(machine: &Machine<'a>) -> impl Iterator<Item = &'a [u8]> {
    let of_cpus = |note: &notes::Note<'_>| note.name == b"CORE" && note.kind == NT_PRSTATUS;
    notes::iter(machine.notes()).filter(of_cpus).map(|note| note.desc)
}

/// Reads the CPUs of a kernel that cannot name them: those with registers in the notes, in their order, which need not be that of their
/// numbers.
pub(crate) fn of_notes(machine: &Machine<'_>, unwinder: &Unwinder<'_>, death: &Death) -> Vec<Cpu> {
    // Programs that save the memory of virtual machines write the CPU's number instead of a PID.
    let by_kernel = machine.kernel().crash_time().is_some();
    let mut cpus: Vec<Cpu> = in_notes(machine)
        .enumerate()
        .map(|(at, status)| of_note(machine, unwinder, at as u64, status, by_kernel))
        .collect();
    // The CPU that crashes always saves its registers.
    let has_crashed = match &cpus[..] {
        [_] if by_kernel => Some(0),
        _ => {
            let runs = |cpu: &Cpu| cpu.pid.is_some_and(|pid| pid != 0 && Some(pid) == crashed_task(death));
            let mut found = cpus.iter().enumerate().filter(|(_, cpu)| runs(cpu)).map(|(at, _)| at);
            found.next().filter(|_| found.next().is_none())
        }
    };
    if let Some(cpu) = has_crashed.and_then(|at| cpus.get_mut(at)) {
        cpu.crashed = true;
    }
    cpus
}

/// The task that crashed, by the log. Watchdogs name the task that they found.
fn crashed_task(death: &Death) -> Option<u32> {
    let kind = death.kind.filter(|kind| *kind != Kind::HungTask && !kind.interrupts())?;
    death.task.as_ref().filter(|_| kind != Kind::OomPanic).map(|(_, pid)| *pid)
}

fn of_note(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    number: u64,
    status: &[u8],
    by_kernel: bool,
) -> Cpu {
    let saved = registers::saved(machine, status);
    let pid = status.get(PR_PID..).and_then(<[u8]>::first_chunk).map(|pid| u32::from_le_bytes(*pid));
    let pid = pid.filter(|_| by_kernel && saved.is_some());
    let in_kernel = saved.as_ref().filter(|saved| !saved.mode.user);
    Cpu {
        number,
        task: None,
        pid,
        runnable: None,
        saved_registers: saved.is_some(),
        user_mode: saved.as_ref().is_some_and(|saved| saved.mode.user),
        interrupts_on: saved.as_ref().and_then(|saved| saved.mode.interrupts_on),
        idle: pid == Some(0),
        seconds_without_tick: None,
        pending_calls: Vec::new(),
        crashed: false,
        stack: in_kernel.map(|saved| match machine.lacks_symbols() {
            // All addresses would be those of no code.
            Some(_) => StackTrace::of_one(&saved.registers),
            None => StackTrace::new(machine, &unwinder.unwind(saved.registers)),
        }),
        registers: saved.map_or_else(Vec::new, |saved| saved.named),
    }
}

/// Reads all CPUs that ran until the crash.
pub fn cpus(machine: &Machine<'_>, unwinder: &Unwinder<'_>) -> Result<Vec<Cpu>, Fault> {
    let online = until_crash(machine)?;
    let crashed = crashed_cpu(machine);
    let latest = scheduler_clock(machine).ok();
    let in_file: Vec<&[u8]> = in_notes(machine).collect();
    Ok(online
        .iter()
        .enumerate()
        .map(|(at, number)| {
            let status = saved_status(machine, *number).or_else(|| {
                // A hypervisor's dump has them in the file only, one for each CPU that is online.
                let usable = in_file.len() == online.len();
                in_file.get(at).filter(|_| usable).map(|status| status.to_vec())
            });
            read(machine, unwinder, *number, status.as_deref(), crashed == Some(*number), latest)
        })
        .collect())
}

fn read(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    number: u64,
    status: Option<&[u8]>,
    crashed: bool,
    latest: Option<u64>,
) -> Cpu {
    let queue = machine.per_cpu("runqueues", number).and_then(|queue| machine.space().object(queue, "rq"));
    let current = queue.as_ref().ok().and_then(|queue| queue.get("curr").ok()?.pointer().ok());
    let idle = queue.as_ref().ok().and_then(|queue| queue.get("idle").ok()?.pointer().ok());
    let runnable = queue.as_ref().ok().and_then(|queue| queue.number("nr_running").ok());
    let clock = queue.ok().and_then(|queue| queue.number("clock").ok()).filter(|clock| *clock > 0);
    let idles = current.is_some() && current == idle;
    let saved = status.and_then(|status| registers::saved(machine, status));
    let stack = saved.as_ref().filter(|saved| !saved.mode.user).map(|saved| {
        let stack = unwinder.unwind(saved.registers);
        StackTrace::new(machine, &stack)
    });
    Cpu {
        number,
        task: current.and_then(|current| task_at(machine, current).ok()),
        pid: None,
        runnable,
        saved_registers: saved.is_some(),
        user_mode: saved.as_ref().is_some_and(|saved| saved.mode.user),
        interrupts_on: saved.as_ref().and_then(|saved| saved.mode.interrupts_on),
        idle: idles,
        seconds_without_tick: clock
            .zip(latest)
            .filter(|_| !idles)
            .map(|(clock, latest)| latest.saturating_sub(clock) as f64 / 1e9),
        pending_calls: pending_calls(machine, number).unwrap_or_default(),
        crashed,
        registers: saved.map_or_else(Vec::new, |saved| saved.named),
        stack,
    }
}

/// Functions in the CPU's queue of calls (`call_single_queue`, kernel/smp.c).
fn pending_calls(machine: &Machine<'_>, cpu: u64) -> Result<Vec<String>, Fault> {
    let space = machine.space();
    // 4b44a21dd640 (5.8) put the list into a node that other kinds of work share.
    let of_list = space
        .offset_of("__call_single_data", "node.llist")
        .or_else(|_| space.offset_of("__call_single_data", "llist"))?;
    let mut found = Vec::new();
    let mut node = machine.memory().u64(machine.per_cpu("call_single_queue", cpu)?)?;
    while node != 0 && found.len() < MAX_CALLS {
        let call = space.object(node.wrapping_sub(of_list), "__call_single_data")?;
        found.push(machine.function_at(call.get("func")?.pointer()?));
        node = machine.memory().u64(node)?;
    }
    Ok(found)
}

impl Cpu {
    /// Returns the address of its current task.
    pub fn task_address(&self) -> Option<Hex> {
        self.task.as_ref().map(|task| task.address)
    }
}
