//! Metrics by signature, of a bounded number.

use super::{escape, gauge};
use crate::report::group::Group;
use crate::report::summary::Report;

/// The signature of all that are not among the most frequent.
const OTHER: &str = "other";

/// Returns metrics of the `most` most frequent signatures, and the crashes of all others as those of `other`.
pub(super) fn of_signatures(report: &Report, most: usize) -> String {
    let mut text = String::new();
    let (named, others) = report.signatures.split_at(most.min(report.signatures.len()));
    let labels = |group: &Group| {
        let bug = group.bug.as_ref().map_or("", |bug| bug.id.as_str());
        format!("{{sig=\"{}\",kind=\"{}\",bug=\"{}\"}}", escape(&group.sig), escape(&group.kind), escape(bug))
    };
    let of = |get: fn(&Group) -> Option<u64>| {
        named.iter().filter_map(move |group| Some((labels(group), get(group)?)))
    };
    let rest: u64 = others.iter().map(|group| group.crashes as u64).sum();
    let rest = (rest > 0).then(|| (format!("{{sig=\"{OTHER}\",kind=\"\",bug=\"\"}}"), rest));
    let crashes = of(|group| Some(group.crashes as u64)).chain(rest);
    gauge(&mut text, "pagehaul_signature_crashes", "Crashes by signature.", crashes);
    let hosts = of(|group| Some(group.hosts.len() as u64));
    gauge(&mut text, "pagehaul_signature_hosts", "Hosts that crashed with a signature.", hosts);
    let last = of(|group| u64::try_from(group.last_seen?).ok());
    let name = "pagehaul_signature_last_crash_timestamp_seconds";
    gauge(&mut text, name, "Time of the last crash with a signature.", last);
    let regressions = of(|group| Some(group.bug.as_ref()?.regressions as u64));
    let name = "pagehaul_signature_regressions";
    gauge(&mut text, name, "Crashes of a fixed bug on kernels that have the fix.", regressions);
    let info = named.iter().map(|group| {
        let (bug, state) = group.bug.as_ref().map_or(("", ""), |bug| (bug.id.as_str(), bug.state.as_str()));
        let labels = [("sig", group.sig.as_str()), ("title", &group.title), ("bug", bug), ("state", state)];
        let labels = labels.map(|(name, value)| format!("{name}=\"{}\"", escape(value)));
        (format!("{{{}}}", labels.join(",")), 1)
    });
    gauge(&mut text, "pagehaul_signature_info", "Title and bug of a signature.", info);
    text
}
