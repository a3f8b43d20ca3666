//! The findings.

use pagehaul_inspect::TriageReport;

use super::next::command;

/// The verdict without a finding, which names what was not looked at.
pub(super) fn nothing_found(report: &TriageReport) -> String {
    if report.gaps.is_empty() {
        return "nothing suspicious found".into();
    }
    format!("nothing suspicious found in what could be read; {}", report.gaps.describe())
}

pub(super) fn verdict(report: &TriageReport, out: &mut String) {
    put!(out, "\nVerdict");
    if report.verdict.is_empty() {
        put!(out, "  {}", nothing_found(report));
    }
    for (at, finding) in report.verdict.iter().enumerate() {
        put!(out, "  {}. {}", at + 1, finding.text);
        for evidence in &finding.evidence {
            put!(out, "       {}", evidence.0);
        }
        put!(out, "       next: {}", command(finding.next));
    }
}
