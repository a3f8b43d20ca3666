//! The end of the log, with marks: lines of weight, and those that name the crash.

use maud::{Markup, html};
use pagehaul_inspect::{LastLine, LogLine, TriageReport};
use pagehaul_present::number::counted;

use super::lists::explore;
use super::words::one_line;

/// Bytes of text.
const MOST: usize = 200 << 10;

pub(super) fn log(report: &TriageReport, lines: &[LastLine]) -> Option<(String, Markup)> {
    let lines = if lines.is_empty() { &report.log } else { lines };
    if lines.is_empty() {
        return Some((String::new(), html! { p { "not known" } }));
    }
    let mut bytes = 0;
    let kept = lines.iter().rev().take_while(|last| {
        bytes += last.line.text.len() + 40;
        bytes <= MOST
    });
    let lines = lines.get(lines.len() - kept.count()..).unwrap_or_default();
    let kinds = [("marked", "of the crash"), ("important", "warnings and worse")];
    let kinds = kinds.map(|(kind, name)| (kind.to_owned(), name.to_owned()));
    let list = html! { ol.lines { @for last in lines { (one(last, marks(report, &last.line))) } } };
    let about = format!("The last {}: pagehaul dmesg DUMP prints all.", counted(lines.len() as u64, "line"));
    Some((about, explore("Word of the log", &kinds, list)))
}

/// Whether a line is one by which the crash is known.
fn marks(report: &TriageReport, line: &LogLine) -> bool {
    let death = &report.death;
    let marked = [&death.cause, &death.line, &death.corruption].into_iter().flatten().chain(&death.earlier);
    marked.into_iter().any(|marked| marked.text == line.text && marked.seconds == line.seconds)
}

fn one(last: &LastLine, marked: bool) -> Markup {
    let kind = match (marked, last.important) {
        (true, _) => "marked important",
        (false, true) => "important",
        (false, false) => "plain",
    };
    html! {
        li data-kind=(kind) {
            time { (format!("[{:12.6}]", last.line.seconds)) } " "
            @if marked { mark { (one_line(&last.line.text)) } } @else { (one_line(&last.line.text)) }
        }
    }
}
