//! The report as a web page.

use maud::{Markup, html};
use pagehaul_inspect::{OnRequest, Part, System, TriageReport};
use pagehaul_machine::PageCount;
use pagehaul_present::html::{facts, page as build, section, tiles};
use pagehaul_present::number::{bytes, count};
use pagehaul_present::time::{seconds, utc};
use pagehaul_present::{Tone, printable};

use super::lines::{at_least, cpu_count, load};
use super::next::command;
use super::tasks::task_count;
use super::verdict::nothing_found;
use super::{Section, text};

const STYLE: &str = "pre { overflow-x: auto; margin: 0; font: 12.5px/1.45 ui-monospace, Menlo, \"DejaVu Sans Mono\", monospace; } \
                     ol { margin: 0; padding-left: 22px; } li { margin: 0 0 10px; } li b { font-size: 15px; }";

/// The sections below the verdict, with their titles. Their texts begin with a heading or a table.
const SECTIONS: [(Section, &str); 18] = [
    (Section::What, "What happened"),
    (Section::Cpus, "CPUs"),
    (Section::Tasks, "Tasks"),
    (Section::Waits, "Who waits for whom"),
    (Section::Memory, "Memory"),
    (Section::Io, "Block requests"),
    (Section::Net, "Network"),
    (Section::Workqueues, "Workqueues"),
    (Section::Interrupts, "Interrupts"),
    (Section::Rcu, "RCU"),
    (Section::Timers, "Timers"),
    (Section::Pressure, "Pressure"),
    (Section::Sockets, "Sockets"),
    (Section::Mounts, "Mounts"),
    (Section::Swap, "Swap devices"),
    (Section::Ipc, "IPC of System V"),
    (Section::Modules, "Modules"),
    (Section::Log, "The log's last words"),
];

/// Builds the web page of the dump `name`.
pub fn page(report: &TriageReport, on_request: &OnRequest, name: &str) -> String {
    let system = &report.system;
    let about = about(system, name);
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
    // What is not known is left out.
    if !report.tasks.all.is_empty() {
        figures.extend([
            (Tone::Plain, task_count(report), "tasks".into()),
            (bad_if(blocked > 0), count(blocked), "blocked (D)".into()),
            (
                bad_if(!report.locks.cycles.is_empty()),
                count(report.locks.cycles.len() as u64),
                "deadlocks".into(),
            ),
        ]);
    }
    if !report.memory.zones.is_empty() {
        figures.push((Tone::Plain, size(free), format!("free of {}", size(managed))));
    }
    if !report.gaps.lacks(Part::Requests) {
        let requests = count(report.requests.len() as u64);
        let requests = format!("{}{requests}", at_least(report, Part::Requests));
        figures.push((Tone::Plain, requests, "block requests in flight".into()));
    }
    figures.extend(system.uptime.map(|uptime| (Tone::Plain, seconds(uptime), "uptime".into())));
    let title = match report.verdict.first() {
        Some(finding) => &finding.text,
        None if report.gaps.is_empty() => "Nothing suspicious found",
        None => "Nothing suspicious found in what could be read",
    };
    let figures = figures.into_iter().map(|(tone, value, name)| (tone, printable(&value).into_owned(), name));
    let body = html! {
        h1 { (printable(title)) }
        (facts(about.iter().map(|fact| printable(fact).into_owned())))
        (tiles(figures))
        (section("Verdict", "The weightiest findings, each with its evidence and what to look at next.", verdict(report)))
        @for (which, title) in SECTIONS {
            (section(title, "", pre(&text::sections_only(report, on_request, &[which]))))
        }
        @if !report.missing.is_empty() {
            (section("Missing", "What could not be read, and why.", pre(&missing(report))))
        }
    };
    build(&format!("Triage of {name}"), STYLE, "", &body)
}

/// What the first lines of the text say.
fn about(system: &System, name: &str) -> Vec<String> {
    let mut about = vec![name.to_owned(), format!("kernel {}", system.release)];
    about.extend(cpu_count(system));
    about.extend(system.hostname.iter().filter(|host| *host != "(none)").map(|host| format!("host {host}")));
    about.extend(system.crash_time.map(|time| format!("crashed {}", utc(time))));
    about.extend(load(system));
    about.extend(system.taints.iter().map(|taint| format!("taint {}: {}", taint.letter, taint.meaning)));
    about
}

fn verdict(report: &TriageReport) -> Markup {
    let findings = &report.verdict;
    html! {
        @if findings.is_empty() && report.gaps.is_empty() { p { "Nothing suspicious found." } }
        @if findings.is_empty() && !report.gaps.is_empty() { p { (nothing_found(report)) } }
        ol {
            @for finding in findings {
                li {
                    b { (printable(&finding.text)) }
                    @for evidence in &finding.evidence { pre { (printable(&evidence.0)) } }
                    div { "next: " code { (printable(&command(finding.next))) } }
                }
            }
        }
    }
}

fn missing(report: &TriageReport) -> String {
    report.missing.iter().map(|why| printable(why)).collect::<Vec<_>>().join("\n")
}

/// Text that has its lines, each escaped.
fn pre(text: &str) -> Markup {
    html! { pre { (text.trim_matches('\n')) } }
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
            about(&system, "vmcore"),
            ["vmcore", "kernel 6.12.0", "2 CPUs", "host db1", "load 1.50 0.25 4.00"]
        );
    }
}
