//! Tasks by state, and the list of all.

use pagehaul_inspect::{Part, Task, TaskStack, TriageReport};
use pagehaul_present::Table;
use pagehaul_present::number::count;
use pagehaul_present::time::seconds;

use super::lines::{FEW, INNERMOST, at_least, more};
use super::stack::stack_lines;

/// The number of tasks, or the least possible one.
pub(super) fn task_count(report: &TriageReport) -> String {
    format!("{}{}", at_least(report, Part::Tasks), count(report.tasks.all.len() as u64))
}

pub(super) fn tasks_section(report: &TriageReport, out: &mut String, full: bool) {
    let states: Vec<String> =
        report.states.iter().map(|(letter, number)| format!("{} {letter}", count(*number as u64))).collect();
    if report.tasks.all.is_empty() {
        put!(out, "\nTasks: not known");
        return;
    }
    put!(out, "\nTasks: {} ({})", task_count(report), states.join(", "));
    let shown = if full { report.blocked.len() } else { FEW };
    for group in report.blocked.iter().take(shown) {
        let others = match group.pids.len() {
            1 => String::new(),
            number => format!(" and {} more", number - 1),
        };
        let place = if full { String::new() } else { group.stack.innermost(INNERMOST) };
        put!(out, "  D {}{others}, up to {}: {place}", group.first, seconds(group.longest_seconds));
        if full {
            let pids: Vec<String> = group.pids.iter().take(50).map(ToString::to_string).collect();
            put!(out, "    PIDs {}", pids.join(" "));
            stack_lines(&group.stack, out);
        }
    }
    more(report.blocked.len(), shown, "groups of blocked tasks", out);
    // On the one screen, those that block others.
    let in_state_d = |pid| report.tasks.by_pid(pid).is_some_and(|task| task.state == 'D');
    let workers = report.workers.iter().filter(|worker| full || in_state_d(worker.pid));
    for worker in workers.take(if full { usize::MAX } else { FEW }) {
        let what = worker.describe();
        put!(out, "  worker {}/{} runs {what}, {} pending", worker.comm, worker.pid, count(worker.pending));
    }
}

/// All tasks, with their stacks if there are any.
pub(super) fn tasks(report: &TriageReport, stacks: &[TaskStack]) -> String {
    if stacks.is_empty() {
        let mut table = Table::new(["pid", "tgid", "ppid", "state", "cpu", "last run", "comm"]).left([3, 6]);
        for task in &report.tasks.all {
            let name = if task.kernel_thread { format!("[{}]", task.comm) } else { task.comm.clone() };
            table.row([
                task.pid.to_string(),
                task.tgid.to_string(),
                task.ppid.to_string(),
                task.state.to_string(),
                task.cpu.to_string(),
                task.seconds_since_run.map_or_else(String::new, seconds),
                name,
            ]);
        }
        return table.to_string();
    }
    let mut out = String::new();
    for (task, stack) in report.tasks.all.iter().zip(stacks) {
        task_line(task, &mut out);
        match &stack.stack {
            Some(stack) => stack_lines(stack, &mut out),
            None => put!(out, "    {}", no_stack(stack)),
        }
        out.push('\n');
    }
    out
}

/// Why a task has no stack.
pub(super) fn no_stack(of: &TaskStack) -> String {
    of.missing.as_ref().map_or_else(|| "no stack: user mode".to_owned(), |why| format!("no stack: {why}"))
}

pub(super) fn task_line(task: &Task, out: &mut String) {
    let waited = task
        .seconds_since_run
        .map_or_else(String::new, |waited| format!(", last run {} ago", seconds(waited)));
    put!(out, "{} state {}, CPU {}{waited}", task.label(), task.state, task.cpu);
}
