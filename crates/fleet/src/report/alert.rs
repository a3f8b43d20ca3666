//! What ends a report with an exit status that says so.

use std::collections::BTreeMap;
use std::process::ExitCode;

use pagehaul_present::number::count;
use serde::Serialize;

use super::bugs::Regression;
use super::rates::Rate;
use super::summary::Report;
use super::text::figure;
use super::version::is_of;

/// Exit status if tables cannot be read: nothing can be said of what they hold.
const UNREADABLE: u8 = 3;
const NEW: u8 = 4;
const RATE: u8 = 5;
const BOTH: u8 = 6;

/// A reason.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Alert {
    pub(crate) kind: AlertKind,
    /// One sentence.
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AlertKind {
    /// A signature without an older crash, of no known bug.
    New,
    /// A fixed bug on a kernel that has the fix.
    Regression,
    /// A rate above the limit.
    Rate,
}

/// Returns signatures that are new: not requested, of no known bug, and without a crash that is older than the report's date or of the old
/// kernel. A fixed bug is new where it comes back.
pub(crate) fn new_signatures(report: &Report) -> Vec<Alert> {
    let mut new: BTreeMap<&str, String> = BTreeMap::new();
    let mut add = |sig, title: &str, crashes: u64| {
        let like = report.perhaps_same.iter().find_map(|pair| match (&pair.first, &pair.second) {
            (first, second) if first.sig == sig => Some(second),
            (first, second) if second.sig == sig => Some(first),
            _ => None,
        });
        let like = like.map_or_else(String::new, |like| {
            format!("; perhaps the same as {}", like.bug.as_deref().unwrap_or(&like.sig))
        });
        let text = format!("new signature {sig}: {title}, {}{like}", counted(crashes));
        new.entry(sig).or_insert(text);
    };
    if report.since.is_some() {
        for group in report.signatures.iter().filter(|group| !group.is_requested() && group.bug.is_none()) {
            add(group.sig.as_str(), &group.title, group.crashes as u64);
        }
    }
    for change in report.comparison.iter().flat_map(|comparison| &comparison.signatures) {
        if change.old_crashes == 0 && change.bug.is_none() {
            add(change.sig.as_str(), &change.title, change.new_crashes);
        }
    }
    let mut alerts: Vec<Alert> = new.into_values().map(|text| Alert { kind: AlertKind::New, text }).collect();
    let is_recent = |last: Option<i64>, release: &str| {
        report.since.is_some_and(|since| last.is_some_and(|last| last >= since))
            || report.comparison.as_ref().is_some_and(|comparison| is_of(release, &comparison.new))
    };
    for found in report.regressions.iter().filter(|found| is_recent(found.last_seen, &found.release)) {
        let crashes = counted(found.crashes as u64);
        let Regression { bug, title, state, release, .. } = found;
        let text = format!("regression of {bug}: {title}, {state}, but {crashes} of kernel {release}");
        alerts.push(Alert { kind: AlertKind::Regression, text });
    }
    alerts
}

/// Returns groups of machines whose rate is above `limit` crashes per 1,000 machine-hours by more than chance: the whole interval is.
pub(crate) fn high_rates(report: &Report, limit: f64) -> Vec<Alert> {
    let groups = report.rates.iter().flat_map(|rates| &rates.groups);
    let text = |group: &Rate| {
        let name = format!("{} {}", group.by.name(), group.name);
        format!(
            "rate above {limit}: {}, {} per 1,000 machine-hours, at least {} ({})",
            name.trim_end(),
            figure(group.rate.value.unwrap_or_default()),
            figure(group.rate.low),
            counted(group.crashes),
        )
    };
    let high = groups.filter(|group| group.rate.low > limit);
    high.map(|group| Alert { kind: AlertKind::Rate, text: text(group) }).collect()
}

fn counted(crashes: u64) -> String {
    if crashes == 1 { "1 crash".to_owned() } else { format!("{} crashes", count(crashes)) }
}

/// Returns the exit status of a report that was asked for alerts.
pub(crate) fn exit_code(report: &Report) -> ExitCode {
    let rate = report.alerts.iter().any(|alert| alert.kind == AlertKind::Rate);
    let new = report.alerts.iter().any(|alert| alert.kind != AlertKind::Rate);
    ExitCode::from(match (new, rate) {
        (true, true) => BOTH,
        (true, false) => NEW,
        (false, true) => RATE,
        (false, false) if !report.unreadable.is_empty() => UNREADABLE,
        (false, false) => 0,
    })
}
