//! The one screen, and sections.

use pagehaul_inspect::{OnRequest, TriageReport};

use super::lines::{header, missing};
use super::{
    Section, counts, cpus, interrupts, io, ipc, log, memory, modules, mounts, net, pressure, rcu, signals,
    sockets, swap, tasks, timers, verdict, waits, what, workqueues,
};

/// The one screen.
pub(super) fn summary(report: &TriageReport, name: &str) -> String {
    let mut out = String::new();
    header(report, name, &mut out);
    what::what(report, &mut out, false);
    verdict::verdict(report, &mut out);
    cpus::cpus(report, &mut out, false);
    tasks::tasks_section(report, &mut out, false);
    waits::waits(report, &mut out, false);
    memory::memory(report, &mut out, false);
    io::io(report, &mut out, false);
    net::net(report, &mut out, false);
    modules::modules(report, &mut out, false);
    // The report of a crash is in what happened.
    if !report.symbols_known && report.crash.is_none() {
        log::log(report, &mut out);
    }
    missing(report, &OnRequest::default(), &mut out);
    out
}

/// Some sections, in full, and what is missing.
pub(super) fn sections(report: &TriageReport, on_request: &OnRequest, sections: &[Section]) -> String {
    let mut out = sections_only(report, on_request, sections);
    missing(report, on_request, &mut out);
    out
}

/// Some sections, in full.
pub(super) fn sections_only(report: &TriageReport, on_request: &OnRequest, sections: &[Section]) -> String {
    let mut out = String::new();
    for section in sections {
        match section {
            Section::What => what::what(report, &mut out, true),
            Section::Verdict => verdict::verdict(report, &mut out),
            Section::Cpus => cpus::cpus(report, &mut out, true),
            Section::Tasks => tasks::tasks_section(report, &mut out, true),
            Section::Waits => waits::waits(report, &mut out, true),
            Section::Memory => memory::memory(report, &mut out, true),
            Section::Io => io::io(report, &mut out, true),
            Section::Net => net::net(report, &mut out, true),
            Section::Workqueues => put_one(&on_request.workqueues, workqueues::workqueues, &mut out),
            Section::Interrupts => put_one(&on_request.interrupts, interrupts::interrupts, &mut out),
            Section::Rcu => put_one(&on_request.rcu, rcu::rcu, &mut out),
            Section::Timers => put_one(&on_request.timers, timers::timers, &mut out),
            Section::Signals => put_one(&on_request.signals, signals::signals, &mut out),
            Section::Counts => put_one(&on_request.counts, counts::counts, &mut out),
            Section::Pressure => put_one(&on_request.pressure, pressure::pressure, &mut out),
            Section::Sockets => put_one(&on_request.sockets, sockets::sockets, &mut out),
            Section::Mounts => put_one(&on_request.mounts, mounts::mounts, &mut out),
            Section::Swap => {
                if let Some(found) = &on_request.swap {
                    swap::swap(found, report.system.page_size, &mut out);
                }
            }
            Section::Ipc => put_one(&on_request.ipc, ipc::ipc, &mut out),
            Section::Modules => modules::modules(report, &mut out, true),
            Section::Log => log::log(report, &mut out),
        }
    }
    out
}

/// Puts a section that was read on request.
fn put_one<T>(found: &Option<T>, put: impl FnOnce(&T, &mut String), out: &mut String) {
    if let Some(found) = found {
        put(found, out);
    }
}
