//! All tasks: a row each, or groups of them if they are many.

use std::collections::BTreeMap;

use maud::{Markup, html};
use pagehaul_inspect::{Task, TriageReport};
use pagehaul_present::number::{count, counted};
use pagehaul_present::time::seconds;

use super::lists::explore;
use super::stacks::Stacks;
use super::words::{Index, at_most, one_line, pids};
use crate::triage::tasks::task_count;

/// Tasks that have a row each.
pub(super) const MOST_ROWS: usize = 2500;
/// Groups that have a row each.
const MOST_GROUPS: usize = 1500;
/// Letters of a stack in a row.
const FUNCTIONS: usize = 64;

pub(super) fn tasks(
    report: &TriageReport,
    index: &Index<'_>,
    stacks: &Stacks<'_>,
) -> Option<(String, Markup)> {
    if report.tasks.all.is_empty() {
        return Some((String::new(), html! { p { "not known" } }));
    }
    let states: Vec<String> =
        report.states.iter().map(|(letter, number)| format!("{} {letter}", count(*number as u64))).collect();
    let mut about = format!("{} ({}).", task_count(report), states.join(", "));
    let kinds = report.states.iter().map(|(letter, _)| (letter.to_string(), state_name(*letter)));
    let kinds: Vec<(String, String)> = kinds
        .chain([("kernel".into(), "kernel threads".into()), ("user".into(), "processes".into())])
        .collect();
    let body = html! {
        (workers(report, index))
        @if index.has_rows { (explore("Name, PID or function", &kinds, rows(report, stacks))) }
        @else { (explore("Name or PID", &kinds, groups(report, stacks))) }
    };
    if !index.has_rows {
        about += " Tasks of one name and state are one row.";
    }
    Some((about, body))
}

fn state_name(letter: char) -> String {
    match letter {
        'R' => "R, running".into(),
        'S' => "S, sleeping".into(),
        'D' => "D, blocked".into(),
        'I' => "I, idle".into(),
        'Z' => "Z, zombie".into(),
        'T' => "T, stopped".into(),
        't' => "t, traced".into(),
        'X' => "X, dead".into(),
        'P' => "P, parked".into(),
        other => other.to_string(),
    }
}

fn kind(task: &Task) -> String {
    format!("{} {}", task.state, if task.kernel_thread { "kernel" } else { "user" })
}

fn name(task: &Task) -> String {
    if task.kernel_thread { format!("[{}]", task.comm) } else { task.comm.clone() }
}

fn rows(report: &TriageReport, stacks: &Stacks<'_>) -> Markup {
    html! {
        table.tasks {
            thead { tr { th { "PID" } th { "process" } th { "parent" } th { "state" } th { "name" } th { "CPU" } th { "last run" } th { "stack" } } }
            tbody {
                @for task in &report.tasks.all {
                    tr.blocked[task.state == 'D'] id=(format!("pid-{}", task.pid)) data-kind=(kind(task)) {
                        td { (task.pid) } td { (task.tgid) } td { (task.ppid) } td { (task.state) } td { (one_line(&name(task))) }
                        td { (task.cpu) } (last_run(task.seconds_since_run)) td { (stacks.link(task.pid, 3, FUNCTIONS)) }
                    }
                }
            }
        }
    }
}

fn last_run(passed: Option<f64>) -> Markup {
    html! {
        @match passed {
            Some(passed) => td data-v=(format!("{passed:.1}")) { (seconds(passed)) },
            None => td {},
        }
    }
}

/// Tasks of one name and state.
#[derive(Default)]
struct Group<'a> {
    name: String,
    tasks: Vec<&'a Task>,
    /// Number of names, if they differ.
    names: usize,
}

fn groups(report: &TriageReport, stacks: &Stacks<'_>) -> Markup {
    let (groups, others) = grouped(&report.tasks.all);
    html! {
        table.groups {
            thead { tr { th { "tasks" } th { "state" } th { "name" } th { "longest since it ran" } th { "shortest" } th { "stack of one" } th { "PIDs" } } }
            tbody { @for group in groups.iter().chain(&others) { (group_row(group, stacks)) } }
        }
    }
}

fn group_row(group: &Group<'_>, stacks: &Stacks<'_>) -> Markup {
    let Some(first) = group.tasks.first() else { return html! {} };
    let waited = || group.tasks.iter().filter_map(|task| task.seconds_since_run);
    let longest = waited().reduce(f64::max);
    let shortest = waited().reduce(f64::min);
    let of_one = group.tasks.iter().find(|task| stacks.place(task.pid).is_some()).unwrap_or(first);
    html! {
        tr.blocked[first.state == 'D'] data-kind=(kind(first)) {
            td data-v=(group.tasks.len()) { (count(group.tasks.len() as u64)) } td { (first.state) } td { (at_most(&group.name, 40)) }
            (last_run(longest)) (last_run(shortest)) td { (stacks.link(of_one.pid, 3, FUNCTIONS)) }
            td { (pids(group.tasks.iter().map(|task| task.pid))) }
        }
    }
}

/// Groups of tasks, the largest first, and those that are too many to have a row, in one group for each state.
fn grouped(tasks: &[Task]) -> (Vec<Group<'_>>, Vec<Group<'_>>) {
    let mut named: BTreeMap<(String, char, bool), Group<'_>> = BTreeMap::new();
    for task in tasks {
        let name = without_numbers(&name(task));
        let group = named.entry((name.clone(), task.state, task.kernel_thread)).or_default();
        group.name = name;
        group.tasks.push(task);
    }
    let mut groups: Vec<Group<'_>> = named.into_values().collect();
    // Those that are blocked are what a reader looks for.
    let is_blocked = |group: &Group<'_>| group.tasks.first().is_some_and(|task| task.state == 'D');
    groups.sort_by(|a, b| is_blocked(b).cmp(&is_blocked(a)).then(b.tasks.len().cmp(&a.tasks.len())));
    let rest = groups.split_off(groups.len().min(MOST_GROUPS));
    let mut others: BTreeMap<(char, bool), Group<'_>> = BTreeMap::new();
    for group in rest {
        let Some(first) = group.tasks.first() else { continue };
        let other = others.entry((first.state, first.kernel_thread)).or_default();
        other.names += 1;
        other.name = format!("{} more", counted(other.names as u64, "name"));
        other.tasks.extend(group.tasks);
    }
    (groups, others.into_values().collect())
}

/// A name whose numbers are `#`: workers and threads of a pool differ in nothing else.
fn without_numbers(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(c),
        }
    }
    out
}

/// Workers that run a work and are blocked.
fn workers(report: &TriageReport, index: &Index<'_>) -> Markup {
    let blocked = |pid| index.task(pid).is_some_and(|task| task.state == 'D');
    let workers: Vec<_> = report.workers.iter().filter(|worker| blocked(worker.pid)).collect();
    html! {
        @for worker in workers.iter().take(20) {
            p { "Worker " (index.link(&worker.comm, worker.pid)) " runs " (one_line(&worker.describe())) ", " (count(worker.pending)) " pending" }
        }
        @if workers.len() > 20 { p { "and " (count(workers.len() as u64 - 20)) " more blocked workers" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_numbers_are_one() {
        assert_eq!(without_numbers("kworker/12:3H"), "kworker/#:#H");
        assert_eq!(without_numbers("init"), "init");
        assert_eq!(without_numbers("ä9"), "ä#");
    }
}
