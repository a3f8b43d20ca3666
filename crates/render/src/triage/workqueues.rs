//! Workqueues.

use pagehaul_inspect::Workqueues;
use pagehaul_present::Table;
use pagehaul_present::number::count;
use pagehaul_present::time::seconds;

use super::lines::{Lines as _, known, whys};

pub(super) fn workqueues(found: &Workqueues, out: &mut String) {
    let pending: u64 = found.pools.iter().map(|pool| pool.pending).sum();
    put!(
        out,
        "\nWorkqueues: {}; works that wait for a worker: {}",
        known(found.count, &found.broken),
        if found.pools.is_empty() { "not known".to_owned() } else { known(pending as usize, &found.broken) }
    );
    let mut table = Table::new(["queue", "pool", "active", "wait for the queue", "pool_workqueue"]).left([0]);
    table.rows(found.busy.iter().map(|part| {
        let numbers = [part.pool.to_string(), count(part.active), count(part.inactive)];
        let [pool, active, inactive] = numbers;
        [part.name.clone(), pool, active, inactive, part.address.to_string()]
    }));
    if !found.busy.is_empty() {
        out.put_table(&table);
    }
    let heading = [
        "pool",
        "CPU",
        "workers",
        "idle",
        "works that wait",
        "no progress for",
        "worker_pool",
        "first works",
    ];
    let mut table = Table::new(heading).left([7]);
    table.rows(found.pools.iter().map(|pool| {
        [
            pool.id.to_string(),
            pool.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            count(pool.workers),
            count(pool.idle),
            count(pool.pending),
            pool.no_progress_for.map_or_else(String::new, seconds),
            pool.address.to_string(),
            pool.functions.join(", "),
        ]
    }));
    if !found.pools.is_empty() {
        put!(out, "\nPools of workers");
        out.put_table(&table);
    }
    whys(&found.broken, out);
}
