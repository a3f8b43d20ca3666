//! What comes first: the weightiest finding, the machine, and the figures.

use maud::{Markup, html};
use pagehaul_inspect::{Gaps, Part, System, TriageReport};
use pagehaul_machine::PageCount;
use pagehaul_present::Tone;
use pagehaul_present::html::{facts, tiles};
use pagehaul_present::number::{bytes, count};
use pagehaul_present::time::{seconds, utc};

use super::words::one_line;
use crate::triage::lines::{at_least, cpu_count, load, number_of};
use crate::triage::tasks::task_count;

pub(super) fn top(report: &TriageReport, name: &str) -> Markup {
    let title = match report.verdict.first() {
        Some(finding) => &finding.text,
        None if report.gaps.is_empty() => "Nothing suspicious found",
        None => "Nothing suspicious found in what could be read",
    };
    let figures = figures(report).into_iter().map(|(tone, value, name)| (tone, one_line(&value), name));
    html! {
        h1 { (one_line(title)) }
        (facts(about(&report.system, &report.gaps, name).iter().map(|fact| one_line(fact))))
        (tiles(figures))
    }
}

/// The figures. What is not known is left out.
fn figures(report: &TriageReport) -> Vec<(Tone, String, String)> {
    let system = &report.system;
    let (managed, free) = report.memory.total();
    let size = |pages: PageCount| bytes(pages.bytes(system.page_size));
    let in_state = |letter| {
        let found = report.states.iter().find(|(state, _)| *state == letter);
        found.map_or(0, |(_, tasks)| *tasks as u64)
    };
    let bad_if = |bad: bool| if bad { Tone::Bad } else { Tone::Plain };
    let blocked = in_state('D');
    let mut figures = match report.running {
        true => vec![(Tone::Plain, "running".to_owned(), "machine".into())],
        false => {
            vec![(
                bad_if(report.death.kind.is_some()),
                report.death.describe().to_owned(),
                "kind of crash".into(),
            )]
        }
    };
    if !report.tasks.all.is_empty() {
        figures.push((Tone::Plain, task_count(report), "tasks".into()));
        if blocked > 0 || report.gaps.is_whole(Part::Tasks) {
            let found = format!("{}{}", at_least(report, Part::Tasks), count(blocked));
            figures.push((bad_if(blocked > 0), found, "blocked (D)".into()));
        }
        let cycles = report.locks.cycles.len() as u64;
        // Without all stacks, none can be denied.
        if cycles > 0 || report.gaps.is_whole(Part::Locks) {
            let found = format!("{}{}", at_least(report, Part::Locks), count(cycles));
            figures.push((bad_if(cycles > 0), found, "deadlocks".into()));
        }
    }
    if !report.memory.zones.is_empty() && (free > PageCount::ZERO || report.gaps.is_whole(Part::Memory)) {
        figures.push((Tone::Plain, size(free), format!("free of {}", size(managed))));
    }
    if !report.requests.is_empty() || report.gaps.is_whole(Part::Requests) {
        let requests = number_of(report, Part::Requests, report.requests.len() as u64);
        figures.push((Tone::Plain, requests, "block requests in flight".into()));
    }
    figures.extend(system.uptime.map(|uptime| (Tone::Plain, seconds(uptime), "uptime".into())));
    figures
}

/// What the first lines of the text say.
fn about(system: &System, gaps: &Gaps, name: &str) -> Vec<String> {
    let mut about = vec![name.to_owned(), format!("kernel {}", system.release)];
    about.extend(cpu_count(system, gaps));
    about.extend(system.hostname.iter().filter(|host| *host != "(none)").map(|host| format!("host {host}")));
    about.extend(system.crash_time.map(|time| format!("crashed {}", utc(time))));
    about.extend(load(system));
    about.extend(system.taints.iter().map(|taint| format!("taint {}: {}", taint.letter, taint.meaning)));
    about
}

#[cfg(test)]
mod tests {
    use pagehaul_machine::PageSize;

    use super::*;

    #[test]
    fn the_page_says_of_the_machine_what_the_text_says() {
        let system = System {
            release: "6.12.0".into(),
            version: None,
            hostname: Some("db1".into()),
            crash_time: None,
            uptime: None,
            load: Some([1.5, 0.25, 4.0]),
            page_size: PageSize::KIB_4,
            cpus: Some(2),
            command_line: None,
            taints: Vec::new(),
        };
        assert_eq!(
            about(&system, &Gaps::default(), "vmcore"),
            ["vmcore", "kernel 6.12.0", "2 CPUs", "host db1", "load 1.50 0.25 4.00"]
        );
    }
}
