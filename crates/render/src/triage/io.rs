//! Block requests.

use pagehaul_inspect::{Part, TriageReport};
use pagehaul_present::number::{bytes, count};
use pagehaul_present::time::seconds;

use super::lines::{FEW, at_least, more};

pub(super) fn io(report: &TriageReport, out: &mut String, full: bool) {
    for device in &report.suspended {
        let waiting = if device.has_waiting { ", I/O waits" } else { "" };
        put!(out, "\nSuspended: {}, mapped_device {}{waiting}", device.disk, device.address);
    }
    if report.requests.is_empty() && !full {
        return;
    }
    if report.gaps.lacks(Part::Requests) {
        put!(out, "\nBlock requests in flight: not known");
        return;
    }
    let at_least = at_least(report, Part::Requests);
    put!(out, "\nBlock requests in flight: {at_least}{}", count(report.requests.len() as u64));
    let shown = if full { report.requests.len() } else { FEW };
    for request in report.requests.iter().take(shown) {
        let age = request.age.map_or_else(|| "unknown age".into(), seconds);
        put!(
            out,
            "  {}: {} of {}, {age}, {}",
            request.disk,
            request.operation,
            bytes(request.bytes),
            request.address
        );
    }
    more(report.requests.len(), shown, "requests", out);
}
