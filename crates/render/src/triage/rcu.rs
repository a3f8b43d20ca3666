//! RCU.

use pagehaul_inspect::Rcu;
use pagehaul_present::Table;
use pagehaul_present::number::count;
use pagehaul_present::time::seconds;

use super::lines::{Lines as _, whys};

pub(super) fn rcu(found: &Rcu, out: &mut String) {
    let Some(name) = &found.name else {
        put!(out, "\nRCU: not known");
        whys(&found.broken, out);
        return;
    };
    let period = format!("g{}", found.sequence);
    match found.runs_for {
        Some(time) => put!(out, "\nRCU ({name}): grace period {period} runs for {}", seconds(time)),
        None => put!(out, "\nRCU ({name}): no grace period runs; the last is {period}"),
    }
    if !found.cpus.is_empty() {
        let cpus: Vec<String> = found.cpus.iter().map(u64::to_string).collect();
        put!(out, "  it waits for the CPUs {}", cpus.join(", "));
    }
    if !found.tasks.is_empty() {
        put!(out, "  it waits for the tasks {}", found.tasks.join(", "));
    }
    if let Some(thread) = &found.thread {
        put!(out, "  driven by {thread}");
    }
    let mut table = Table::new(["CPU", "callbacks"]);
    table.rows(found.callbacks.iter().map(|of| [of.cpu.to_string(), count(of.callbacks)]));
    if !found.callbacks.is_empty() {
        out.put_table(&table);
    }
    whys(&found.broken, out);
}
