//! Everything together.

use pagehaul_btf::Fault;
use pagehaul_elfcore::notes;
use pagehaul_facts::{Crash, Kind, Signature};
use pagehaul_kernel::{KernelError, KernelLog};
use pagehaul_present::number::counted;
use serde::Serialize;

use super::ahead;
use super::gaps::{Gaps, Part};
use super::without_symbols;
use crate::findings::cause::{cause, died};
use crate::findings::death::{Death, LogLine, death, last_words};
use crate::findings::verdict::{Facts, Finding, findings};
use crate::machine::Machine;
use crate::machine::module::Module;
use crate::model::cpus::{Cpu, cpus, crashed_cpu, of_notes};
use crate::model::locks::locks;
use crate::model::stacks::{FrameName, StackGroup, StackTrace, group, task_stack};
use crate::model::waits::Locks;
use crate::model::workers::{Worker, workers};
use crate::structures::block;
use crate::structures::block::{Request, Suspended};
use crate::structures::memory::{Memory, memory};
use crate::structures::net::{Net, net};
use crate::structures::slab::{Cache, caches};
use crate::structures::system::{System, system};
use crate::structures::tasks::{Task, Tasks, tasks};
use crate::structures::vmalloc::{Vmalloc, vmalloc};
use crate::unwind::Unwinder;

/// Blocked tasks whose stacks are unwound for the report.
const MAX_BLOCKED: usize = 10_000;
/// Locks whose holders are unwound.
const MAX_HOLDERS: usize = 100;
/// Lines of the log that are kept.
const LAST_LINES: usize = 12;

/// A line of the end of the log.
#[derive(Debug, Clone, Serialize)]
pub struct LastLine {
    /// The line.
    #[serde(flatten)]
    pub line: LogLine,
    /// Whether its level is warning or worse.
    pub important: bool,
}

/// A task's stack.
#[derive(Debug, Clone, Serialize)]
pub struct TaskStack {
    /// Thread ID.
    pub pid: u32,
    /// The stack; none if it runs in user mode or cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackTrace>,
    /// Why there is none, if it is not user mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// The report of a machine.
#[derive(Debug, Serialize)]
pub struct TriageReport {
    /// The machine.
    pub system: System,
    /// How it died.
    pub death: Death,
    /// The frames that are to blame.
    pub cause: Vec<FrameName>,
    /// Groups equal crashes, from the log alone; none without a crash in the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// The crash as the log has it, where nothing else is known of it: without the kernel's symbols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash: Option<Crash>,
    /// The weightiest findings.
    pub verdict: Vec<Finding>,
    /// CPUs that were online.
    pub cpus: Vec<Cpu>,
    /// Numbers of tasks by state.
    pub states: Vec<(char, usize)>,
    /// Blocked tasks (D) by stack.
    pub blocked: Vec<StackGroup>,
    /// Workers that run a work.
    pub workers: Vec<Worker>,
    /// Locks that tasks wait for.
    pub locks: Locks,
    /// Memory.
    pub memory: Memory,
    /// Slab caches, the largest first.
    pub slab: Vec<Cache>,
    /// The vmalloc space.
    pub vmalloc: Option<Vmalloc>,
    /// Block requests in flight.
    pub requests: Vec<Request>,
    /// Device-mapper devices that are suspended.
    pub suspended: Vec<Suspended>,
    /// The network.
    pub net: Net,
    /// Modules.
    pub modules: Vec<Module>,
    /// Whether the list of modules could be read.
    #[serde(skip)]
    pub modules_known: bool,
    /// Whether the kernel's symbols could be read: else the report rests on the notes and the log.
    #[serde(skip)]
    pub symbols_known: bool,
    /// Whether the kernel ran while its memory was read: nothing crashed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub running: bool,
    /// The end of the log.
    pub log: Vec<LastLine>,
    /// What is missing, one sentence each.
    pub missing: Vec<String>,
    /// The parts that were not read in whole.
    #[serde(skip_serializing_if = "Gaps::is_empty")]
    pub gaps: Gaps,
    /// All tasks.
    #[serde(skip)]
    pub tasks: Tasks,
}

/// The parts that a task is in.
const OF_TASK: &[Part] = &[Part::Cpus, Part::Tasks, Part::Stacks, Part::Locks, Part::Modules];
/// The parts that a list of tasks with their stacks shows.
const OF_TASK_LIST: &[Part] = &[Part::Tasks, Part::Stacks, Part::Modules];

impl TriageReport {
    /// Returns what is missing that may concern one task: the sentences of the parts that it is in, and those of the whole dump.
    pub fn missing_of_task(&self) -> impl Iterator<Item = &str> {
        self.missing_of(OF_TASK)
    }

