//! Tasks.

use std::collections::HashMap;

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::announce;
use super::clock::scheduler_clock;
use crate::hex::Hex;
use crate::machine::Machine;

/// `PF_KTHREAD` (include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;
/// `TASK_UNINTERRUPTIBLE | TASK_NOLOAD` (80ed87c8a9ca, 4.2): idle, not blocked.
const IDLE: u64 = 0x402;
/// `TASK_RTLOCK_WAIT` (5f220be21418, 5.15): waits for a spinlock or rwlock of PREEMPT_RT, in the same state as for a mutex. The
/// same bit was `TASK_STATE_MAX` before.
const WAITS_FOR_RTLOCK: u64 = 0x1000;
/// The states that are reported (`TASK_REPORT`).
const REPORTED: u64 = 0x7f;
/// Letters of states, by the highest bit of the state.
const LETTERS: [char; 9] = ['R', 'S', 'D', 'T', 't', 'X', 'Z', 'P', 'I'];

/// A task.
#[derive(Debug, Clone, Serialize)]
pub struct Task {
    /// Address of its `struct task_struct`.
    pub address: Hex,
    /// Thread ID.
    pub pid: u32,
    /// Process ID.
    pub tgid: u32,
    /// Process ID of the parent.
    pub ppid: u32,
    /// Name.
    pub comm: String,
    /// State as `ps` shows it.
    pub state: char,
    /// Whether it runs in the kernel only.
    pub kernel_thread: bool,
    /// CPU it is on, or was on last.
    pub cpu: u64,
    /// Seconds since it last got a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds_since_run: Option<f64>,
    /// Address of its `struct mm_struct`; 0 for kernel threads.
    pub mm: Hex,
    /// Flags (`PF_*`).
    pub flags: Hex,
    /// Whether it has a `reclaim_state`: it is in direct reclaim, or kswapd that balances a node.
    #[serde(skip)]
    pub reclaims: bool,
}

impl Task {
    /// Returns `comm/pid`.
    pub fn label(&self) -> String {
        format!("{}/{}", self.comm, self.pid)
    }
}

/// All tasks but the idle ones.
#[derive(Debug, Default)]
pub struct Tasks {
    /// In the order of the kernel's list, threads after their process.
    pub all: Vec<Task>,
    /// Why some may be missing.
    pub broken: Vec<String>,
    by_address: HashMap<u64, usize>,
}

impl Tasks {
    /// Finds a task by the address of its `struct task_struct`.
    pub fn at(&self, address: u64) -> Option<&Task> {
        self.by_address.get(&address).and_then(|at| self.all.get(*at))
    }

    /// Finds a task by its thread ID.
    pub fn by_pid(&self, pid: u32) -> Option<&Task> {
        self.all.iter().find(|task| task.pid == pid)
    }

    /// Counts tasks by state.
    pub(crate) fn by_state(&self) -> Vec<(char, usize)> {
        let mut counts: Vec<(char, usize)> = Vec::new();
        for letter in LETTERS {
            let count = self.all.iter().filter(|task| task.state == letter).count();
            if count > 0 {
                counts.push((letter, count));
            }
        }
        counts
    }
}

/// Reads all tasks: processes from the list of `init_task`, threads from their process.
pub fn tasks(machine: &Machine<'_>) -> Result<Tasks, Fault> {
    announce::tasks(machine);
    let reader = Reader::new(machine)?;
    let walk = machine.variable("init_task", "task_struct")?.get("tasks")?.list("task_struct", "tasks")?;
    let mut tasks = Tasks::default();
    tasks.broken.extend(walk.broken);
    for leader in walk.items {
        // 0c740d0afc3b (3.14): signal->thread_head; thread_group is gone since 6.7.
        let threads =
            leader.get("signal->thread_head").and_then(|head| head.list("task_struct", "thread_node"));
        let mut members = match threads {
            Ok(threads) => {
                tasks.broken.extend(threads.broken);
                threads.items
            }
            Err(_) => Vec::new(),
        };
        if !members.iter().any(|thread| thread.address() == leader.address()) {
            members.insert(0, leader);
        }
        for object in members {
            match reader.task(&object) {
                Ok(task) => {
                    if tasks.by_address.insert(object.address(), tasks.all.len()).is_none() {
                        tasks.all.push(task);
                    }
                }
                Err(why) => tasks.broken.push(format!("the task at {:#x}: {why}", object.address())),
            }
        }
    }
    tasks.broken.truncate(16);
    Ok(tasks)
}

