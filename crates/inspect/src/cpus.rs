//! CPUs: what each ran, from its run queue and the registers it saved.

use pagehaul_btf::Fault;
use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use pagehaul_unwind::{Registers, Unwinder};
use serde::Serialize;

use crate::tasks::task_at;
use crate::{Hex, Machine, StackTrace, Task};

/// Where `pr_reg` starts in x86_64's `struct elf_prstatus`.
const REGISTERS: u64 = 112;
/// Bytes of the note's header and name, "CORE" padded.
const NOTE_HEADER: u64 = 12 + 8;
/// Bytes of `struct elf_prstatus`.
const STATUS_BYTES: usize = 336;
/// Bit 9 of the flags: interrupts are on.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// Members of `struct pt_regs`, in the order in which oopses print them.
pub(crate) const REGISTER_NAMES: [&str; 18] = [
    "ip", "sp", "flags", "ax", "bx", "cx", "dx", "si", "di", "bp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

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

/// Reads all CPUs that are online.
pub fn cpus(machine: &Machine<'_>, unwinder: &Unwinder<'_>) -> Result<Vec<Cpu>, Fault> {
    let online = machine.cpu_mask("__cpu_online_mask")?;
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
    let registers = status.and_then(Saved::parse);
    let user_mode = registers.is_some_and(|saved| saved.cs & 3 != 0);
    let stack = registers.filter(|_| !user_mode).map(|saved| {
        let stack = unwinder.unwind(saved.registers);
        StackTrace::new(machine, &stack)
    });
    Cpu {
        number,
        task: current.and_then(|current| task_at(machine, current).ok()),
        runnable,
        saved_registers: registers.is_some(),
        user_mode,
        interrupts_on: registers.map(|saved| saved.flags & INTERRUPT_FLAG != 0),
        idle: current.is_some() && current == idle,
        crashed,
        registers: registers.and(status).map_or_else(Vec::new, named),
        stack,
    }
}

/// Registers of `struct elf_prstatus`, and their places in `struct user_regs_struct` (arch/x86/include/asm/user_64.h).
fn named(status: &[u8]) -> Vec<(&'static str, Hex)> {
    let places = [16, 19, 18, 10, 5, 11, 12, 13, 14, 4, 9, 8, 7, 6, 3, 2, 1, 0];
    REGISTER_NAMES
        .into_iter()
        .zip(places)
        .filter_map(|(name, place)| {
            let word = status.get(REGISTERS as usize + 8 * place..)?.first_chunk()?;
            Some((name, Hex(u64::from_le_bytes(*word))))
        })
        .collect()
}

/// The PRSTATUS note that the CPU itself left in memory (`crash_notes`): the notes of the file lack CPUs that are
/// offline, and so their numbers.
fn saved_status(machine: &Machine<'_>, cpu: u64) -> Option<Vec<u8>> {
    let area = machine.on_cpu(machine.u64("crash_notes").ok()?, cpu).ok()?;
    let memory = machine.memory();
    let (name, size) = (memory.u32(area).ok()?, memory.u32(area.wrapping_add(4)).ok()?);
    if name != 5 || size as usize != STATUS_BYTES {
        return None;
    }
    memory.bytes(area.wrapping_add(NOTE_HEADER), STATUS_BYTES).ok()
}

#[derive(Debug, Clone, Copy)]
struct Saved {
    registers: Registers,
    cs: u64,
    flags: u64,
}

impl Saved {
    /// `struct user_regs_struct` (arch/x86/include/asm/user_64.h).
    fn parse(status: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            let word = status.get(REGISTERS as usize + 8 * index..)?.first_chunk()?;
            Some(u64::from_le_bytes(*word))
        };
        let registers = Registers {
            ip: word(16)?,
            sp: word(19)?,
            bp: word(4)?,
            ax: word(10),
            dx: word(12),
            di: word(14),
            r10: word(7),
            r13: word(2),
            exact: true,
        };
        (registers.ip != 0).then_some(Self { registers, cs: word(17)?, flags: word(18)? })
    }
}

impl Cpu {
    /// Returns the address of its current task.
    pub fn task_address(&self) -> Option<Hex> {
        self.task.as_ref().map(|task| task.address)
    }
}