    /// Returns what may be missing from a list of tasks and their stacks.
    pub fn missing_of_task_list(&self) -> impl Iterator<Item = &str> {
        self.missing_of(OF_TASK_LIST)
    }

    /// Returns the sentences of these parts, and those of the whole dump.
    fn missing_of(&self, parts: &'static [Part]) -> impl Iterator<Item = &str> {
        let of_others = |why: &str| {
            let part = Part::ALL
                .into_iter()
                .find(|part| why.strip_prefix(part.name()).is_some_and(|rest| rest.starts_with(':')));
            part.is_some_and(|part| !parts.contains(&part))
        };
        self.missing.iter().map(String::as_str).filter(move |why| !of_others(why))
    }

    /// Reads everything, and finds what is wrong. `log` is the log, or why it cannot be read.
    pub fn new(machine: &Machine<'_>, log: Result<&KernelLog, &KernelError>) -> Self {
        let mut report = Self::read(machine, log);
        report.judge();
        report
    }

    /// Finds what is wrong: the verdict, which names only what the report has.
    pub fn judge(&mut self) {
        self.verdict = findings(&Facts {
            running: self.running,
            death: &self.death,
            system: &self.system,
            cause: &self.cause,
            in_log: self.crash.as_ref().map_or(&[], |crash| &crash.signature.frames),
            died: died(&self.death, &self.cpus),
            cpus: &self.cpus,
            tasks: &self.tasks,
            blocked: &self.blocked,
            locks: &self.locks,
            workers: &self.workers,
            memory: &self.memory,
            slab: &self.slab,
            requests: &self.requests,
            suspended: &self.suspended,
            net: &self.net,
            vmalloc: self.vmalloc.as_ref(),
            knows_cpus: self.gaps.is_whole(Part::Cpus),
            knows_modules: self.gaps.is_whole(Part::Modules),
        });
    }

