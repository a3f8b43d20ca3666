//! Block requests.

#[cfg(feature = "html")]
use std::collections::BTreeMap;

#[cfg(feature = "html")]
use pagehaul_inspect::Request;
use pagehaul_inspect::{Part, Suspended, TriageReport};
#[cfg(feature = "html")]
use pagehaul_present::Table;
use pagehaul_present::number::bytes;
#[cfg(feature = "html")]
use pagehaul_present::number::count;
use pagehaul_present::time::seconds;

use super::lines::{FEW, more, number_of};

pub(super) fn io(report: &TriageReport, out: &mut String, full: bool) {
    for device in &report.suspended {
        put!(out, "\n{}", suspended(device));
    }
    if report.requests.is_empty() && !full {
        return;
    }
    let number = number_of(report, Part::Requests, report.requests.len() as u64);
    put!(out, "\nBlock requests in flight: {number}");
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

pub(super) fn suspended(device: &Suspended) -> String {
    let waiting = if device.has_waiting { ", I/O waits" } else { "" };
    format!("Suspended: {}, mapped_device {}{waiting}", device.disk, device.address)
}

/// The requests; if they are more than `most`, those of one disk and operation are one row.
#[cfg(feature = "html")]
pub(super) fn table(report: &TriageReport, most: usize) -> Table {
    let age = |age: Option<f64>| age.map_or_else(|| "unknown".into(), seconds);
    if report.requests.len() <= most {
        let mut table = Table::new(["disk", "operation", "size", "age", "address"]).left([0, 1, 4]);
        table.rows(report.requests.iter().map(|request| {
            let Request { disk, operation, address, .. } = request;
            [disk.clone(), operation.clone(), bytes(request.bytes), age(request.age), address.to_string()]
        }));
        return table;
    }
    let mut groups: BTreeMap<(&str, &str), Vec<&Request>> = BTreeMap::new();
    for request in &report.requests {
        groups.entry((&request.disk, &request.operation)).or_default().push(request);
    }
    let mut table = Table::new(["disk", "operation", "requests", "size", "oldest"]).left([0, 1]);
    table.rows(groups.into_iter().map(|((disk, operation), requests)| {
        let size = requests.iter().fold(0_u64, |sum, request| sum.saturating_add(request.bytes));
        let oldest = requests.iter().filter_map(|request| request.age).reduce(f64::max);
        let number = count(requests.len() as u64);
        [disk.to_owned(), operation.to_owned(), number, bytes(size), age(oldest)]
    }));
    table
}
