//! Who waits for whom: mutexes, rw_semaphores and semaphores.
//!
//! No debug symbols are needed to find a lock, because the waiter (`struct mutex_waiter` and its like) lies on the stack of
//! the task that waits, and links it into the lock's ring of waiters. PREEMPT_RT has other locks: [`realtime`].

use std::collections::{HashMap, HashSet};

use pagehaul_btf::Fault;

use super::stacks::StackTrace;
use super::waits::{Held, Locks, Wait};
use super::workers::Worker;
use crate::hex::Hex;
use crate::machine::Machine;
use crate::structures::stack::stack_words;
use crate::structures::tasks::{Task, Tasks};
use crate::unwind::Unwinder;

mod names;
mod realtime;

use names::Names;

/// Waiters of one lock.
const MAX_WAITERS: usize = 10_000;
/// Owners in a row.
const LONGEST_CHAIN: usize = 64;
/// Flags in the low bits of an owner.
const OWNER_FLAGS: u64 = 7;
/// The low bits of `task.blocker` hold the kind of lock.
const BLOCKER_KIND: u64 = 3;

struct Lock {
    record: &'static str,
    waiter: &'static str,
    /// Functions whose frame on the stack tells that the task waits for such a lock.
    functions: &'static [&'static str],
}

const LOCKS: [Lock; 3] = [
    Lock {
        record: "mutex",
        waiter: "mutex_waiter",
        functions: &["__mutex_lock", "__ww_mutex_lock", "mutex_lock"],
    },
    Lock {
        record: "rw_semaphore",
        waiter: "rwsem_waiter",
        functions: &["rwsem_down_read_slowpath", "rwsem_down_write_slowpath"],
    },
    Lock {
        record: "semaphore",
        waiter: "semaphore_waiter",
        functions: &["__down", "___down_common", "__down_common"],
    },
];

/// Finds the locks that tasks with these stacks wait for.
pub fn locks(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    tasks: &Tasks,
    stacks: &[(&Task, StackTrace)],
    workers: &[Worker],
) -> Locks {
    let mut result = Locks { held: workers.iter().filter_map(Worker::held).collect(), ..Locks::default() };
    if tasks.all.is_empty() {
        result.missing.push("no task could be read".into());
        return result;
    }
    let names = Names::new(machine, tasks);
    realtime::locks(machine, unwinder, tasks, &names, stacks, &mut result);
    let realtime = realtime::is_realtime(machine);
    for lock in LOCKS.iter().filter(|lock| !realtime || lock.record == "semaphore") {
        match machine.space().offset_of(lock.waiter, "task") {
            Ok(_) => result.kinds.push(lock.record),
            Err(why) => result.missing.push(format!("who waits for a {}: {why}", lock.record)),
        }
    }
    // By lock, or by the first waiter where the lock is unknown.
    let mut known: HashSet<u64> = HashSet::new();
    for (task, stack) in stacks {
        // The lock is among the innermost frames: schedule and its callers come first.
        let inner = stack.frames.get(..stack.frames.len().min(8)).unwrap_or_default();
        let Some(lock) = LOCKS.iter().filter(|lock| !realtime || lock.record == "semaphore").find(|lock| {
            inner.iter().any(|frame| match lock.record {
                "semaphore" => lock.functions.contains(&frame.function.as_str()),
                _ => lock.functions.iter().any(|function| frame.function.starts_with(function)),
            })
        }) else {
            continue;
        };
        match find(machine, tasks, task, lock) {
            Ok(Some(ring)) => {
                let key = ring.lock.unwrap_or_else(|| ring.waiters.iter().copied().min().unwrap_or(0));
                if known.insert(key) {
                    result.held.push(describe(machine, tasks, &names, lock, &ring));
                }
            }
            _ => result.unknown.push(task.pid),
        }
    }
    result.unknown.sort_unstable();
    result.unknown.dedup();
    result.held.sort_by(|a, b| b.longest().total_cmp(&a.longest()));
    result.cycles = cycles(&result.held);
    result
}

/// The waiters of a lock.
struct Ring {
    lock: Option<u64>,
    /// Addresses of tasks, in order.
    waiters: Vec<u64>,
}

fn find(machine: &Machine<'_>, tasks: &Tasks, task: &Task, lock: &Lock) -> Result<Option<Ring>, Fault> {
    let space = machine.space();
    let of_task = space.offset_of(lock.waiter, "task")?;
    let of_list = space.offset_of(lock.waiter, "list")?;
    let (start, words) = stack_words(machine, task.address.0)?;
    let memory = machine.memory();
    for (at, word) in words.iter().enumerate() {
        if *word != task.address.0 {
            continue;
        }
        let waiter = start.wrapping_add(8 * at as u64).wrapping_sub(of_task);
        let node = waiter.wrapping_add(of_list);
        let links_back = memory.u64(node).and_then(|next| memory.u64(next.wrapping_add(8)));
        if !links_back.is_ok_and(|previous| previous == node) {
            continue;
        }
        if let Some(ring) = ring(machine, tasks, task, lock, node, &words)? {
            return Ok(Some(ring));
        }
    }
    Ok(None)
}

