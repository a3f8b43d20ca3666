//! The report as a web page: what a person reads, and links from each finding to what it rests on.
//!
//! Each section has a place (`id`) on the page. Text of the dump is made [`printable`](pagehaul_present::printable), and the template
//! escapes it. What has no bound in a dump (tasks, stacks, waiters, timers, lines of the log) is aggregated, so that a page of 100,000
//! tasks has less than 2 MB.

mod cpus;
mod lists;
mod log;
mod memory;
mod rest;
mod stacks;
mod tasks;
mod top;
mod verdict;
mod waits;
mod words;

use maud::html;
use pagehaul_inspect::{LastLine, OnRequest, TaskStack, TriageReport};
use pagehaul_present::explore;
use pagehaul_present::html::{page as build, part};

use self::stacks::Stacks;
use self::words::Index;
use super::Section;
use crate::memory_use::{self, MemoryUse};

const STYLE: &str = include_str!("page.css");

/// What a page shows.
pub struct Page<'a> {
    /// The report.
    pub report: &'a TriageReport,
    /// Sections that are read on request: all of them.
    pub on_request: &'a OnRequest,
    /// The stacks of all tasks, or of some.
    pub stacks: &'a [TaskStack],
    /// The end of the log.
    pub log: &'a [LastLine],
    /// What memory is used for. By default what the report knows.
    pub memory: Option<MemoryUse>,
}

/// Sections that others lead to: their places and titles.
const VERDICT: (&str, &str) = ("verdict", "Verdict");
const WHAT: (&str, &str) = ("what", "What happened");
const CPUS: (&str, &str) = ("cpus", "CPUs");
const WAITS: (&str, &str) = ("waits", "Who waits for whom");
const TASKS: (&str, &str) = ("tasks", "Tasks");
const STACKS: (&str, &str) = ("stacks", "Stacks");
const MEMORY: (&str, &str) = ("memory", "Memory");
const IO: (&str, &str) = ("io", "Block requests");
const NET: (&str, &str) = ("net", "Network");
const TIMERS: (&str, &str) = ("timers", "Timers");
/// Sections that are text.
const TEXTS: [(Section, &str); 10] = [
    (Section::Workqueues, "Workqueues"),
    (Section::Interrupts, "Interrupts"),
    (Section::Rcu, "RCU"),
    (Section::Signals, "Signals"),
    (Section::Counts, "Counts of tasks"),
    (Section::Pressure, "Pressure"),
    (Section::Sockets, "Sockets"),
    (Section::Mounts, "Mounts"),
    (Section::Swap, "Swap devices"),
    (Section::Ipc, "IPC of System V"),
];
const MODULES: (&str, &str) = ("modules", "Modules");
const LOG: (&str, &str) = ("log", "Log");
const MISSING: (&str, &str) = ("missing", "Missing");

/// Builds the web page of the dump `name`.
pub fn page(page: &Page<'_>, name: &str) -> String {
    let report = page.report;
    let index = Index::new(report);
    let stacks = Stacks::new(page, &index);
    let of_report = MemoryUse::of_report(report);
    let memory = page.memory.as_ref().unwrap_or(&of_report);
    let mut sections = vec![
        (VERDICT, verdict::verdict(report)),
        (WHAT, rest::what(report)),
        (CPUS, cpus::cpus(report, &stacks)),
        (WAITS, waits::waits(report, &index, &stacks)),
        (TASKS, tasks::tasks(report, &index, &stacks)),
        (STACKS, stacks.section(&index)),
        (MEMORY, memory::memory(report, memory)),
        (IO, rest::io(report)),
        (NET, rest::net(report)),
        (TIMERS, page.on_request.timers.as_ref().and_then(rest::timers)),
    ];
    let texts = TEXTS.into_iter();
    sections.extend(
        texts.map(|(section, title)| ((section.name(), title), rest::text(report, page.on_request, section))),
    );
    sections.extend([
        (MODULES, rest::modules(report)),
        (LOG, log::log(report, page.log)),
        (MISSING, rest::missing(report, page.on_request)),
    ]);
    let sections: Vec<_> =
        sections.into_iter().filter_map(|(place, section)| Some((place, section?))).collect();
    let body = html! {
        (top::top(report, name))
        nav aria-label="Sections" { @for ((id, title), _) in &sections { a href=(format!("#{id}")) { (title) } } }
        @for ((id, title), (about, body)) in &sections { (part(id, title, about, body)) }
    };
    build(
        &format!("Triage of {name}"),
        &[explore::STYLE, memory_use::STYLE, STYLE].concat(),
        explore::SCRIPT,
        &body,
    )
}
