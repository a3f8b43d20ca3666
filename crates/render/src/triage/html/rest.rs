//! Sections that are text or tables.

use maud::{Markup, html};
use pagehaul_inspect::{OnRequest, Timers, TriageReport};
use pagehaul_present::number::count;
use pagehaul_present::{Table, printable_lines};

use super::words::{one_line, one_line_cells};
use crate::triage::lines::{known, sections_in_part};
use crate::triage::{Section, io, modules, net, text, timers, what};

/// Lines of text, and rows of tables without a bound.
const MOST: usize = 500;

/// A section, with what its text has in the first line behind the title.
type Drawn = Option<(String, Markup)>;

pub(super) fn what(report: &TriageReport) -> Drawn {
    let mut text = String::new();
    what::what(report, &mut text, true);
    let (about, lines) = split(&text);
    Some((about, pre(lines)))
}

pub(super) fn io(report: &TriageReport) -> Drawn {
    let mut text = String::new();
    io::io(report, &mut text, true);
    let (about, _) = split(&text);
    let requests = io::table(report, MOST);
    let body = html! {
        @for device in &report.suspended { p { (one_line(&io::suspended(device))) } }
        @if !requests.rows.is_empty() { (one_line_cells(requests)) }
    };
    Some((if report.suspended.is_empty() { about } else { String::new() }, body))
}

pub(super) fn net(report: &TriageReport) -> Drawn {
    let mut text = String::new();
    net::net(report, &mut text, true);
    let (about, _) = split(&text);
    let body = html! {
        @for table in net::tables(report) { @if !table.rows.is_empty() { (cut(table)) } }
    };
    Some((about, body))
}

pub(super) fn timers(timers: &Timers) -> Drawn {
    let mut text = String::new();
    timers::timers(&Timers { all: Vec::new(), ..timers.clone() }, &mut text);
    let (_, broken) = split(&text);
    let table = if timers.all.len() > MOST { timers::groups(timers) } else { timers::table(timers) };
    let body = html! {
        @if !timers.all.is_empty() { (cut(table)) }
        @if !timers.broken.is_empty() { (pre(broken)) }
    };
    Some((known(timers.all.len(), &timers.broken), body))
}

/// A section that is text, without what is more than the page holds.
pub(super) fn text(report: &TriageReport, on_request: &OnRequest, section: Section) -> Drawn {
    let text = text::sections_only(report, on_request, &[section]);
    if text.is_empty() {
        return None;
    }
    let (about, lines) = split(&text);
    let shown = lines.lines().take(MOST).collect::<Vec<_>>().join("\n");
    let rest = lines.lines().skip(MOST).count();
    let body = html! {
        @if !shown.is_empty() { (pre(&shown)) }
        @if rest > 0 { p.about { "and " (count(rest as u64)) " more lines: pagehaul triage DUMP --section " (section.name()) } }
    };
    Some((about, body))
}

pub(super) fn modules(report: &TriageReport) -> Drawn {
    let mut text = String::new();
    modules::modules(report, &mut text, false);
    let (about, _) = split(&text);
    let body = html! { @if report.modules_known { (cut(modules::table(report))) } };
    Some((about, body))
}

pub(super) fn missing(report: &TriageReport, on_request: &OnRequest) -> Drawn {
    let of_sections = sections_in_part(on_request);
    let lines: Vec<String> =
        report.missing.iter().take(MOST).chain(&of_sections).map(|why| one_line(why)).collect();
    if lines.is_empty() {
        return None;
    }
    let lines = lines.join("\n");
    Some(("What could not be read, and why.".into(), pre(&lines)))
}

/// Splits the text of a section: what follows its title in the first line, and the other lines.
fn split(text: &str) -> (String, &str) {
    let text = text.trim_start_matches('\n');
    let (first, lines) = text.split_once('\n').unwrap_or((text, ""));
    let about = first.split_once(": ").map_or("", |(_, about)| about);
    (about.to_owned(), lines)
}

/// A table that is not too long, and how many rows it lacks.
fn cut(mut table: Table) -> Markup {
    let all = table.rows.len();
    table.rows.truncate(MOST);
    html! {
        (one_line_cells(table))
        @if all > MOST { p.about { "and " (count((all - MOST) as u64)) " more" } }
    }
}

/// Text that has its lines, each escaped, without the indent that all have.
fn pre(text: &str) -> Markup {
    let lines: Vec<&str> = text.trim_matches('\n').lines().collect();
    let indented = lines.iter().all(|line| line.is_empty() || line.starts_with("  "));
    let lines =
        lines.iter().map(|line| if indented { line.strip_prefix("  ").unwrap_or(line) } else { line });
    html! { pre { (printable_lines(&lines.collect::<Vec<_>>().join("\n"))) } }
}
