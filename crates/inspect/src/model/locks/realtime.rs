//! Locks of PREEMPT_RT: mutexes, rw_semaphores, rwlocks and spinlocks that sleep are real-time mutexes there (`struct
//! rt_mutex_base`, 830e6acc8a1c, 5.15). A task that waits for one has its waiter in `task_struct.pi_blocked_on`. Other kernels
//! have real-time mutexes for futexes with priority inheritance.

use std::collections::{BTreeMap, HashMap};

use pagehaul_btf::{Fault, Object};

use super::names::Names;
use crate::hex::Hex;
use crate::machine::Machine;
use crate::model::stacks::{StackTrace, task_stack};
use crate::model::waits::{Held, Locks, Wait};
use crate::structures::stack::stack_words;
use crate::structures::tasks::{Task, Tasks};
use crate::unwind::Unwinder;

/// `RT_MUTEX_HAS_WAITERS` (kernel/locking/rtmutex_common.h), in the owner of a lock.
const HAS_WAITERS: u64 = 1;
/// `WRITER_BIAS` (include/linux/rwbase_rt.h): fewer readers hold a lock that a writer waits for.
const WRITER_BIAS: u64 = 1 << 30;

/// Whether mutexes are real-time mutexes: bb630f9f7a7d (5.15), with CONFIG_PREEMPT_RT.
pub(super) fn is_realtime(machine: &Machine<'_>) -> bool {
    machine.space().has("mutex", "rtmutex")
}

/// What is in front of the real-time mutex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Mutex,
    RwSemaphore,
    RwLock,
    Spinlock,
    RtMutex,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::RwSemaphore => "rw_semaphore",
            Self::RwLock => "rwlock",
            Self::Spinlock => "spinlock",
            Self::RtMutex => "rt_mutex",
        }
    }

    /// The kernel's type, and where its real-time mutex is.
    fn record(self) -> (&'static str, &'static str) {
        match self {
            Self::Mutex => ("mutex", "rtmutex"),
            Self::RwSemaphore => ("rw_semaphore", "rwbase.rtmutex"),
            Self::RwLock => ("rwbase_rt", "rtmutex"),
            Self::Spinlock => ("spinlock", "lock"),
            Self::RtMutex => ("rt_mutex_base", ""),
        }
    }

    /// The kind that a task with this stack waits for. `mutex_lock` can be missing on it: a tail call.
    fn of<'a>(functions: impl Iterator<Item = &'a str> + Clone, realtime: bool) -> Self {
        let passes = |starts: &[&str]| {
            functions.clone().any(|name| starts.iter().any(|start| name.starts_with(start)))
        };
        if passes(&["rt_read_lock", "rt_write_lock"]) {
            return Self::RwLock;
        }
        let sleeping_spinlock = passes(&["rtlock_", "rt_spin_", "schedule_rtlock"]);
        match passes(&["rwbase_", "__rwbase_", "down_read", "down_write", "__down_read", "__down_write"]) {
            true if sleeping_spinlock => Self::RwLock,
            true => Self::RwSemaphore,
            false if sleeping_spinlock => Self::Spinlock,
            false if !realtime || passes(&["futex_lock_pi", "futex_wait_requeue_pi"]) => Self::RtMutex,
            false => Self::Mutex,
        }
    }
}

struct Waiter<'a> {
    task: &'a Task,
    /// Lower numbers first.
    priority: i64,
    kind: Kind,
}

