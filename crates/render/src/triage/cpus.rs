//! CPUs.

use pagehaul_facts::Kind;
use pagehaul_inspect::{Cpu, Part, TriageReport, chain};
use pagehaul_present::time::seconds;

use super::lines::INNERMOST;
use super::stack::{put_registers, stack_lines};

pub(super) fn cpus(report: &TriageReport, out: &mut String, full: bool) {
    if report.gaps.lacks(Part::Cpus) {
        put!(out, "\nCPUs: not known");
        return;
    }
    put!(out, "\nCPUs");
    let blames_cpu = report.death.kind != Some(Kind::HungTask) && !report.cause.is_empty();
    for cpu in &report.cpus {
        let task = task_of(report, cpu);
        let facts = facts(report, cpu);
        let place = match &cpu.stack {
            Some(_) if cpu.idle && (report.symbols_known || !cpu.crashed) => "idle".into(),
            // The cause says more than the functions that report it.
            Some(_) if cpu.crashed && blames_cpu && !full => chain(&report.cause, INNERMOST),
            Some(stack) if !full => stack.innermost(INNERMOST),
            _ => String::new(),
        };
        put!(out, "  {:<4} {task:<22} {:<28} {place}", cpu.number, facts.join(", "));
        if let Some(stack) = cpu.stack.as_ref().filter(|_| full) {
            stack_lines(stack, out);
        }
        // Else they are of the frames above, which say more.
        if full && !report.symbols_known {
            put_registers(&cpu.registers, out);
        }
    }
}

/// The task that a CPU ran. The log may name one of which only the PID is known.
pub(super) fn task_of(report: &TriageReport, cpu: &Cpu) -> String {
    let named = report.death.task.as_ref().filter(|(_, pid)| *pid != 0 && Some(*pid) == cpu.pid);
    match (&cpu.task, named, cpu.pid) {
        (Some(task), ..) => task.label(),
        (None, Some((name, pid)), _) => format!("{name}/{pid}"),
        (None, None, Some(0)) => "idle task".into(),
        (None, None, Some(pid)) => format!("PID {pid}"),
        (None, None, None) => "unknown".into(),
    }
}

/// What is to be known of a CPU.
pub(super) fn facts(report: &TriageReport, cpu: &Cpu) -> Vec<String> {
    let mut facts = Vec::new();
    if cpu.crashed {
        facts.push("crashed".to_owned());
    }
    if !cpu.saved_registers {
        facts.push(without_registers(report).to_owned());
    }
    if cpu.user_mode {
        facts.push("user mode".into());
    }
    if cpu.interrupts_on == Some(false) && !cpu.user_mode {
        facts.push("interrupts off".into());
    }
    let without_tick = cpu.seconds_without_tick.filter(|seconds| *seconds >= 1.0 && !cpu.crashed);
    facts.extend(without_tick.map(|passed| format!("no tick for {}", seconds(passed))));
    facts.extend(cpu.runnable.map(|runnable| format!("{runnable} runnable")));
    facts
}

/// Why a CPU has no registers.
fn without_registers(report: &TriageReport) -> &'static str {
    match (report.running, report.cpus.iter().any(|cpu| cpu.saved_registers)) {
        (true, _) => "running",
        (false, true) if !report.symbols_known => "no registers in its note",
        (false, true) if !report.gaps.is_whole(Part::Cpus) => "no registers that could be read",
        (false, true) => "no registers: it did not answer",
        (false, false) => "no registers in the dump",
    }
}
