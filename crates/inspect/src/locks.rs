//! Who waits for whom: mutexes, rw_semaphores and semaphores.
//!
//! No debug symbols are needed to find a lock, because the waiter (`struct mutex_waiter` and its like) lies on the stack of
//! the task that waits, and links it into the lock's ring of waiters. PREEMPT_RT has other locks: [`realtime`].

mod realtime;

use std::collections::{HashMap, HashSet};

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use crate::paths::path;
use crate::stacks::stack_words;
use crate::unwind::Unwinder;
use crate::workers::Worker;
use crate::{Hex, Machine, StackTrace, Task, Tasks};

/// Waiters of one lock.
const MAX_WAITERS: usize = 10_000;
/// Owners in a row.
const LONGEST_CHAIN: usize = 64;
/// Flags in the low bits of an owner.
const OWNER_FLAGS: u64 = 7;
/// The low bits of `task.blocker` hold the kind of lock.
const BLOCKER_KIND: u64 = 3;

/// A task that waits for a lock.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    /// Thread ID.
    pub pid: u32,
    /// Name.
    pub comm: String,
    /// Seconds since it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Wait {
    pub(crate) fn of(task: &Task) -> Self {
        Self { pid: task.pid, comm: task.comm.clone(), seconds: task.seconds_since_run }
    }
}

/// A lock that tasks wait for.
#[derive(Debug, Clone, Serialize)]
pub struct Held {
    /// Its address; none if only the waiters could be found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<Hex>,
    /// `mutex`, `rw_semaphore` or `semaphore`; with PREEMPT_RT also `spinlock` or `rwlock`; `rt_mutex` for a futex.
    /// `work` for a work that a worker runs, which tasks flush.
    pub kind: &'static str,
    /// What it protects, as far as its address tells.
    pub name: String,
    /// The task that holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<(String, u32)>,
    /// Whether the owner is only the last reader that took an rw_semaphore: others may hold it too.
    pub owner_is_hint: bool,
    /// Where the owner is, asleep or on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_stack: Option<StackTrace>,
    /// Readers that hold it, where the kernel has their number only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readers: Option<u64>,
    /// Who waits, in the order of the queue.
    pub waiters: Vec<Wait>,
}

impl Held {
    /// Returns how the owner holds it: a worker runs its work.
    pub fn held_by(&self) -> &'static str {
        match (self.kind, self.owner_is_hint) {
            ("work", _) => "run by",
            (_, true) => "last held by",
            (_, false) => "held by",
        }
    }

    /// Returns the seconds of the longest wait.
    pub fn longest(&self) -> f64 {
        self.waiters.iter().filter_map(|wait| wait.seconds).fold(0.0, f64::max)
    }
}

/// All locks that tasks wait for.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Locks {
    /// The locks, those with the longest wait first.
    pub held: Vec<Held>,
    /// Deadlocks: thread IDs, each waits for a lock that the next one holds, the last for one of the first.
    pub cycles: Vec<Vec<u32>>,
    /// Tasks in a lock's slow path whose lock was not found.
    pub unknown: Vec<u32>,
    /// Kinds of locks whose waiters were looked for in every task that is blocked.
    pub kinds: Vec<&'static str>,
    /// What could not be found out, one sentence each.
    #[serde(skip)]
    pub missing: Vec<String>,
}

impl Locks {
    /// Returns a sentence if no task waits for a lock, as far as it could be found out.
    pub fn none(&self) -> Option<String> {
        if !self.held.is_empty() || !self.unknown.is_empty() {
            return None;
        }
        Some(match self.kinds.split_last() {
            None => "not known".into(),
            Some((only, [])) => format!("no task waits for a {only}"),
            Some((last, others)) => format!("no task waits for a {} or {last}", others.join(", ")),
        })
    }
}

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

/// What locks can be part of.
struct Names {
    super_blocks: HashSet<u64>,
    /// `mmap_lock` of each process.
    memories: HashMap<u64, String>,
}

impl Names {
    fn new(machine: &Machine<'_>, tasks: &Tasks) -> Self {
        let super_blocks =
            machine.variable("super_blocks", "list_head").and_then(|head| head.list("super_block", "s_list"));
        let offset = machine
            .space()
            .offset_of("mm_struct", "mmap_lock")
            .or_else(|_| machine.space().offset_of("mm_struct", "mmap_sem"));
        let mut memories = HashMap::new();
        if let Ok(offset) = offset {
            for task in tasks.all.iter().filter(|task| task.mm.0 != 0) {
                memories
                    .entry(task.mm.0.wrapping_add(offset))
                    .or_insert_with(|| format!("mmap_lock of {}/{}", task.comm, task.tgid));
            }
        }
        let super_blocks = super_blocks.map(|walk| walk.items.iter().map(|block| block.address()).collect());
        Self { super_blocks: super_blocks.unwrap_or_default(), memories }
    }

