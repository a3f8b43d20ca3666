//! Who waits for whom, drawn, and the locks as a table.

use std::collections::HashMap;

use maud::{Markup, html};
use pagehaul_inspect::{Held, Task, TriageReport};
use pagehaul_present::graph::{Node, figure};
use pagehaul_present::number::{count, counted};
use pagehaul_present::time::seconds;

use super::stacks::Stacks;
use super::words::{Index, at_most, one_line, some_pids};
use crate::triage::waits::waits_of;

/// Locks that are drawn.
const DRAWN: usize = 60;
/// Locks that have a row.
const ROWS: usize = 300;
/// Waiters of a lock that have a node each.
const EACH: usize = 3;
/// Waiters of a lock whose PIDs are listed.
const PIDS: usize = 500;
/// Letters of the name of a lock.
const NAME: usize = 60;

pub(super) fn waits(
    report: &TriageReport,
    index: &Index<'_>,
    stacks: &Stacks<'_>,
) -> Option<(String, Markup)> {
    let locks = &report.locks;
    if let Some(none) = locks.none() {
        return Some((String::new(), html! { p { (none) } }));
    }
    let label = |pid: u32| index.task(pid).map_or_else(|| pid.to_string(), Task::label);
    let body = html! {
        @for cycle in locks.cycles.iter().take(DRAWN) {
            @let names: Vec<String> = cycle.iter().chain(cycle.first()).map(|pid| label(*pid)).collect();
            p.deadlock { b { "deadlock" } ": " (one_line(&names.join(", which waits for ").replacen(", which waits", " waits", 1))) }
        }
        @if !locks.held.is_empty() {
            (figure(&nodes(report, index, stacks), "Who waits for whom"))
            div.shown hidden {}
            (table(&locks.held, index, stacks))
        }
        @if !locks.unknown.is_empty() { p.about { "Lock not found for PIDs " (some_pids(locks.unknown.iter().copied(), PIDS)) } }
    };
    let about = "Each task points to the holder of the lock that it waits for; a cycle is a deadlock. Click a task to see its stack.";
    Some((about.into(), body))
}

/// The nodes: holders of locks, and those that wait for them. Waiters that hold no lock of another one are one node, if they are many.
fn nodes(report: &TriageReport, index: &Index<'_>, stacks: &Stacks<'_>) -> Vec<Node> {
    let drawn = drawn(report);
    let mut nodes = Vec::new();
    let mut of_task: HashMap<u32, usize> = HashMap::new();
    for (name, pid) in drawn.iter().filter_map(|held| held.owner.as_ref()) {
        of_task.entry(*pid).or_insert_with(|| {
            nodes.push(Node {
                name: task(index, name, *pid, None),
                note: stacks
                    .innermost(*pid, 2)
                    .map(|place| format!("in {}", one_line(&place)))
                    .unwrap_or_default(),
                next: None,
                place: stacks.place(*pid),
            });
            nodes.len() - 1
        });
    }
    for held in &drawn {
        let lock = one_line(&format!("{} {}", held.kind, held.name));
        let holder = match &held.owner {
            Some((_, pid)) => of_task.get(pid).copied(),
            None => {
                let name = held.readers.map_or_else(
                    || "holder unknown".to_owned(),
                    |readers| format!("held by {}", counted(readers, "reader")),
                );
                nodes.push(Node { name, note: lock.clone(), ..Node::default() });
                Some(nodes.len() - 1)
            }
        };
        let hint = if held.owner_is_hint { ", last held by it" } else { "" };
        let note = format!("for {lock}{hint}");
        let mut others = Vec::new();
        for wait in &held.waiters {
            match of_task.get(&wait.pid).and_then(|at| nodes.get_mut(*at)) {
                // It holds another lock. A task waits for one at a time.
                Some(node) if node.next.is_none() => {
                    node.name = task(index, &wait.comm, wait.pid, wait.seconds);
                    node.note.clone_from(&note);
                    node.next = holder;
                }
                Some(_) => {}
                None => others.push(wait),
            }
        }
        if others.len() > EACH {
            let longest = others.iter().filter_map(|wait| wait.seconds).fold(0.0, f64::max);
            let name = format!("{}, up to {}", counted(others.len() as u64, "task"), seconds(longest));
            let place = others.first().and_then(|wait| stacks.place(wait.pid));
            nodes.push(Node { name, note, next: holder, place });
        } else {
            nodes.extend(others.into_iter().map(|wait| Node {
                name: task(index, &wait.comm, wait.pid, wait.seconds),
                note: note.clone(),
                next: holder,
                place: stacks.place(wait.pid),
            }));
        }
    }
    nodes
}

/// The locks that are drawn: those of deadlocks, then those with the longest waits.
fn drawn(report: &TriageReport) -> Vec<&Held> {
    let held = &report.locks.held;
    let in_cycle: std::collections::HashSet<u32> =
        report.locks.cycles.iter().take(DRAWN).flatten().copied().collect();
    let of_cycle = |held: &&Held| held.owner.as_ref().is_some_and(|(_, pid)| in_cycle.contains(pid));
    held.iter().filter(of_cycle).chain(held.iter().filter(|held| !of_cycle(held))).take(DRAWN).collect()
}

/// A task with its state and how long it waits.
fn task(index: &Index<'_>, name: &str, pid: u32, waits: Option<f64>) -> String {
    let state = index.task(pid).map_or_else(String::new, |task| format!("  {}", task.state));
    let waits = waits.map_or_else(String::new, |passed| format!(" {}", seconds(passed)));
    one_line(&format!("{name}/{pid}{state}{waits}"))
}

fn table(held: &[Held], index: &Index<'_>, stacks: &Stacks<'_>) -> Markup {
    let rest = held.get(ROWS..).unwrap_or_default();
    html! {
        div.scroll {
            table.locks {
                thead { tr { th { "lock" } th { "address" } th { "holder" } th { "where the holder is" } th { "waiters" } th { "longest wait" } th { "PIDs" } } }
                tbody {
                    @for held in held.iter().take(ROWS) { (row(held, index, stacks)) }
                    @if !rest.is_empty() {
                        tr {
                            td { (count(rest.len() as u64)) " more locks" } td {} td {} td {}
                            td { (waits_of(rest.iter().map(|held| held.waiters.len()).sum())) }
                            td { (seconds(rest.iter().map(Held::longest).fold(0.0, f64::max))) }
                            td { (some_pids(rest.iter().flat_map(|held| &held.waiters).map(|wait| wait.pid), PIDS)) }
                        }
                    }
                }
            }
        }
    }
}

fn row(held: &Held, index: &Index<'_>, stacks: &Stacks<'_>) -> Markup {
    html! {
        tr {
            td { (held.kind) " " (at_most(&held.name, NAME)) }
            td { @if let Some(lock) = held.lock { (lock) } @else { "unknown" } }
            td {
                @match (&held.owner, held.readers) {
                    (Some((name, pid)), _) => { (held.held_by()) " " (index.link(name, *pid)) },
                    (None, Some(readers)) => { "held by " (counted(readers, "reader")) },
                    (None, None) => "unknown",
                }
            }
            td { @if let Some((_, pid)) = &held.owner { (stacks.link(*pid, 3, NAME)) } }
            td { (waits_of(held.waiters.len())) }
            td { (seconds(held.longest())) }
            td {
                @match held.waiters.as_slice() {
                    [first] => (index.link(&first.comm, first.pid)),
                    _ => (some_pids(held.waiters.iter().map(|wait| wait.pid), PIDS)),
                }
            }
        }
    }
}
