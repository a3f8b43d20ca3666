//! The findings.

use maud::{Markup, html};
use pagehaul_inspect::{Finding, Next, TriageReport};

use super::words::one_line;
use crate::triage::next::command;
use crate::triage::verdict::nothing_found;

pub(super) fn verdict(report: &TriageReport) -> Option<(String, Markup)> {
    let findings = &report.verdict;
    let body = html! {
        @if findings.is_empty() && report.gaps.is_empty() { p { "Nothing suspicious found." } }
        @if findings.is_empty() && !report.gaps.is_empty() { p { (nothing_found(report)) } }
        ol.findings { @for finding in findings { li { (one(finding)) } } }
    };
    Some(("The weightiest findings first, each with its evidence and what to look at next.".into(), body))
}

fn one(finding: &Finding) -> Markup {
    html! {
        b { (one_line(&finding.text)) }
        @for evidence in &finding.evidence { pre { (one_line(&evidence.0)) } }
        div.next {
            @if let Some((place, title)) = place(finding.next) { a href=(format!("#{place}")) { (title) } ", " }
            "next: " code { (one_line(&command(finding.next))) }
        }
    }
}

/// The section that shows more of a finding.
fn place(next: Next) -> Option<(&'static str, &'static str)> {
    match next {
        Next::Log { .. } | Next::DriverLog => Some(super::LOG),
        Next::Cpus => Some(super::CPUS),
        Next::Tasks => Some(super::TASKS),
        Next::Waits => Some(super::WAITS),
        Next::Memory | Next::Owners => Some(super::MEMORY),
        Next::Network => Some(super::NET),
        Next::Requests | Next::Suspender => Some(super::IO),
        Next::Backtrace | Next::Code(_) => Some(super::WHAT),
    }
}
