//! CPUs, a lane each: what runs, since when, and since when it took no tick.

use maud::{Markup, html};
use pagehaul_facts::Kind;
use pagehaul_inspect::{Cpu, Part, TriageReport, chain};
use pagehaul_present::time::seconds;

use super::stacks::Stacks;
use super::words::{at_most, one_line, ranges};
use crate::triage::cpus::{facts, task_of};
use crate::triage::lines::INNERMOST;

/// CPUs that have a lane each. More of them are grouped if they do the same.
const MOST: usize = 64;
/// Lanes that are drawn.
const LANES: usize = 512;
/// Letters of the functions.
const FUNCTIONS: usize = 100;
/// Seconds of the shortest scale.
const LEAST: f64 = 1.0;

pub(super) fn cpus(report: &TriageReport, stacks: &Stacks<'_>) -> Option<(String, Markup)> {
    if report.gaps.lacks(Part::Cpus) || report.cpus.is_empty() {
        return Some((String::new(), html! { p { "not known" } }));
    }
    let scale = report.cpus.iter().flat_map(passed).flatten().fold(LEAST, f64::max);
    let lanes = lanes(report, stacks);
    let rest: Vec<u64> = lanes.iter().skip(LANES).flat_map(|lane| lane.numbers.clone()).collect();
    let body = html! {
        div.scroll {
            table.cpus {
                thead { tr { th { "CPU" } th { "task" } th.time { span { (seconds(scale)) " before the crash" } span { "crash" } } th { "" } th { "stack" } } }
                tbody { @for lane in lanes.iter().take(LANES) { (row(report, lane, scale, stacks)) } }
            }
        }
        @if !rest.is_empty() { p { "CPUs " (ranges(rest)) ": more lanes than are drawn" } }
    };
    let about = "Light: how long the task has run on it. Red: how long it has taken no tick. Idle CPUs stop their ticks.";
    Some((about.into(), body))
}

/// CPUs that do the same.
struct Lane<'a> {
    cpu: &'a Cpu,
    numbers: Vec<u64>,
}

fn lanes<'a>(report: &'a TriageReport, stacks: &Stacks<'_>) -> Vec<Lane<'a>> {
    let mut lanes: Vec<Lane<'a>> = Vec::new();
    let mut idle: std::collections::HashMap<(String, Option<String>), usize> =
        std::collections::HashMap::new();
    for cpu in &report.cpus {
        let groups = report.cpus.len() > MOST && cpu.idle && !cpu.crashed;
        if groups {
            let key = (facts(report, cpu).join(", "), stacks.place_of_cpu(cpu.number));
            let at = *idle.entry(key).or_insert(lanes.len());
            if let Some(lane) = lanes.get_mut(at) {
                lane.numbers.push(cpu.number);
                continue;
            }
        }
        lanes.push(Lane { cpu, numbers: vec![cpu.number] });
    }
    lanes
}

/// Seconds since the task got the CPU, and without a tick.
fn passed(cpu: &Cpu) -> [Option<f64>; 2] {
    let runs = cpu.task.as_ref().and_then(|task| task.seconds_since_run);
    let runs = runs.filter(|_| !cpu.idle);
    [runs, cpu.seconds_without_tick.filter(|_| !cpu.crashed)]
        .map(|passed| passed.filter(|seconds| seconds.is_finite() && *seconds >= 0.0))
}

fn row(report: &TriageReport, lane: &Lane<'_>, scale: f64, stacks: &Stacks<'_>) -> Markup {
    let cpu = lane.cpu;
    let [runs, without_tick] = passed(cpu);
    let width = |passed: f64| format!("width:{:.2}%", 100.0 * (passed / scale).min(1.0));
    let title = [
        runs.map(|passed| format!("runs for {}", seconds(passed))),
        without_tick.map(|passed| format!("no tick for {}", seconds(passed))),
    ];
    let title = title.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let label = task_of(report, cpu);
    html! {
        tr.bad[cpu.crashed] {
            td { (ranges(lane.numbers.iter().copied())) }
            td {
                @match cpu.task.as_ref().filter(|task| task.pid != 0 && report.tasks.all.len() <= super::tasks::MOST_ROWS) {
                    Some(task) => a href=(format!("#pid-{}", task.pid)) { (one_line(&label)) },
                    None => (one_line(&label)),
                }
            }
            td {
                div.lane.idle[cpu.idle] title=(title) {
                    @if let Some(runs) = runs { i.runs style=(width(runs)) {} }
                    @if let Some(without_tick) = without_tick { i.tick style=(width(without_tick)) {} }
                }
            }
            td { (facts(report, cpu).join(", ")) }
            td { (place(report, cpu, stacks)) }
        }
    }
}

/// Where the CPU is, which leads to its stack.
fn place(report: &TriageReport, cpu: &Cpu, stacks: &Stacks<'_>) -> Markup {
    let text = match &cpu.stack {
        Some(_) if cpu.idle && !cpu.crashed => "idle".into(),
        Some(_) if cpu.crashed && report.death.kind != Some(Kind::HungTask) && !report.cause.is_empty() => {
            chain(&report.cause, INNERMOST)
        }
        Some(stack) => stack.innermost(INNERMOST),
        None => String::new(),
    };
    let text = at_most(&text, FUNCTIONS);
    html! {
        @match stacks.place_of_cpu(cpu.number) {
            Some(place) if !text.is_empty() => a href=(format!("#{place}")) { (text) },
            _ => (text),
        }
    }
}
