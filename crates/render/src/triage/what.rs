//! What happened.

use pagehaul_facts::Kind;
use pagehaul_inspect::TriageReport;

use super::cpus::task_of;
use super::stack::put_frames;

pub(super) fn what(report: &TriageReport, out: &mut String, full: bool) {
    let death = &report.death;
    if report.running {
        put!(out, "\nThe machine runs: this is the moment at which its memory was read");
    } else {
        put!(out, "\nWhat happened: {}", death.describe());
    }
    match &death.unknown {
        _ if death.kind.is_some() || report.running => {}
        Some(why) => put!(out, "  {why}"),
        None => {
            put!(
                out,
                "  the log has no panic: the memory of a running machine, or of one that stopped silently"
            );
        }
    }
    for line in [&death.cause, &death.line].into_iter().flatten() {
        put!(out, "  [{:.6}] {}", line.seconds, line.text);
    }
    if let Some(cpu) = report.cpus.iter().find(|cpu| cpu.crashed) {
        let task = task_of(report, cpu);
        // The task that was blocked has its stack below, not the watchdog that noticed it.
        match &death.task {
            Some((name, pid)) if death.kind == Some(Kind::HungTask) => {
                put!(out, "  noticed by {task} on CPU {}; stack of {name}/{pid}:", cpu.number);
            }
            _ => put!(out, "  CPU {}, task {task}", cpu.number),
        }
    }
    if let Some(crash) = &report.crash {
        put!(out, "  the log's report of it:");
        for line in crash.text.lines() {
            put!(out, "    {line}");
        }
    }
    put_frames(&report.cause, full, if full { usize::MAX } else { 8 }, &mut *out);
    if let Some(signature) = &report.signature {
        put!(out, "  signature {} ({})", signature.sig, signature.text());
    }
    if full {
        if let Some(line) = &report.system.command_line {
            put!(out, "  command line {line}");
        }
        for line in &death.earlier {
            put!(out, "  before: [{:.6}] {}", line.seconds, line.text);
        }
    }
}
