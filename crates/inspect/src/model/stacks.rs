//! Stacks with names.

use std::collections::HashMap;

use pagehaul_btf::Fault;
use serde::Serialize;

use crate::hex::Hex;
use crate::machine::Machine;
use crate::structures::stack::sleeping_stack;
use crate::structures::tasks::Task;
use crate::unwind::{End, Registers, Stack, Unwinder};

/// The kernel's addresses are above all of user mode's.
const USER_END: u64 = 1 << 63;

/// A frame with its name.
#[derive(Debug, Clone, Serialize)]
pub struct FrameName {
    /// Instruction pointer, or return address.
    pub pc: Hex,
    /// Stack pointer.
    pub sp: Hex,
    /// Function, without offset.
    pub function: String,
    /// As the kernel prints it: `function+0x1a/0x40 [module]`.
    pub name: String,
    /// Module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Whether the frame was searched on the stack, without unwind data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub guess: bool,
    /// Whether an interrupt, exception or NMI came in here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// A stack with names, the innermost frame first.
#[derive(Debug, Clone, Serialize)]
pub struct StackTrace {
    /// The frames.
    pub frames: Vec<FrameName>,
    /// Why the stack ends here.
    pub end: &'static str,
    /// Whether it was unwound to its end.
    pub complete: bool,
}

impl StackTrace {
    /// Names the frames of a stack.
    pub fn new(machine: &Machine<'_>, stack: &Stack) -> Self {
        let frames = stack.frames.iter().enumerate().map(|(at, frame)| {
            let symbols = machine.symbols();
            let name = if frame.exact { symbols.name(frame.pc) } else { symbols.caller(frame.pc) };
            // Up to 6.14, per-CPU variables of x86_64 have addresses from 0 on: a NULL pointer is none of them.
            let name = name.filter(|_| frame.pc >= USER_END);
            FrameName {
                pc: Hex(frame.pc),
                sp: Hex(frame.sp),
                function: name.as_ref().map_or_else(|| format!("{:#x}", frame.pc), |name| name.readable()),
                name: name.as_ref().map_or_else(|| format!("{:#x}", frame.pc), ToString::to_string),
                module: name.and_then(|name| name.module),
                guess: frame.guess,
                interrupted: at > 0 && frame.pt_regs.is_some(),
            }
        });
        Self { frames: frames.collect(), end: stack.end.describe(), complete: stack.end.is_complete() }
    }

    /// Returns the stack of which only the innermost frame is known, without its name.
    pub(crate) fn of_one(registers: &Registers) -> Self {
        let name = format!("{:#x}", registers.ip);
        let frame = FrameName {
            pc: Hex(registers.ip),
            sp: Hex(registers.sp),
            function: name.clone(),
            name,
            module: None,
            guess: false,
            interrupted: false,
        };
        Self { frames: vec![frame], end: End::Undefined.describe(), complete: false }
    }

    /// Returns whether it could not be read to its end.
    pub(crate) fn is_cut(&self) -> bool {
        self.end == End::Unreadable.describe()
    }

    /// Returns the functions, the innermost first.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.frames.iter().map(|frame| frame.function.as_str())
    }

    /// Returns the first `most` functions as one line, those that schedule left out: `f < g < h`.
    pub fn innermost(&self, most: usize) -> String {
        // Four functions of the real-time mutex are between the scheduler and what takes a mutex of PREEMPT_RT.
        const SCHEDULE: [&str; 6] =
            ["schedule", "io_schedule", "rt_mutex_s", "__rt_mutex_s", "rtlock_s", "__rtlock_s"];
        let schedules =
            |name: &str| name == "__schedule" || SCHEDULE.iter().any(|start| name.starts_with(start));
        let from = self.frames.iter().position(|frame| !schedules(&frame.function)).unwrap_or(0);
        chain(self.frames.get(from..).unwrap_or_default(), most)
    }

    /// Returns whether it waits in a call of a function on other CPUs.
    pub fn waits_for_ipi(&self) -> bool {
        ["smp_call_function", "csd_lock_wait", "__csd_lock_wait"].iter().any(|start| self.passes(start))
    }

    /// Returns whether a frame is in a function whose name starts so.
    pub fn passes(&self, prefix: &str) -> bool {
        self.functions().any(|function| function.starts_with(prefix))
    }
}

/// Returns the functions of the first frames as one line. A function that calls itself takes one place: `f (12 times) < g`.
pub fn chain(frames: &[FrameName], most: usize) -> String {
    let calls = frames.chunk_by(|a, b| a.function == b.function).take(most).filter_map(|calls| {
        let name = &calls.first()?.function;
        Some(if calls.len() > 1 { format!("{name} ({} times)", calls.len()) } else { name.clone() })
    });
    calls.collect::<Vec<_>>().join(" < ")
}

/// Unwinds a task that does not run.
pub fn task_stack(machine: &Machine<'_>, unwinder: &Unwinder<'_>, task: &Task) -> Result<StackTrace, Fault> {
    sleeping_stack(machine, unwinder, task.address.0).map(|stack| StackTrace::new(machine, &stack))
}

/// Tasks that have the same stack.
#[derive(Debug, Clone, Serialize)]
pub struct StackGroup {
    /// Thread IDs, the longest waiting first.
    pub pids: Vec<u32>,
    /// The name and ID of the first.
    pub first: String,
    /// Seconds that the longest waiting one has not run.
    pub longest_seconds: f64,
    /// The stack.
    pub stack: StackTrace,
}

/// Groups tasks by their stacks' return addresses, the largest group first.
pub fn group(stacks: Vec<(&Task, StackTrace)>) -> Vec<StackGroup> {
    let mut groups: HashMap<Vec<u64>, (Vec<&Task>, StackTrace)> = HashMap::new();
    for (task, stack) in stacks {
        let key = stack.frames.iter().map(|frame| frame.pc.0).collect();
        groups.entry(key).or_insert_with(|| (Vec::new(), stack)).0.push(task);
    }
    let mut groups: Vec<StackGroup> = groups
        .into_values()
        .map(|(mut tasks, stack)| {
            let waited = |task: &Task| task.seconds_since_run.unwrap_or(0.0);
            tasks.sort_by(|a, b| waited(b).total_cmp(&waited(a)).then(a.pid.cmp(&b.pid)));
            StackGroup {
                pids: tasks.iter().map(|task| task.pid).collect(),
                first: tasks.first().map_or_else(String::new, |task| task.label()),
                longest_seconds: tasks.first().map_or(0.0, |task| waited(task)),
                stack,
            }
        })
        .collect();
    groups.sort_by(|a, b| b.pids.len().cmp(&a.pids.len()).then(a.pids.cmp(&b.pids)));
    groups
}

#[cfg(test)]
impl FrameName {
    /// A frame of a test.
    pub(crate) fn of(pc: u64, function: &str) -> Self {
        let (function, name) = (function.to_owned(), function.to_owned());
        Self { pc: Hex(pc), sp: Hex(0), function, name, module: None, guess: false, interrupted: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_function_by_itself_take_one_place() {
        let names = ["__schedule", "schedule_timeout", "walk", "walk", "walk", "open", "walk"];
        let stack = StackTrace {
            frames: names.map(|function| FrameName::of(0, function)).to_vec(),
            end: "end",
            complete: true,
        };
        assert_eq!(stack.innermost(3), "walk (3 times) < open < walk");
        assert_eq!(stack.innermost(2), "walk (3 times) < open");
        assert_eq!(chain(&stack.frames[..2], 8), "__schedule < schedule_timeout");
        assert_eq!(chain(&[], 8), "");
    }
}