    fn of(&self, machine: &Machine<'_>, lock: &Object<'_>, record: &str) -> String {
        let address = lock.address();
        if let Some(name) = self.memories.get(&address) {
            return name.clone();
        }
        if record == "rw_semaphore" {
            if let Ok(inode) = lock.container("inode", "i_rwsem")
                && let Ok(name) = self.inode(&inode)
            {
                return name;
            }
            if let Ok(block) = lock.container("super_block", "s_umount")
                && self.super_blocks.contains(&block.address())
            {
                return format!("s_umount of {}", file_system(&block));
            }
        }
        if machine.symbols().is_static(address)
            && let Some(name) = machine.symbols().name(address)
        {
            let module = name.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
            return match name.offset {
                0 => format!("{}{module}", name.symbol),
                offset => format!("{}+{offset:#x}{module}", name.symbol),
            };
        }
        slab_cache(machine, address).unwrap_or_else(|_| format!("at {address:#x}"))
    }

    fn inode(&self, inode: &Object<'_>) -> Result<String, Fault> {
        let block = inode.get("i_sb")?.target()?;
        if !self.super_blocks.contains(&block.address()) {
            return Err(Fault::Null(inode.address()));
        }
        let number = inode.number("i_ino")?;
        let path = inode.get("i_dentry").and_then(|names| {
            let first = names.get("first")?.pointer()?;
            let space = inode.space();
            let offset =
                space.offset_of("dentry", "d_u.d_alias").or_else(|_| space.offset_of("dentry", "d_alias"))?;
            if first == 0 {
                return Err(Fault::Null(inode.address()));
            }
            path(&space.object(first.wrapping_sub(offset), "dentry")?)
        });
        let path = path.map_or_else(|_| String::new(), |path| format!(" {path}"));
        Ok(format!("i_rwsem of inode {number} on {}{path}", file_system(&block)))
    }
}

fn file_system(block: &Object<'_>) -> String {
    let kind = block.get("s_type->name").and_then(|name| name.text()).unwrap_or_default();
    let device = block.get("s_id").and_then(|name| name.text()).unwrap_or_default();
    format!("{device} ({kind})")
}

/// The slab cache that an object of the direct map is in, and where in the object the address lies.
fn slab_cache(machine: &Machine<'_>, address: u64) -> Result<String, Fault> {
    let space = machine.space();
    let physical = address.wrapping_sub(machine.u64("page_offset_base")?);
    let shift = machine.page_size().shift();
    let page_size = space.size_of("page")?;
    let page = machine.u64("vmemmap_base")?.wrapping_add((physical >> shift).wrapping_mul(page_size));
    let page_object = space.object(page, "page")?;
    // 8c846c879e22 (7.1): compound_info holds a mask instead of the head's address.
    let head = match page_object.get("compound_head") {
        Ok(head) => head.unsigned()?,
        Err(_) => 0,
    };
    let head = if head & 1 == 1 { head - 1 } else { page };
    // 8f9c8c5b9b1f (5.17): struct slab.
    let record = if space.btf().record("slab").is_some() { "slab" } else { "page" };
    let slab = space.object(head, record)?;
    let cache = slab.get("slab_cache")?.target()?;
    let size = cache.number("size")?.max(1);
    let pages = head.wrapping_sub(machine.u64("vmemmap_base")?) / page_size.max(1);
    let start = machine.u64("page_offset_base")?.wrapping_add(pages << shift);
    Ok(format!("{}+{:#x}", cache.get("name")?.text()?, address.wrapping_sub(start) % size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_that_were_looked_for_are_denied() {
        let none = |kinds: &[&'static str]| Locks { kinds: kinds.to_vec(), ..Locks::default() }.none();
        assert_eq!(
            none(&["mutex", "rw_semaphore", "semaphore"]).as_deref(),
            Some("no task waits for a mutex, rw_semaphore or semaphore")
        );
        assert_eq!(none(&["semaphore"]).as_deref(), Some("no task waits for a semaphore"));
        assert_eq!(none(&[]).as_deref(), Some("not known"));
        assert_eq!(Locks { unknown: vec![7], ..Locks::default() }.none(), None);
    }
}
