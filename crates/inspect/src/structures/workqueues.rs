//! Workqueues whose works wait, and the pools of workers that should run them.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::clock::Ticks;
use crate::hex::Hex;
use crate::machine::Machine;

/// Pools, and queues, that are read.
const MAX_POOLS: usize = 1 << 16;
/// Functions of a pool's works that are named.
const NAMED: usize = 8;

/// A pool of workers.
#[derive(Debug, Clone, Serialize)]
pub struct WorkerPool {
    /// Its number.
    pub id: u64,
    /// Address of its `struct worker_pool`.
    pub address: Hex,
    /// CPU that it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// Workers.
    pub workers: u64,
    /// Those that have nothing to do.
    pub idle: u64,
    /// Works that wait for a worker.
    pub pending: u64,
    /// Functions of the first of these.
    pub functions: Vec<String>,
    /// Seconds since one of its works began or ended, if works wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_progress_for: Option<f64>,
}

/// A workqueue in one pool.
#[derive(Debug, Clone, Serialize)]
pub struct PoolWorkqueue {
    /// Name of the workqueue.
    pub name: String,
    /// Number of the pool.
    pub pool: u64,
    /// Address of its `struct pool_workqueue`.
    pub address: Hex,
    /// Works that run or wait for a worker.
    pub active: u64,
    /// Works that wait until fewer of the queue are active.
    pub inactive: u64,
}

/// What is queued.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Workqueues {
    /// Number of workqueues.
    pub count: usize,
    /// All pools that have workers.
    pub pools: Vec<WorkerPool>,
    /// Those in which works are active or wait.
    pub busy: Vec<PoolWorkqueue>,
    /// Why some may be missing.
    pub broken: Vec<String>,
}

/// Reads all workqueues and pools.
pub fn workqueues(machine: &Machine<'_>) -> Workqueues {
    let mut found = Workqueues::default();
    for why in [pools(machine, &mut found), queues(machine, &mut found)].into_iter().filter_map(Result::err) {
        found.broken.push(format!("workqueues: {why}"));
    }
    found.broken.truncate(16);
    found
}

fn pools(machine: &Machine<'_>, found: &mut Workqueues) -> Result<(), Fault> {
    let ticks = Ticks::new(machine);
    let walk = machine.variable("worker_pool_idr", "idr")?.get("idr_rt")?.xarray()?;
    found.broken.extend(walk.broken);
    for (_, address) in walk.items.into_iter().take(MAX_POOLS) {
        let pool = machine.space().object(address, "worker_pool")?;
        match describe(machine, &pool, ticks.as_ref().ok(), &mut found.broken) {
            Ok(pool) => found.pools.extend(Some(pool).filter(|pool| pool.workers > 0 || pool.pending > 0)),
            Err(why) => found.broken.push(format!("the pool at {address:#x}: {why}")),
        }
    }
    Ok(())
}

fn describe(
    machine: &Machine<'_>,
    pool: &Object<'_>,
    ticks: Option<&Ticks>,
    broken: &mut Vec<String>,
) -> Result<WorkerPool, Fault> {
    let walk = pool.get("worklist")?.list("work_struct", "entry")?;
    broken.extend(walk.broken);
    let works = walk.items;
    let function = |work: &Object<'_>| Some(machine.function_at(work.get("func").ok()?.pointer().ok()?));
    // Renamed in 7.2 at the latest.
    let progress = pool.any(&["watchdog_ts", "last_progress_ts"])?.unsigned()?;
    Ok(WorkerPool {
        id: pool.number("id")?,
        address: Hex(pool.address()),
        // -1: of no CPU.
        cpu: u64::try_from(pool.get("cpu")?.signed()?).ok(),
        workers: pool.number("nr_workers")?,
        idle: pool.number("nr_idle")?,
        pending: works.len() as u64,
        functions: works.iter().take(NAMED).filter_map(function).collect(),
        no_progress_for: ticks.filter(|_| !works.is_empty()).map(|ticks| ticks.seconds_since(progress)),
    })
}

fn queues(machine: &Machine<'_>, found: &mut Workqueues) -> Result<(), Fault> {
    let walk = machine.variable("workqueues", "list_head")?.list("workqueue_struct", "list")?;
    found.broken.extend(walk.broken);
    found.count = walk.items.len();
    for queue in walk.items {
        if let Err(why) = parts_of(&queue, found) {
            found.broken.push(format!("the workqueue at {:#x}: {why}", queue.address()));
        }
    }
    Ok(())
}

/// The parts of a workqueue that have works.
fn parts_of(queue: &Object<'_>, found: &mut Workqueues) -> Result<(), Fault> {
    let name = queue.get("name")?.text()?;
    let parts = queue.get("pwqs")?.list("pool_workqueue", "pwqs_node")?;
    found.broken.extend(parts.broken);
    for part in parts.items.into_iter().take(MAX_POOLS) {
        // f97a4a1a3f87 (5.15) renamed delayed_works.
        let inactive = part.any(&["inactive_works", "delayed_works"])?.list("work_struct", "entry")?;
        found.broken.extend(inactive.broken);
        let (active, inactive) = (part.number("nr_active")?, inactive.items.len() as u64);
        if active > 0 || inactive > 0 {
            let pool = part.get("pool")?.target()?.number("id")?;
            let address = Hex(part.address());
            found.busy.push(PoolWorkqueue { name: name.clone(), pool, address, active, inactive });
        }
    }
    Ok(())
}
