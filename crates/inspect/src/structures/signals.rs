//! Signals that wait to be delivered.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::tasks::{Task, Tasks};
use crate::hex::Hex;
use crate::machine::Machine;

/// Names of signals 1 to 31 (include/uapi/asm-generic/signal.h, as on x86).
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];
/// Reasons that are kept.
const MAX_BROKEN: usize = 16;

/// The signals that wait for a task.
#[derive(Debug, Clone, Serialize)]
pub struct PendingSignals {
    /// Thread ID.
    pub pid: u32,
    /// The task, as `comm/pid`.
    pub task: String,
    /// State as `ps` shows it.
    pub state: char,
    /// Address of its `struct task_struct`.
    pub address: Hex,
    /// Those sent to this thread: names without `SIG`, numbers of real-time signals.
    pub thread: Vec<String>,
    /// Those sent to its process, which any thread can take; at the first thread only.
    pub process: Vec<String>,
    /// Of these, those that this thread blocks.
    pub blocked: Vec<String>,
}

/// Signals of all tasks.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Signals {
    /// Tasks for which signals wait, in the order of tasks.
    pub all: Vec<PendingSignals>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the signals that wait for each task.
pub fn signals(machine: &Machine<'_>, tasks: &Tasks) -> Signals {
    // A task that is not in the list may have signals, too.
    let mut found = Signals { all: Vec::new(), broken: tasks.broken.clone() };
    if tasks.all.is_empty() {
        found.broken.push("signals: no task could be read".to_owned());
    }
    for task in &tasks.all {
        match pending(machine, task) {
            Ok(None) => {}
            Ok(Some(signals)) => found.all.push(signals),
            Err(why) if found.broken.len() < MAX_BROKEN => {
                found.broken.push(format!("signals of {}: {why}", task.label()));
            }
            Err(_) => {}
        }
    }
    found
}

fn pending(machine: &Machine<'_>, task: &Task) -> Result<Option<PendingSignals>, Fault> {
    let object = machine.space().object(task.address.0, "task_struct")?;
    let thread = set(&object, "pending.signal")?;
    // None of a task that has ended.
    let has_process = task.pid == task.tgid && object.get("signal")?.pointer()? != 0;
    let process = if has_process { set(&object, "signal->shared_pending.signal")? } else { 0 };
    if thread | process == 0 {
        return Ok(None);
    }
    Ok(Some(PendingSignals {
        pid: task.pid,
        task: task.label(),
        state: task.state,
        address: task.address,
        thread: names(thread),
        process: names(process),
        blocked: names((thread | process) & set(&object, "blocked")?),
    }))
}

/// A `sigset_t`, which has 64 bits in one word.
fn set(object: &Object<'_>, path: &str) -> Result<u64, Fault> {
    object.get(path)?.get("sig")?.index(0)?.unsigned()
}

fn names(set: u64) -> Vec<String> {
    let numbers = (0..64).filter(|number| set >> number & 1 == 1);
    numbers
        .map(|number| NAMES.get(number).map_or_else(|| (number + 1).to_string(), |name| (*name).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_their_names() {
        assert_eq!(names(0), Vec::<String>::new());
        assert_eq!(names(1 << 8 | 1 << 14 | 1 << 33), ["KILL", "TERM", "34"]);
        assert_eq!(names(1 | 1 << 63 | 1 << 30), ["HUP", "SYS", "64"]);
    }
}
