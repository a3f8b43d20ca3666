//! Locks: who waits for whom.

use pagehaul_inspect::{Held, Task, TriageReport};
use pagehaul_present::number::counted;
use pagehaul_present::time::seconds;

use super::lines::{FEW, INNERMOST, more};

pub(super) fn waits(report: &TriageReport, out: &mut String, full: bool) {
    let locks = &report.locks;
    if let Some(none) = locks.none() {
        if full {
            put!(out, "\nWho waits for whom: {none}");
        }
        return;
    }
    put!(out, "\nWho waits for whom");
    let shown = if full { locks.held.len() } else { FEW };
    for held in locks.held.iter().take(shown) {
        let owner = match &held.owner {
            Some((name, pid)) => format!("{} {name}/{pid}", held.held_by()),
            None => held.readers.map_or_else(
                || "holder unknown".into(),
                |readers| format!("held by {}", counted(readers, "reader")),
            ),
        };
        let place = holder_place(report, held).unwrap_or_default();
        put!(
            out,
            "  {} {}, {owner}{place}: {} up to {}",
            held.kind,
            held.name,
            waits_of(held.waiters.len()),
            seconds(held.longest())
        );
        if full {
            put!(
                out,
                "    {} at {}",
                if held.kind == "work" { "work" } else { "lock" },
                held.lock.map_or_else(|| "an unknown address".into(), |lock| lock.to_string())
            );
            for wait in &held.waiters {
                put!(out, "    {}/{}, {}", wait.comm, wait.pid, seconds(wait.seconds.unwrap_or(0.0)));
            }
        }
    }
    more(locks.held.len(), shown, "locks", out);
    for cycle in &locks.cycles {
        let names = cycle
            .iter()
            .chain(cycle.first())
            .map(|pid| report.tasks.by_pid(*pid).map_or_else(|| pid.to_string(), Task::label));
        let names: Vec<String> = names.collect();
        put!(out, "  deadlock: {}", names.join(", which waits for ").replacen(", which waits", " waits", 1));
    }
    if !locks.unknown.is_empty() {
        let pids: Vec<String> = locks.unknown.iter().take(20).map(ToString::to_string).collect();
        put!(out, "  lock not found for PIDs {}", pids.join(" "));
    }
}

pub(super) fn waits_of(tasks: usize) -> String {
    format!("{} {}", counted(tasks as u64, "task"), if tasks == 1 { "waits" } else { "wait" })
}

/// Where the holder of a lock is: what it waits for in turn.
fn holder_place(report: &TriageReport, held: &Held) -> Option<String> {
    let (_, pid) = held.owner.as_ref()?;
    let task = report.tasks.by_pid(*pid)?;
    let place = held.owner_stack.as_ref().map(|stack| stack.innermost(INNERMOST));
    Some(match place {
        Some(place) if task.state == 'D' => format!(", blocked in {place}"),
        Some(place) => format!(" (state {}) in {place}", task.state),
        None => format!(" (state {})", task.state),
    })
}
