//! What ends a report with an exit status that says so.

use std::collections::BTreeMap;
use std::process::ExitCode;

use pagehaul_present::number::count;

use super::bugs::Regression;
use super::exposure::Machines;
use super::rates::{Rate, WithoutHours};
use super::summary::{Alert, AlertKind, Report};
use super::text::figure;
use super::version::is_of;

/// Exit status if tables cannot be read, or crashes cannot be counted: nothing can be said of them.
pub(crate) const UNKNOWN: u8 = 3;
/// Names that a sentence has, at most.
const MAX_NAMES: usize = 20;
const NEW: u8 = 4;
const RATE: u8 = 5;
const BOTH: u8 = 6;

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

/// Returns what may hide a high rate: crashes of machines without machine-hours, and of hosts that the file of hosts lacks.
pub(crate) fn not_counted(report: &Report) -> Vec<Alert> {
    let Some(rates) = &report.rates else { return Vec::new() };
    let machines = |row: &WithoutHours| {
        let Machines { release, fleet, class } = &row.machines;
        let release = if release.is_empty() { "unknown" } else { release };
        let place = [("fleet", fleet), ("class", class)].into_iter().filter_map(|(what, name)| {
            let name = name.as_deref()?;
            Some(format!(", {what} {}", if name.is_empty() { "unknown" } else { name }))
        });
        (format!("kernel {release}{}", place.collect::<String>()), row.crashes)
    };
    let host = |(host, crashes): (&String, &u64)| {
        (if host.is_empty() { "without a name".to_owned() } else { host.clone() }, *crashes)
    };
    let without: Vec<(String, u64)> = rates.without_hours.iter().map(machines).collect();
    let unknown: Vec<(String, u64)> = rates.unknown_hosts.iter().map(host).collect();
    let sentence = |names: &[(String, u64)], [one, several]: [&str; 2]| {
        let crashes: u64 = names.iter().map(|(_, crashes)| crashes).sum();
        let what = if crashes == 1 { one } else { several };
        let listed = names.iter().take(MAX_NAMES).map(|(name, crashes)| format!("{name} ({crashes})"));
        let listed = listed.collect::<Vec<_>>().join("; ");
        let more = names.len().saturating_sub(MAX_NAMES);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let text = format!("{} {what}: {listed}{more}", counted(crashes));
        (crashes > 0).then_some(Alert { kind: AlertKind::NotCounted, text })
    };
    let without = sentence(&without, ["has no machine-hours", "have no machine-hours"]);
    let unknown = sentence(
        &unknown,
        ["is of a host that the file of hosts lacks", "are of hosts that the file of hosts lacks"],
    );
    without.into_iter().chain(unknown).collect()
}

/// Returns the files that cannot be read, in which may be anything.
pub(crate) fn unreadable(report: &Report) -> impl Iterator<Item = Alert> {
    let texts = report.unreadable.iter().map(|why| format!("unreadable: {why}"));
    texts.map(|text| Alert { kind: AlertKind::Unreadable, text })
}

fn counted(crashes: u64) -> String {
    if crashes == 1 { "1 crash".to_owned() } else { format!("{} crashes", count(crashes)) }
}

/// Returns the exit status of a report that was asked for alerts.
pub(crate) fn exit_code(report: &Report) -> ExitCode {
    let has = |kinds: [AlertKind; 2]| report.alerts.iter().any(|alert| kinds.contains(&alert.kind));
    let rate = has([AlertKind::Rate; 2]);
    let new = has([AlertKind::New, AlertKind::Regression]);
    ExitCode::from(match (new, rate) {
        (true, true) => BOTH,
        (true, false) => NEW,
        (false, true) => RATE,
        (false, false) if has([AlertKind::NotCounted, AlertKind::Unreadable]) => UNKNOWN,
        (false, false) => 0,
    })
}
