//! Workers of workqueues: what each runs, what is queued behind it, and who waits until it is done.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::waits::{Held, Wait};
use crate::hex::Hex;
use crate::machine::Machine;
use crate::structures::tasks::{Task, Tasks};

/// `PF_WQ_WORKER` (include/linux/sched.h).
const IS_WORKER: u64 = 0x20;
/// The flags in `work_struct.data`, below the address of the `pool_workqueue`.
const WORK_FLAGS: u64 = 0xff;
/// Workers that are read.
const MOST: usize = 4096;

/// A worker that runs a work.
#[derive(Debug, Clone, Serialize)]
pub struct Worker {
    /// Its thread ID.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Address of the `struct work_struct`.
    pub work: Hex,
    /// The work's function: `function [module]`.
    pub function: String,
    /// The workqueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workqueue: Option<String>,
    /// Works of its workqueue that wait behind it: for a worker, or until fewer works of the queue run.
    pub pending: u64,
    /// Tasks that wait for the work (`flush_work`, `flush_workqueue`).
    pub waiters: Vec<Wait>,
}

impl Worker {
    /// Returns what it runs: `function [module] of workqueue NAME`.
    pub fn describe(&self) -> String {
        match &self.workqueue {
            Some(name) => format!("{} of workqueue {name}", self.function),
            None => self.function.clone(),
        }
    }

    /// Returns the wait for its work, as for a lock.
    pub(crate) fn held(&self) -> Option<Held> {
        (!self.waiters.is_empty()).then(|| Held {
            lock: Some(self.work),
            kind: "work",
            name: self.describe(),
            owner: Some((self.comm.clone(), self.pid)),
            owner_is_hint: false,
            owner_stack: None,
            readers: None,
            waiters: self.waiters.clone(),
        })
    }
}

/// Finds the workers that run a work.
pub(crate) fn workers(machine: &Machine<'_>, tasks: &Tasks) -> Vec<Worker> {
    let workers = tasks.all.iter().filter(|task| task.kernel_thread && task.flags.0 & IS_WORKER != 0);
    workers.take(MOST).filter_map(|task| read(machine, tasks, task).ok().flatten()).collect()
}

fn read(machine: &Machine<'_>, tasks: &Tasks, task: &Task) -> Result<Option<Worker>, Fault> {
    let space = machine.space();
    // e32cf5dfbe22 (5.17) moved it out of set_child_tid.
    let object = space.object(task.address.0, "task_struct")?;
    let kthread = object.any(&["worker_private", "set_child_tid"])?.pointer()?;
    let worker = space.object(space.object(kthread, "kthread")?.get("data")?.pointer()?, "worker")?;
    let work = worker.get("current_work")?.pointer()?;
    // Its task says whether this is a worker.
    if work == 0 || worker.get("task")?.pointer()? != task.address.0 {
        return Ok(None);
    }
    let function = machine.function_at(worker.get("current_func")?.pointer()?);
    let queue = worker.get("current_pwq").and_then(|queue| queue.target());
    let workqueue = queue.as_ref().ok().and_then(|queue| queue.get("wq->name").ok()?.text().ok());
    let barrier = machine.symbols().address("wq_barrier_func");
    let works = |object: &Object<'_>, list: &str| -> Vec<u64> {
        let walk = object.get(list).and_then(|head| head.list("work_struct", "entry"));
        walk.map_or_else(|_| Vec::new(), |walk| walk.items.iter().map(Object::address).collect())
    };
    let is_barrier = |work: &u64| {
        let object = space.object(*work, "work_struct").and_then(|work| work.get("func")?.pointer());
        barrier.is_some() && object.ok() == barrier
    };
    let mut pending = 0;
    if let Ok(queue) = &queue {
        let of_queue = |work: &u64| {
            let data = space.object(*work, "work_struct").and_then(|work| work.number("data"));
            data.is_ok_and(|data| data & !WORK_FLAGS == queue.address())
        };
        if let Ok(pool) = worker.get("pool").and_then(|pool| pool.target()) {
            let works = works(&pool, "worklist");
            pending += works.iter().filter(|work| of_queue(work) && !is_barrier(work)).count() as u64;
        }
        // f97a4a1a3f87 (5.15) renamed delayed_works.
        let list = if queue.has("inactive_works") { "inactive_works" } else { "delayed_works" };
        pending += works(queue, list).iter().filter(|work| !is_barrier(work)).count() as u64;
    }
    // A barrier behind the work wakes the task that waits for it.
    let waiter = |barrier: &u64| {
        let barrier = space.object(*barrier, "work_struct").ok()?.container("wq_barrier", "work").ok()?;
        Some(Wait::of(tasks.at(barrier.get("task").ok()?.pointer().ok()?)?))
    };
    let scheduled = works(&worker, "scheduled");
    Ok(Some(Worker {
        pid: task.pid,
        comm: task.comm.clone(),
        work: Hex(work),
        function,
        workqueue,
        pending,
        waiters: scheduled.iter().filter(|work| is_barrier(work)).filter_map(waiter).collect(),
    }))
}