/// Adds the real-time mutexes that tasks wait for.
pub(super) fn locks(
    machine: &Machine<'_>,
    unwinder: &Unwinder<'_>,
    tasks: &Tasks,
    names: &Names,
    stacks: &[(&Task, StackTrace)],
    result: &mut Locks,
) {
    let space = machine.space();
    let realtime = is_realtime(machine);
    let offsets = space
        .offset_of("task_struct", "pi_blocked_on")
        .and_then(|_| space.offset_of("rt_mutex_waiter", "lock"))
        .and_then(|_| space.offset_of("rt_mutex_base", "owner"));
    if let Err(why) = offsets {
        if realtime {
            let what = "mutexes, rw_semaphores and spinlocks of PREEMPT_RT cannot be read";
            result.missing.push(format!("{what}: {why}"));
        }
        return;
    }
    if realtime {
        result.kinds.extend(["mutex", "rw_semaphore", "rwlock", "spinlock"]);
    }
    let known: HashMap<u32, &StackTrace> = stacks.iter().map(|(task, stack)| (task.pid, stack)).collect();
    let mut by_lock: BTreeMap<u64, Vec<Waiter<'_>>> = BTreeMap::new();
    for task in &tasks.all {
        let Ok(waiter) = waiter_of(machine, task) else {
            result.unknown.push(task.pid);
            continue;
        };
        let Some(waiter) = waiter else { continue };
        let unwound =
            if known.contains_key(&task.pid) { None } else { task_stack(machine, unwinder, task).ok() };
        let stack = known.get(&task.pid).copied().or(unwound.as_ref());
        let functions =
            stack.map_or(&[][..], |stack| &stack.frames).iter().map(|frame| frame.function.as_str());
        let kind = Kind::of(functions.take(10), realtime);
        match waiter.get("lock").and_then(|lock| lock.pointer()) {
            Ok(lock) if lock != 0 => {
                // The priority moved to `tree` in 6.5 (f7853c342418).
                let priority = waiter.any(&["tree.prio", "prio"]).and_then(|priority| priority.signed());
                let waiter = Waiter { task, priority: priority.unwrap_or(0), kind };
                by_lock.entry(lock).or_default().push(waiter);
            }
            _ => result.unknown.push(task.pid),
        }
    }
    for (lock, mut waiters) in by_lock {
        let waited = |waiter: &Waiter<'_>| waiter.task.seconds_since_run.unwrap_or(0.0);
        waiters.sort_by(|a, b| a.priority.cmp(&b.priority).then(waited(b).total_cmp(&waited(a))));
        if let Some(held) = describe(machine, tasks, names, lock, &waiters) {
            result.held.push(held);
        }
    }
    for (task, stack) in stacks.iter().filter(|_| realtime) {
        match waits_for_readers(machine, names, task, stack) {
            Some(Ok(held)) => result.held.push(held),
            Some(Err(_)) => result.unknown.push(task.pid),
            None => {}
        }
    }
    if result.held.iter().any(|held| held.readers.is_some()) {
        let why = "PREEMPT_RT counts the readers that hold an rw_semaphore or rwlock, and does not record who they are";
        result.missing.push(why.into());
    }
}

/// The `struct rt_mutex_waiter` of a task that waits.
fn waiter_of<'a>(machine: &'a Machine<'_>, task: &Task) -> Result<Option<Object<'a>>, Fault> {
    let object = machine.space().object(task.address.0, "task_struct")?;
    match object.get("pi_blocked_on")?.pointer()? {
        0 => Ok(None),
        waiter => machine.space().object(waiter, "rt_mutex_waiter").map(Some),
    }
}

