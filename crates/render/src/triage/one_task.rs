//! One task.

use pagehaul_inspect::{Detail, Task, TaskStack, TriageReport};
use pagehaul_present::number::{bytes, counted};

use super::lines::{missing_lines, more};
use super::stack::{put_registers, stack_lines};
use super::tasks::{no_stack, task_line};
use super::waits::waits_of;

/// Memory mappings of a process.
const MAPPINGS: usize = 32;

/// One task.
pub(super) fn one_task(report: &TriageReport, task: &Task, detail: &Detail, stack: &TaskStack) -> String {
    let mut out = String::new();
    task_line(task, &mut out);
    let flags = detail.flags.iter().map(|flag| format!(", {flag}")).collect::<String>();
    put!(out, "  task_struct {}, mm_struct {}, flags {}{flags}", task.address, task.mm, task.flags);
    if let Some(cgroup) = &detail.cgroup {
        put!(out, "  cgroup {cgroup}");
    }
    let mut parents = Vec::new();
    let mut at = task;
    while let Some(parent) = report.tasks.by_pid(at.ppid).filter(|_| parents.len() < 32 && at.ppid != 0) {
        parents.push(parent.label());
        at = parent;
    }
    if !parents.is_empty() {
        put!(out, "  parents {}", parents.join(" < "));
    }
    for held in &report.locks.held {
        if held.waiters.iter().any(|wait| wait.pid == task.pid) {
            let owner =
                held.owner.as_ref().map_or_else(|| "unknown".into(), |(name, pid)| format!("{name}/{pid}"));
            put!(out, "  waits for {} {}, held by {owner}", held.kind, held.name);
        }
        if held.owner.as_ref().is_some_and(|(_, pid)| *pid == task.pid) {
            put!(out, "  holds {} {}, {}", held.kind, held.name, waits_of(held.waiters.len()));
        }
    }
    match &stack.stack {
        Some(stack) => stack_lines(stack, &mut out),
        None => put!(out, "  {}", no_stack(stack)),
    }
    for (title, registers) in [
        ("registers in the kernel", &detail.kernel_registers),
        ("registers at the entry from user mode", &detail.registers),
    ] {
        if !registers.is_empty() {
            put!(out, "  {title}");
        }
        put_registers(registers, &mut out);
    }
    if let Some(open) = detail.open_files {
        match (open, detail.missing.is_some()) {
            (0, true) => put!(out, "  open files: not known"),
            (open, true) => put!(out, "  at least {}", counted(open, "open file")),
            (open, false) => put!(out, "  {}", counted(open, "open file")),
        }
        for file in &detail.files {
            put!(out, "    {:>4} {}", file.descriptor, file.name);
        }
        more(open as usize, detail.files.len(), "open files", &mut out);
    }
    mappings(detail, &mut out);
    let missing: Vec<&str> =
        report.missing_of_task().chain(detail.missing.iter().map(String::as_str)).collect();
    missing_lines(&missing, &mut out);
    out
}

fn mappings(detail: &Detail, out: &mut String) {
    if let Some(mappings) = detail.mappings {
        put!(out, "  {}", counted(mappings, "memory mapping"));
    }
    for vma in detail.vmas.iter().take(MAPPINGS) {
        let (start, end) = (vma.start.0, vma.end.0);
        let size = bytes(end.saturating_sub(start));
        let line = format!("    {start:012x}-{end:012x} {} {size:>10} {}", vma.flags, vma.name);
        put!(out, "{}", line.trim_end());
    }
    more(detail.vmas.len(), MAPPINGS, "memory mappings: --json lists all", out);
    if let Some(why) = &detail.vmas_broken {
        put!(out, "    (ends here: {why})");
    }
}
