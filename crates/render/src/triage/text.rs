//! The one screen, and sections.

use pagehaul_inspect::{Timers, TriageReport};

use super::lines::{header, missing};
use super::{Section, cpus, io, log, memory, modules, net, tasks, timers, verdict, waits, what};

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
    missing(report, &mut out);
    out
}

/// Some sections, in full, and what is missing.
pub(super) fn sections(report: &TriageReport, timers: &Timers, sections: &[Section]) -> String {
    let mut out = sections_only(report, timers, sections);
    missing(report, &mut out);
    out
}

/// Some sections, in full.
pub(super) fn sections_only(report: &TriageReport, timers: &Timers, sections: &[Section]) -> String {
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
            Section::Timers => timers::timers(timers, &mut out),
            Section::Modules => modules::modules(report, &mut out, true),
            Section::Log => log::log(report, &mut out),
        }
    }
    out
}