fn describe(
    machine: &Machine<'_>,
    tasks: &Tasks,
    names: &Names,
    lock: u64,
    waiters: &[Waiter<'_>],
) -> Option<Held> {
    // Waiters whose stacks cannot be read are thought to wait for a mutex: one that can be read decides.
    let kind = waiters.iter().map(|waiter| waiter.kind).max()?;
    let base = machine.space().object(lock, "rt_mutex_base").ok()?;
    let owner = base.number("owner").unwrap_or(0) & !HAS_WAITERS;
    let (record, member) = kind.record();
    let object = if member.is_empty() { Ok(base) } else { base.container(record, member) };
    Some(Held {
        lock: Some(object.as_ref().map_or(Hex(lock), |object| Hex(object.address()))),
        kind: kind.name(),
        name: object.map_or_else(|_| "unknown lock".into(), |object| names.of(machine, &object, kind.name())),
        owner: tasks.at(owner).map(|task| (task.comm.clone(), task.pid)),
        owner_is_hint: false,
        owner_stack: None,
        readers: None,
        waiters: waiters.iter().map(|waiter| Wait::of(waiter.task)).collect(),
    })
}

/// A writer that owns the real-time mutex waits until all readers are gone, in no queue (`rwbase_write_lock`). The lock is in
/// a register that its callees saved on its stack.
fn waits_for_readers(
    machine: &Machine<'_>,
    names: &Names,
    task: &Task,
    stack: &StackTrace,
) -> Option<Result<Held, Fault>> {
    const WRITERS: [&str; 4] = ["down_write", "rwbase_write_lock", "rt_write_lock", "__down_write"];
    let inner = stack.frames.get(..stack.frames.len().min(8))?;
    let writes = |start: &str| inner.iter().any(|frame| frame.function.starts_with(start));
    if !WRITERS.into_iter().any(writes) || !matches!(waiter_of(machine, task), Ok(None)) {
        return None;
    }
    let kind = if writes("rt_write_lock") { Kind::RwLock } else { Kind::RwSemaphore };
    Some(held_by_readers(machine, names, task, kind))
}

fn held_by_readers(machine: &Machine<'_>, names: &Names, task: &Task, kind: Kind) -> Result<Held, Fault> {
    let space = machine.space();
    let (_, words) = stack_words(machine, task.address.0)?;
    let readers = |address: u64| {
        let lock = space.object(address, "rwbase_rt").ok()?;
        let owner = lock.number("rtmutex.owner").ok()? & !HAS_WAITERS;
        let readers = lock.number("readers.counter").or_else(|_| lock.number("readers")).ok()?;
        (owner == task.address.0 && (1..WRITER_BIAS).contains(&readers)).then_some((lock.address(), readers))
    };
    let of_lock = space.offset_of("rwbase_rt", "rtmutex")?;
    // Either the rwbase_rt or its rt_mutex_base is on the stack.
    let places = words.iter().filter(|word| **word >> 47 == 0x1ffff && **word & 3 == 0);
    let found = places.flat_map(|word| [*word, word.wrapping_sub(of_lock)]).find_map(readers);
    let (address, readers) = found.ok_or(Fault::Null(task.address.0))?;
    let record = if kind == Kind::RwSemaphore { "rw_semaphore" } else { "rwbase_rt" };
    let lock = space.object(address, record)?;
    Ok(Held {
        lock: Some(Hex(address)),
        kind: kind.name(),
        name: names.of(machine, &lock, kind.name()),
        owner: None,
        owner_is_hint: false,
        owner_stack: None,
        readers: Some(readers),
        waiters: vec![Wait::of(task)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(functions: &str, realtime: bool) -> Kind {
        Kind::of(functions.split(" < "), realtime)
    }

    #[test]
    fn the_stack_says_which_lock_is_a_real_time_mutex() {
        let slow = "__schedule < rt_mutex_schedule < rt_mutex_slowlock_block.constprop.0 < rt_mutex_slowlock.constprop.0";
        assert_eq!(kind(&format!("{slow} < pipe_write"), true), Kind::Mutex);
        assert_eq!(kind(&format!("{slow} < futex_lock_pi"), true), Kind::RtMutex);
        assert_eq!(kind(&format!("{slow} < mutex_lock"), false), Kind::RtMutex);
        let read =
            "__schedule < rt_mutex_schedule < rt_mutex_slowlock_block < __rwbase_read_lock < ext4_map_blocks";
        assert_eq!(kind(read, true), Kind::RwSemaphore);
        let spin = "__schedule < schedule_rtlock < rtlock_slowlock_locked < rt_spin_lock < lru_add_fn";
        assert_eq!(kind(spin, true), Kind::Spinlock);
        assert_eq!(kind("__schedule < rtlock_slowlock_locked < __rwbase_read_lock < f", true), Kind::RwLock);
        assert_eq!(kind("__schedule < rtlock_slowlock < rt_write_lock < f", true), Kind::RwLock);
    }
}
