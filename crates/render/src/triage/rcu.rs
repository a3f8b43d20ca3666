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
    let period = found.sequence.map_or_else(String::new, |sequence| format!("g{sequence}"));
    match (found.runs, found.runs_for) {
        (_, Some(time)) => put!(out, "\nRCU ({name}): grace period {period} runs for {}", seconds(time)),
        (Some(true), None) => put!(out, "\nRCU ({name}): grace period {period} runs"),
        (Some(false), None) => put!(out, "\nRCU ({name}): no grace period runs; the last is {period}"),
        (None, None) => put!(out, "\nRCU ({name}): whether a grace period runs is not known"),
    }
    let at_least = if found.broken.is_empty() { "" } else { "at least " };
    if !found.cpus.is_empty() {
        let cpus: Vec<String> = found.cpus.iter().map(u64::to_string).collect();
        put!(out, "  it waits for {at_least}the CPUs {}", cpus.join(", "));
    }
    if !found.tasks.is_empty() {
        put!(out, "  it waits for {at_least}the tasks {}", found.tasks.join(", "));
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