/// Reads the task at an address, which may be an idle task.
pub(crate) fn task_at(machine: &Machine<'_>, address: u64) -> Result<Task, Fault> {
    Reader::new(machine)?.task(&machine.space().object(address, "task_struct")?)
}

struct Reader {
    clock: Option<u64>,
}

impl Reader {
    fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        machine.space().record("task_struct")?;
        Ok(Self { clock: scheduler_clock(machine).ok().filter(|clock| *clock > 0) })
    }

    fn task(&self, object: &Object<'_>) -> Result<Task, Fault> {
        // 2f064a59a11f (5.14) renamed state.
        let state = object.any(&["__state", "state"])?.unsigned()?;
        let exit_state = object.number("exit_state").unwrap_or(0);
        let flags = object.number("flags")?;
        let arrival = object.number("sched_info.last_arrival").ok().filter(|arrival| *arrival > 0);
        let waited =
            self.clock.zip(arrival).map(|(clock, arrival)| clock.saturating_sub(arrival) as f64 / 1e9);
        // CONFIG_THREAD_INFO_IN_TASK: bcf9033e5449 (5.16) moved cpu there.
        let cpu = object.any(&["thread_info.cpu", "cpu"]).and_then(|cpu| cpu.unsigned()).unwrap_or(0);
        Ok(Task {
            address: Hex(object.address()),
            pid: object.number("pid")? as u32,
            tgid: object.number("tgid")? as u32,
            ppid: object.number("real_parent->tgid").unwrap_or(0) as u32,
            comm: one_line(object.get("comm")?.text()?),
            state: letter(state, exit_state),
            kernel_thread: flags & KERNEL_THREAD != 0,
            cpu,
            seconds_since_run: waited,
            mm: Hex(object.get("mm")?.pointer()?),
            flags: Hex(flags),
            reclaims: object.get("reclaim_state").and_then(|state| state.pointer()).is_ok_and(|at| at != 0),
        })
    }
}

/// A name on one line, as `/proc/PID/status` has it: a task can call itself anything.
fn one_line(name: String) -> String {
    if name.contains(['\n', '\r']) { name.replace('\n', "\\n").replace('\r', "\\r") } else { name }
}

/// As `task_state_to_char` (include/linux/sched.h).
fn letter(state: u64, exit_state: u64) -> char {
    if state & 0xffff == IDLE {
        return 'I';
    }
    if state & WAITS_FOR_RTLOCK != 0 {
        return 'D';
    }
    let reported = (state | exit_state) & REPORTED;
    let index = (u64::BITS - reported.leading_zeros()) as usize;
    LETTERS.get(index).copied().unwrap_or('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_on_its_line() {
        assert_eq!(one_line("a\nVerdict\r".into()), "a\\nVerdict\\r");
        assert_eq!(one_line("kworker/0:1".into()), "kworker/0:1");
    }

    #[test]
    fn states_have_letters() {
        let states = [
            (0, 0),
            (1, 0),
            (2, 0),
            (0x102, 0),
            (0x402, 0),
            (4, 0),
            (8, 0),
            (0, 0x20),
            (0, 0x10),
            (0x40, 0),
            (0x1000, 0),
        ];
        let letters: String = states.into_iter().map(|(state, exit)| letter(state, exit)).collect();
        assert_eq!(letters, "RSDDITtZXPD");
    }
}
