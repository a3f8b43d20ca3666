//! The end of the log.

use pagehaul_inspect::{Part, TriageReport};

pub(super) fn log(report: &TriageReport, out: &mut String) {
    if report.gaps.lacks(Part::Log) {
        put!(out, "\nEnd of the log: not known");
        return;
    }
    put!(out, "\nEnd of the log");
    for last in &report.log {
        let mark = if last.important { '!' } else { ' ' };
        put!(out, "{mark} [{:12.6}] {}", last.line.seconds, last.line.text);
    }
}