    /// Reads everything; the verdict is empty.
    pub fn read(machine: &Machine<'_>, log: Result<&KernelLog, &KernelError>) -> Self {
        let mut notes = Notes { machine, missing: machine.warnings().to_vec(), gaps: Gaps::default() };
        if machine.lacks_symbols().is_some() {
            return Self::without_symbols(log, notes);
        }
        let unwinder = machine.unwinder();
        ahead::report(machine);
        drop(machine.take_lost());
        let system = system(machine);
        notes.missing.extend(machine.take_lost().describe().map(|why| format!("the machine: {why}")));
        let empty = KernelLog::default();
        // Either can be lost.
        let crashed = crashed_cpu(machine).is_some() || machine.kernel().crash_time().is_some();
        let (mut death, crash) = death(log.unwrap_or(&empty), crashed);
        notes.of_log(log, &mut death);
        let log = log.unwrap_or(&empty);
        let cpus = cpus(machine, &unwinder).unwrap_or_else(|why| {
            let found = of_notes(machine, &unwinder, &death);
            notes.add(Part::Cpus, found.is_empty(), &why);
            notes.of_notes(&found);
            found
        });
        notes.lost(Part::Cpus);
        let tasks = tasks(machine).unwrap_or_else(|why| {
            notes.add(Part::Tasks, true, &why);
            Tasks::default()
        });
        for why in &tasks.broken {
            notes.add(Part::Tasks, tasks.all.is_empty(), why);
        }
        if notes::has_erased(machine.notes(), notes::TASK_NAMES) {
            notes
                .missing
                .push("tasks: the names of user tasks are erased: programs cannot be told apart".into());
        }
        notes.lost(Part::Tasks);
        ahead::of_tasks(machine, &tasks);
        // Blocked tasks, and those that wait for a lock killably, which also are D.
        let (mut blocked, mut unread) = (Vec::new(), Vec::new());
        for task in tasks.all.iter().filter(|task| task.state == 'D').take(MAX_BLOCKED) {
            match task_stack(machine, &unwinder, task) {
                Ok(stack) => {
                    if stack.is_cut() {
                        unread.push(format!("{}: {}", task.label(), stack.end));
                    }
                    blocked.push((task, stack));
                }
                Err(why) => unread.push(format!("{}: {why}", task.label())),
            }
        }
        let count = counted(unread.len() as u64, "blocked task");
        if let Some(first) = unread.first() {
            notes.add(Part::Stacks, false, &format!("{count} cannot be unwound, the first {first}"));
        }
        notes.lost(Part::Stacks);
        let workers = workers(machine, &tasks);
        let mut locks = locks(machine, &unwinder, &tasks, &blocked, &workers);
        // A holder that sleeps, mostly for something else than a lock, is the next question.
        for held in locks.held.iter_mut().take(MAX_HOLDERS) {
            let task = held.owner.as_ref().and_then(|(_, pid)| tasks.by_pid(*pid));
            held.owner_stack = task.and_then(|task| stack_of(machine, &unwinder, &cpus, task).ok()?);
        }
        if !unread.is_empty() {
            notes.add(
                Part::Locks,
                false,
                &format!(
                    "whether {count} wait for a lock is not known, since their stacks could not be read"
                ),
            );
        }
        notes.lost(Part::Locks);
        if !tasks.all.is_empty() && !tasks.broken.is_empty() {
            notes.add(Part::Locks, false, &"tasks that could not be read may wait for locks, too");
        }
        let unwound = machine.unwinds_whole() && notes.gaps.is_whole(Part::Stacks);
        if !unwound && notes.gaps.is_whole(Part::Locks) {
            notes.add(Part::Locks, false, &"tasks whose stacks could not be read may wait for locks, too");
        }
        // What these wait for is not known, so nothing can be denied.
        if !notes.gaps.is_whole(Part::Locks) || !machine.symbols_whole() {
            locks.kinds.clear();
        }
        for why in &locks.missing {
            notes.add(Part::Locks, tasks.all.is_empty(), why);
        }
        notes.lost(Part::Stacks);
        let blamed = match (death.kind, &death.task) {
            (Some(Kind::HungTask), Some((_, pid))) => blocked.iter().find(|(task, _)| task.pid == *pid),
            _ => None,
        };
        let died = died(&death, &cpus);
        // The watchdog's own stack says nothing of the task that it found.
        let stack = match death.kind {
            Some(Kind::HungTask) => blamed.map(|(_, stack)| stack),
            _ => died.and_then(|cpu| cpu.stack.as_ref()),
        };
        let cause = stack.map_or(&[][..], |stack| cause(&death, stack)).to_vec();
        let blocked = group(blocked);
        let memory = memory(machine, &tasks);
        for why in &memory.missing {
            notes.add(Part::Memory, memory.zones.is_empty() && memory.counters.is_empty(), why);
        }
        if !tasks.broken.is_empty() {
            notes.add(Part::Memory, false, &"processes that could not be read may be among the largest");
        }
        notes.lost(Part::Memory);
        let (slab, broken) = caches(machine).unwrap_or_else(|why| (Vec::new(), Some(why.to_string())));
        broken.into_iter().for_each(|why| notes.add(Part::Slab, slab.is_empty(), &why));
        notes.lost(Part::Slab);
        let vmalloc = match vmalloc(machine) {
            Ok(areas) => {
                areas.broken.iter().for_each(|why| notes.add(Part::Vmalloc, areas.areas == 0, why));
                Some(areas)
            }
            Err(why) => {
                notes.add(Part::Vmalloc, true, &why);
                None
            }
        };
        notes.lost(Part::Vmalloc);
        let requests = block::requests(machine).unwrap_or_else(|why| {
            notes.add(Part::Requests, true, &why);
            Vec::new()
        });
        notes.lost(Part::Requests);
        let suspended = block::suspended(machine).unwrap_or_else(|why| {
            // Without disks, block requests have the same reason.
            if !matches!(why, Fault::NoSymbol(_)) {
                notes.add(Part::Suspended, true, &why);
            }
            Vec::new()
        });
        notes.lost(Part::Suspended);
        let net = net(machine).unwrap_or_else(|why| {
            notes.add(Part::Network, true, &why);
            Net::default()
        });
        if let Some(why) = &net.broken {
            notes.add(Part::Network, net.devices.is_empty(), why);
        }
        notes.lost(Part::Network);
        let Notes { missing, mut gaps, .. } = notes;
        // The machine has said why: each part looks for symbols.
        if !machine.symbols_whole() {
            Part::ALL.into_iter().filter(|part| *part != Part::Log).for_each(|part| gaps.add(part, false));
        }
        // The machine has said why.
        if !machine.modules_whole() {
            gaps.add(Part::Modules, !machine.modules_known());
        }
        if !machine.unwinds() {
            gaps.add(Part::Stacks, false);
        }
        let log = Self::last_lines(log, LAST_LINES);
        Self {
            states: tasks.by_state(),
            modules: machine.modules().to_vec(),
            modules_known: machine.modules_known(),
            running: machine.runs(),
            log,
            system,
            death,
            cause,
            signature: crash.map(|crash| crash.signature),
            crash: None,
            symbols_known: true,
            verdict: Vec::new(),
            cpus,
            blocked,
            workers,
            locks,
            memory,
            slab,
            vmalloc,
            requests,
            suspended,
            net,
            missing,
            gaps,
            tasks,
        }
    }

