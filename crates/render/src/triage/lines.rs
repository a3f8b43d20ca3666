//! What sections share: the beginning, the end, and lines of lists that are cut short.

use pagehaul_inspect::{Gaps, OnRequest, Part, System, TriageReport};
use pagehaul_present::number::{count, counted};
use pagehaul_present::time::{seconds, utc};
use pagehaul_present::{Table, printable};

/// Lines of each list on the one screen.
pub(super) const FEW: usize = 4;
/// Frames of a stack in one line.
pub(super) const INNERMOST: usize = 4;

/// What reports are made of. Nothing else is added to them.
pub(super) trait Lines {
    /// Adds one line, after an empty one if `format` begins with a line break. What `text` has of other line breaks and control
    /// characters is escaped.
    fn put_line(&mut self, format: &str, text: &str);

    /// Adds a table, whose cells escape what they have.
    fn put_table(&mut self, table: &Table);
}

impl Lines for String {
    fn put_line(&mut self, format: &str, text: &str) {
        let line = match format.starts_with('\n') {
            true => {
                self.push('\n');
                text.strip_prefix('\n').unwrap_or(text)
            }
            false => text,
        };
        self.push_str(&printable(line));
        self.push('\n');
    }

    fn put_table(&mut self, table: &Table) {
        self.push_str(table.to_string().trim_end());
        self.push('\n');
    }
}

/// The load averages of 1, 5 and 15 minutes.
pub(super) fn load(system: &System) -> Option<String> {
    system.load.map(|[one, five, fifteen]| format!("load {one:.2} {five:.2} {fifteen:.2}"))
}

pub(super) fn cpu_count(system: &System, gaps: &Gaps) -> Option<String> {
    let least = if gaps.is_partial(Part::Cpus) { "at least " } else { "" };
    Some(format!("{least}{}", counted(system.cpus? as u64, "CPU")))
}

pub(super) fn header(report: &TriageReport, name: &str, out: &mut String) {
    let system = &report.system;
    let mut facts = vec![system.release.clone()];
    facts.extend(system.hostname.iter().filter(|host| *host != "(none)").map(|host| format!("host {host}")));
    facts.extend(cpu_count(system, &report.gaps));
    facts.extend(system.uptime.map(|uptime| format!("up {}", seconds(uptime))));
    facts.extend(system.crash_time.map(|time| format!("crashed {}", utc(time))));
    facts.extend(load(system));
    put!(out, "{name}: {}", facts.join(", "));
    for taint in &system.taints {
        put!(out, "taint {}: {}", taint.letter, taint.meaning);
    }
}

pub(super) fn missing(report: &TriageReport, on_request: &OnRequest, out: &mut String) {
    let of_sections = sections_in_part(on_request);
    let all: Vec<&str> = report.missing.iter().map(String::as_str).chain(of_sections.as_deref()).collect();
    missing_lines(&all, out);
}

pub(super) fn missing_lines(all: &[&str], out: &mut String) {
    if all.is_empty() {
        return;
    }
    put!(out, "\nMissing");
    for why in all.iter().take(20) {
        put!(out, "  {why}");
    }
    more(all.len(), 20, "facts that are missing", out);
}

/// The sections on request that were not read in whole: each names the reasons itself.
pub(super) fn sections_in_part(on_request: &OnRequest) -> Option<String> {
    let names = on_request.incomplete();
    match names[..] {
        [] => None,
        [only] => Some(format!("{only}: not read in whole, for reasons that the section names")),
        _ => Some(format!("{}: not read in whole, for reasons that each section names", names.join(", "))),
    }
}

pub(super) fn at_least(report: &TriageReport, part: Part) -> &'static str {
    if report.gaps.is_partial(part) { "at least " } else { "" }
}

/// How many of a part were found: the least possible number, or "not known", if not all of it was read.
pub(super) fn number_of(report: &TriageReport, part: Part, found: u64) -> String {
    match (found, report.gaps.is_whole(part)) {
        (0, false) => "not known".to_owned(),
        _ => format!("{}{}", at_least(report, part), count(found)),
    }
}

/// How many were found, if some may be missing because of `broken`.
pub(super) fn known(found: usize, broken: &[String]) -> String {
    match (found, broken.is_empty()) {
        (0, false) => "not known".to_owned(),
        (found, false) => format!("at least {}", count(found as u64)),
        (found, true) => count(found as u64),
    }
}

/// Why some may be missing.
pub(super) fn whys(broken: &[String], out: &mut String) {
    for why in broken {
        put!(out, "  {why}");
    }
}

pub(super) fn more(all: usize, shown: usize, what: &str, out: &mut String) {
    if all > shown {
        put!(out, "  and {} more {what}", count((all - shown) as u64));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn line_breaks_of_a_dump_are_no_lines() {
        let mut out = String::new();
        let name = "\nVerdict\n  1. nothing\u{1b}[2J";
        put!(out, "{name}");
        put!(out, "\n  {}", name);
        assert_eq!(out, "\\nVerdict\\n  1. nothing\\u{1b}[2J\n\n  \\nVerdict\\n  1. nothing\\u{1b}[2J\n");
    }
}