/// Walks the ring of waiters that `node` is in. One node of the ring is the lock's own, not a waiter's; since 25500ba7e77c and
/// b9bdd4b68404 (7.1) there is none.
fn ring(
    machine: &Machine<'_>,
    tasks: &Tasks,
    task: &Task,
    lock: &Lock,
    node: u64,
    words: &[u64],
) -> Result<Option<Ring>, Fault> {
    let space = machine.space();
    let memory = machine.memory();
    let of_task = space.offset_of(lock.waiter, "task")?;
    let of_list = space.offset_of(lock.waiter, "list")?;
    let of_head = space.offset_of(lock.record, "wait_list").ok();
    let mut nodes = vec![node];
    let mut at = node;
    loop {
        at = memory.u64(at)?;
        if at == node {
            break;
        }
        nodes.push(at);
        if nodes.len() > MAX_WAITERS || at == 0 {
            return Ok(None);
        }
    }
    let waiting = |node: u64| {
        let task = memory.u64(node.wrapping_sub(of_list).wrapping_add(of_task)).ok()?;
        tasks.at(task).map(|_| task)
    };
    let head = of_head.and_then(|_| nodes.iter().position(|node| waiting(*node).is_none()));
    let (address, first) = match (of_head, head) {
        (Some(offset), Some(head)) => (nodes.get(head).map(|node| node.wrapping_sub(offset)), head),
        _ => (blocker(machine, task, lock, &nodes, words, of_list), 0),
    };
    nodes.rotate_left(first);
    let mut waiters: Vec<u64> = nodes.iter().filter_map(|node| waiting(*node)).collect();
    if let (None, Some(address)) = (of_head, address)
        && let Ok(first) = space.object(address, lock.record)?.get("first_waiter")?.pointer()
        && let Some(at) = nodes.iter().position(|node| node.wrapping_sub(of_list) == first)
        && waiters.len() == nodes.len()
    {
        waiters.rotate_left(at);
    }
    Ok(Some(Ring { lock: address, waiters }))
}

/// Since 7.1 the lock is in the task's `blocker` or `blocked_on`, or is a word on the stack whose first waiter is in the ring.
fn blocker(
    machine: &Machine<'_>,
    task: &Task,
    lock: &Lock,
    nodes: &[u64],
    words: &[u64],
    of_list: u64,
) -> Option<u64> {
    let space = machine.space();
    let in_ring = |address: u64| {
        let first = space.object(address, lock.record).ok()?.get("first_waiter").ok()?.pointer().ok()?;
        nodes.contains(&first.wrapping_add(of_list)).then_some(address)
    };
    let object = space.object(task.address.0, "task_struct").ok()?;
    let said = ["blocker", "blocked_on"].into_iter().find_map(|field| {
        let word = object.get(field).ok()?.unsigned().ok()?;
        in_ring(word & !BLOCKER_KIND)
    });
    said.or_else(|| {
        words.iter().filter(|word| **word >> 47 == 0x1ffff && **word & 7 == 0).find_map(|word| in_ring(*word))
    })
}

fn describe(machine: &Machine<'_>, tasks: &Tasks, names: &Names, lock: &Lock, ring: &Ring) -> Held {
    let mut owner = None;
    let mut owner_is_hint = false;
    let object = ring.lock.and_then(|address| machine.space().object(address, lock.record).ok());
    if let Some(object) = &object {
        // bd4e2952e4ae (6.16) keeps the last holder of semaphores.
        let word = object.any(&["owner", "last_holder"]).and_then(|owner| owner.unsigned()).unwrap_or(0);
        owner = tasks.at(word & !OWNER_FLAGS).map(|task| (task.comm.clone(), task.pid));
        owner_is_hint = match lock.record {
            // Bit 0 of the count: a writer.
            "rw_semaphore" => object.number("count").is_ok_and(|count| count & 1 == 0),
            "semaphore" => true,
            _ => false,
        };
    }
    let waiters = ring.waiters.iter().filter_map(|address| tasks.at(*address)).map(Wait::of);
    Held {
        lock: ring.lock.map(Hex),
        kind: lock.record,
        name: object.map_or_else(|| "unknown lock".into(), |object| names.of(machine, &object, lock.record)),
        owner,
        owner_is_hint,
        owner_stack: None,
        readers: None,
        waiters: waiters.collect(),
    }
}

/// Follows owners of locks to tasks that wait themselves.
fn cycles(held: &[Held]) -> Vec<Vec<u32>> {
    let mut next: HashMap<u32, u32> = HashMap::new();
    for lock in held.iter().filter(|lock| !lock.owner_is_hint) {
        if let Some((_, owner)) = &lock.owner {
            next.extend(lock.waiters.iter().map(|wait| (wait.pid, *owner)));
        }
    }
    let mut found: Vec<Vec<u32>> = Vec::new();
    let mut starts: Vec<u32> = next.keys().copied().collect();
    starts.sort_unstable();
    for start in starts {
        let mut chain = vec![start];
        let mut at = start;
        while let Some(owner) = next.get(&at).filter(|_| chain.len() < LONGEST_CHAIN) {
            if *owner == start {
                if !found.iter().any(|cycle| cycle.contains(&start)) {
                    found.push(chain);
                }
                break;
            }
            if chain.contains(owner) {
                break;
            }
            chain.push(*owner);
            at = *owner;
        }
    }
    found
}