    /// Reads what there is without symbols; the verdict is empty.
    fn without_symbols(log: Result<&KernelLog, &KernelError>, mut notes: Notes<'_>) -> Self {
        let without_symbols::Read { system, death, crash, cpus } =
            without_symbols::read(notes.machine, log, &mut notes);
        Self {
            system,
            death,
            cause: Vec::new(),
            signature: crash.as_ref().map(|crash| crash.signature.clone()),
            crash,
            verdict: Vec::new(),
            cpus,
            states: Vec::new(),
            blocked: Vec::new(),
            workers: Vec::new(),
            locks: Locks::default(),
            memory: Memory::default(),
            slab: Vec::new(),
            vmalloc: None,
            requests: Vec::new(),
            suspended: Vec::new(),
            net: Net::default(),
            modules: Vec::new(),
            modules_known: false,
            symbols_known: false,
            running: notes.machine.runs(),
            log: log.map_or_else(|_| Vec::new(), |log| Self::last_lines(log, LAST_LINES)),
            missing: notes.missing,
            gaps: notes.gaps,
            tasks: Tasks::default(),
        }
    }

    /// Returns the last `most` lines of a log, as reports have them.
    pub fn last_lines(log: &KernelLog, most: usize) -> Vec<LastLine> {
        let words = last_words(log, most).into_iter();
        words.map(|(line, important)| LastLine { line, important }).collect()
    }

    /// Unwinds all tasks: those on a CPU from its registers.
    pub fn stacks(&self, machine: &Machine<'_>) -> Vec<TaskStack> {
        let unwinder = machine.unwinder();
        self.tasks.all.iter().map(|task| self.stack_with(machine, &unwinder, task)).collect()
    }

    /// Unwinds one task.
    pub fn stack(&self, machine: &Machine<'_>, task: &Task) -> TaskStack {
        self.stack_with(machine, &machine.unwinder(), task)
    }

    fn stack_with(&self, machine: &Machine<'_>, unwinder: &Unwinder<'_>, task: &Task) -> TaskStack {
        let (stack, missing) = match stack_of(machine, unwinder, &self.cpus, task) {
            Ok(stack) => (stack, None),
            Err(why) => (None, Some(why.to_string())),
        };
        TaskStack { pid: task.pid, stack, missing }
    }
}

/// What a report lacks, as it is read.
pub(super) struct Notes<'a> {
    pub(super) machine: &'a Machine<'a>,
    pub(super) missing: Vec<String>,
    pub(super) gaps: Gaps,
}

impl Notes<'_> {
    /// Adds what the log lacks.
    pub(super) fn of_log(&mut self, log: Result<&KernelLog, &KernelError>, death: &mut Death) {
        match log {
            Err(why) => {
                let is_erased = matches!(why, KernelError::ErasedLog);
                let unknown = if is_erased { "the log is erased" } else { "the log cannot be read" };
                death.unknown = Some(unknown.into());
                self.add(Part::Log, true, why);
            }
            Ok(log) if log.damaged > 0 => {
                let lost = format!("{} unreadable or inconsistent", counted_are(log.damaged));
                self.add(Part::Log, log.records.is_empty(), &lost);
            }
            Ok(_) => {}
        }
    }

    /// Adds what CPUs lack that are known by the notes alone.
    pub(super) fn of_notes(&mut self, found: &[Cpu]) {
        self.missing.push(match found {
            [] => "CPUs: the notes have no registers".into(),
            _ => "CPUs: known are those with registers in the notes, numbered in their order".into(),
        });
    }

    /// Adds why something of a part is missing.
    fn add(&mut self, part: Part, nothing: bool, why: &dyn ToString) {
        self.missing.push(format!("{}: {}", part.name(), why.to_string()));
        self.gaps.add(part, nothing);
    }

    /// Adds what the source lost of the part that was read last, unless its reader said so.
    fn lost(&mut self, part: Part) {
        let lost = self.machine.take_lost().describe();
        if let Some(why) = lost.filter(|_| self.gaps.is_whole(part)) {
            self.add(part, false, &why);
        }
    }
}

fn counted_are(records: u64) -> String {
    format!("{} {}", counted(records, "record"), if records == 1 { "is" } else { "are" })
}

/// None of a task in user mode.
fn stack_of(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    cpus: &[Cpu],
    task: &Task,
) -> Result<Option<StackTrace>, Fault> {
    let running = cpus.iter().find(|cpu| cpu.task_address() == Some(task.address));
    match running {
        Some(cpu) if cpu.saved_registers => Ok(cpu.stack.clone()),
        _ => task_stack(machine, unwinder, task).map(Some),
    }
}
