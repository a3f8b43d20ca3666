//! What sections share: the beginning, the end, and lines of lists that are cut short.

use std::fmt::Write as _;

use pagehaul_inspect::{Part, TriageReport};
use pagehaul_present::number::{count, counted};
use pagehaul_present::time::{seconds, utc};

/// Lines of each list on the one screen.
pub(super) const FEW: usize = 4;
/// Frames of a stack in one line.
pub(super) const INNERMOST: usize = 4;

pub(super) fn header(report: &TriageReport, name: &str, out: &mut String) {
    let system = &report.system;
    let mut facts = vec![system.release.clone()];
    facts.extend(system.hostname.iter().filter(|host| *host != "(none)").map(|host| format!("host {host}")));
    facts.extend((system.cpus > 0).then(|| counted(system.cpus as u64, "CPU")));
    facts.extend(system.uptime.map(|uptime| format!("up {}", seconds(uptime))));
    facts.extend(system.crash_time.map(|time| format!("crashed {}", utc(time))));
    facts.extend(system.load.map(|[one, five, fifteen]| format!("load {one:.2} {five:.2} {fifteen:.2}")));
    put!(out, "{name}: {}", facts.join(", "));
    for taint in &system.taints {
        put!(out, "taint {}: {}", taint.letter, taint.meaning);
    }
}

pub(super) fn missing(report: &TriageReport, out: &mut String) {
    if report.missing.is_empty() {
        return;
    }
    put!(out, "\nMissing");
    for why in report.missing.iter().take(20) {
        put!(out, "  {why}");
    }
    more(report.missing.len(), 20, "facts that are missing", out);
}

pub(super) fn at_least(report: &TriageReport, part: Part) -> &'static str {
    if report.gaps.is_partial(part) { "at least " } else { "" }
}

pub(super) fn more(all: usize, shown: usize, what: &str, out: &mut String) {
    if all > shown {
        put!(out, "  and {} more {what}", count((all - shown) as u64));
    }
}
