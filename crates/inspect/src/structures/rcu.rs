//! RCU: the grace period that runs, and which CPUs and tasks it waits for.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::clock::Ticks;
use super::ram::ram_bytes;
use super::tasks::{Task, Tasks};
use crate::hex::Hex;
use crate::machine::Machine;

/// Nodes of the tree, and tasks of one, that are read.
const MAX_NODES: u64 = 1 << 12;
const MAX_TASKS: usize = 1 << 12;
/// Reasons that are kept.
const MAX_BROKEN: usize = 16;
/// Bytes of `struct callback_head`.
const SMALLEST_CALLBACK: u64 = 16;
/// The low bits of a sequence number are the state (`RCU_SEQ_STATE_MASK`, kernel/rcu/rcu.h).
const STATE: u64 = 3;

/// Callbacks of a CPU.
#[derive(Debug, Clone, Serialize)]
pub struct RcuCallbacks {
    /// CPU.
    pub cpu: u64,
    /// Functions that wait to be called.
    pub callbacks: u64,
}

/// What RCU does.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rcu {
    /// `rcu_preempt` or `rcu_sched`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of its `struct rcu_state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Hex>,
    /// Sequence number of the grace period that runs, or of the last one, as messages of stalls have it behind `g`. None if it could
    /// not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// Whether a grace period runs; none if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<bool>,
    /// Seconds since it began, if one runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs_for: Option<f64>,
    /// CPUs that have not passed through a quiescent state since.
    pub cpus: Vec<u64>,
    /// Tasks that were preempted in a section that it waits for.
    pub tasks: Vec<String>,
    /// The task that drives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// CPUs that have callbacks.
    pub callbacks: Vec<RcuCallbacks>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads the state of RCU.
pub fn rcu(machine: &Machine<'_>, tasks: &Tasks) -> Rcu {
    // Preempted tasks that are not in the list have no names.
    let mut found = Rcu { broken: tasks.broken.clone(), ..Rcu::default() };
    if let Err(why) = read(machine, tasks, &mut found) {
        found.broken.push(format!("RCU: {why}"));
    }
    found
}

fn read(machine: &Machine<'_>, tasks: &Tasks, found: &mut Rcu) -> Result<(), Fault> {
    let state = machine.variable("rcu_state", "rcu_state")?;
    found.name = state.get("name")?.text().ok();
    found.address = Some(Hex(state.address()));
    let sequence = state.number("gp_seq")?;
    found.sequence = Some(sequence as i64);
    found.runs = Some(sequence & STATE != 0);
    let thread = state.get("gp_kthread")?.pointer()?;
    found.thread = tasks.at(thread).map(Task::label);
    let most = ram_bytes(machine) / SMALLEST_CALLBACK;
    for cpu in machine.cpu_mask("__cpu_possible_mask")? {
        match callbacks(machine, cpu) {
            Ok(0) => {}
            Ok(callbacks) if callbacks > most => found.broken.push(format!(
                "callbacks of CPU {cpu}: {callbacks} are more than fit into the memory of the machine: it is damaged"
            )),
            Ok(callbacks) => found.callbacks.push(RcuCallbacks { cpu, callbacks }),
            Err(why) => found.broken.push(format!("callbacks of CPU {cpu}: {why}")),
        }
    }
    found.broken.truncate(MAX_BROKEN);
    if sequence & STATE == 0 {
        return Ok(());
    }
    found.runs_for = Some(Ticks::new(machine)?.seconds_since(state.number("gp_start")?));
    let first = state.get("node")?;
    let count = u64::from(machine.u32("rcu_num_nodes")?).min(first.len()).min(MAX_NODES);
    let leaf = u64::from(machine.u32("rcu_num_lvls")?).saturating_sub(1);
    for number in 0..count {
        let node = first.index(number)?;
        if node.number("level")? == leaf {
            leaf_waits(&node, tasks, found)?;
        }
    }
    Ok(())
}

/// Functions that wait on a CPU.
fn callbacks(machine: &Machine<'_>, cpu: u64) -> Result<u64, Fault> {
    let data = machine.space().object(machine.per_cpu("rcu_data", cpu)?, "rcu_data")?;
    data.get("cblist.len")?.unsigned()
}

/// What a leaf of the tree waits for.
fn leaf_waits(node: &Object<'_>, tasks: &Tasks, found: &mut Rcu) -> Result<(), Fault> {
    let (low, mask) = (node.number("grplo")?, node.number("qsmask")?);
    found.cpus.extend((0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| low + bit));
    // Tasks from gp_tasks on to the end of the list block this grace period.
    let first = node.get("gp_tasks")?.pointer()?;
    if first == 0 {
        return Ok(());
    }
    let blocked = node.get("blkd_tasks")?.list("task_struct", "rcu_node_entry")?;
    found.broken.extend(blocked.broken);
    let entry = node.space().offset_of("task_struct", "rcu_node_entry")?;
    let waits = blocked.items.iter().skip_while(|task| task.address().wrapping_add(entry) != first);
    let label = |task: &Object<'_>| {
        let known = tasks.at(task.address()).map(Task::label);
        known.unwrap_or_else(|| format!("the task at {:#x}", task.address()))
    };
    found.tasks.extend(waits.take(MAX_TASKS).map(label));
    Ok(())
}
