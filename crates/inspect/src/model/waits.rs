//! Tasks that wait for locks and works, and who holds these.

use serde::Serialize;

use super::stacks::StackTrace;
use crate::hex::Hex;
use crate::structures::tasks::Task;

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
