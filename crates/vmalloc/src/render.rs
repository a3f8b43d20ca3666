//! Snapshots and intervals as text.

use std::fmt::Write;

use pagehaul_latency::Histogram;

use crate::areas::AreaKind;
use crate::monitor::Interval;
use crate::snapshot::{Caller, Snapshot, Sum};

/// Functions and tasks shown.
const TOP: usize = 10;
const PAGE: u64 = 4096;

impl Snapshot {
    /// As text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{text}");
        };
        line(format_args!("address space  {}", kib(self.total_kib)));
        line(format_args!("used           {} (VmallocUsed)", kib(self.used_kib)));
        let lazy = self.kind(AreaKind::Unpurged);
        line(format_args!("freed, not yet purged  {} in {} areas", bytes(lazy.bytes), lazy.areas));
        match &self.space {
            Some(space) => line(format_args!(
                "largest gap between areas  {}, {} gaps; {} above the highest area",
                bytes(space.largest_gap),
                space.gaps,
                bytes(space.above)
            )),
            None => line(format_args!(
                "gaps           unknown: the kernel hashes addresses; `sysctl kernel.kptr_restrict=1` shows them to root"
            )),
        }
        line(format_args!("\n{:14} {:>9} {:>12}", "kind", "areas", "size"));
        for (kind, sum) in &self.kinds {
            line(format_args!("{kind:14} {:>9} {:>12}", sum.areas, bytes(sum.bytes)));
        }
        if self.nodes.len() > 1 {
            line(format_args!("\n{:14} {:>9} {:>12}", "node", "pages", "size"));
            for (node, pages) in &self.nodes {
                line(format_args!("{node:<14} {pages:>9} {:>12}", bytes(pages.saturating_mul(PAGE))));
            }
        }
        line(format_args!("\n{:>12} {:>9}  caller", "size", "areas"));
        for caller in self.callers.iter().take(TOP) {
            line(format_args!("{:>12} {:>9}  {}", bytes(caller.sum.bytes), caller.sum.areas, caller.name));
        }
        more(&mut out, &self.callers, |caller| caller.sum);
        out
    }
}

/// The line above [`interval_row`]s.
pub fn interval_header() -> String {
    format!(
        "{:>9} {:>9} {:>10} {:>9} {:>6} {:>10} {:>10} {:>5} {:>7} {:>9} {:>9} {:>9} {:>9}",
        "used",
        "alloc/s",
        "alloc",
        "free/s",
        "failed",
        "lazy",
        "peak",
        "%lim",
        "purge/s",
        "areas",
        "max",
        "p50 us",
        "max us"
    )
}

/// An interval in one line: sizes are bytes, `areas` is the mean and `max` the most of a purge.
pub fn interval_row(interval: &Interval) -> String {
    let counts = &interval.counts;
    let per_second = |count: u64| count as f64 / interval.seconds.max(1e-9);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let pages = |pages: u64| bytes(pages.saturating_mul(PAGE));
    let limit = counts.lazy_limit_pages.filter(|limit| *limit > 0);
    let times = interval.purge_times.as_ref().filter(|times| times.count() > 0);
    format!(
        "{:>9} {:>9.0} {:>10} {:>9.0} {:>6} {:>10} {:>10} {:>5} {:>7.1} {:>9} {:>9} {:>9} {:>9}",
        or_dash(interval.used_kib.map(kib)),
        per_second(counts.allocated.areas),
        bytes(counts.allocated.bytes),
        per_second(counts.freed),
        counts.failed.areas,
        or_dash(counts.lazy_pages.map(pages)),
        pages(counts.lazy_peak_pages),
        or_dash(limit.map(|limit| format!("{:.0}", counts.lazy_peak_pages as f64 / limit as f64 * 100.0))),
        per_second(counts.purges),
        or_dash(counts.purged.checked_div(counts.purges).map(|mean| mean.to_string())),
        counts.largest_purge,
        or_dash(times.and_then(|times| times.percentile_ns(50.0)).map(|ns| (ns / 1000).to_string())),
        or_dash(times.and_then(Histogram::longest_ns).map(|ns| (ns / 1000).to_string())),
    )
}

/// What follows the rows: purges, callers, tasks, all intervals together.
pub fn summary(intervals: &[Interval], purge_function: Option<&str>) -> String {
    let mut out = String::new();
    let mut times: Option<Histogram> = None;
    let mut sizes: Option<Histogram> = None;
    let (mut callers, mut tasks) = (Vec::new(), Vec::new());
    let (mut seconds, mut lost, mut peak, mut limit, mut failed) = (0.0, 0, 0, None, 0);
    let merge = |all: &mut Option<Histogram>, part: &Histogram| match all {
        Some(all) => all.merge(part),
        None => *all = Some(part.clone()),
    };
    for interval in intervals {
        merge(&mut sizes, &interval.purge_sizes);
        if let Some(part) = &interval.purge_times {
            merge(&mut times, part);
        }
        join(&mut callers, &interval.counts.callers);
        join(&mut tasks, &interval.counts.tasks);
        seconds += interval.seconds;
        lost += interval.lost_events;
        peak = peak.max(interval.counts.lazy_peak_pages);
        limit = interval.counts.lazy_limit_pages.or(limit);
        failed += interval.counts.failed.areas;
    }
    let line = |out: &mut String, text: std::fmt::Arguments<'_>| {
        let _ = writeln!(out, "{text}");
    };
    let against = limit.map_or(String::new(), |limit| format!(" of {}", bytes(limit.saturating_mul(PAGE))));
    line(&mut out, format_args!("\nbacklog at most {}{against}", bytes(peak.saturating_mul(PAGE))));
    if let Some((first, end)) = intervals.iter().rev().find_map(|interval| interval.counts.range) {
        let size = bytes(end.saturating_sub(first));
        line(&mut out, format_args!("areas are looked for from {first:#x} to {end:#x} ({size})"));
    }
    if failed > 0 {
        line(&mut out, format_args!("{failed} allocations found no address space"));
    }
    if let Some(sizes) = sizes.filter(|sizes| sizes.count() > 0) {
        line(&mut out, format_args!("\nareas in a purge ({} purges)", sizes.count()));
        for row in sizes.log2_rows() {
            line(&mut out, format_args!("{:>10} -> {:<10} : {}", row.low, row.high, row.count));
        }
    }
    if let (Some(times), Some(function)) = (times.filter(|times| times.count() > 0), purge_function) {
        let report = pagehaul_latency::Report {
            mechanism: String::new(),
            parts: vec![pagehaul_latency::Part { name: function.into(), histogram: times }],
            missed: pagehaul_latency::Missed::default(),
        };
        out.push_str(&report.text(true));
    }
    for (title, list) in [("caller", callers), ("task", tasks)] {
        if list.is_empty() {
            continue;
        }
        line(&mut out, format_args!("\n{:>9} {:>9} {:>12}  {title}", "areas", "per s", "size"));
        for Caller { name, sum } in list.iter().take(TOP) {
            let rate = sum.areas as f64 / f64::max(seconds, 1e-9);
            line(&mut out, format_args!("{:>9} {rate:>9.1} {:>12}  {name}", sum.areas, bytes(sum.bytes)));
        }
        more(&mut out, &list, |caller| caller.sum);
    }
    if lost > 0 {
        line(
            &mut out,
            format_args!("{lost} events lost because the kernel's buffers were full: try a larger --buffer"),
        );
    }
    out
}

fn join(all: &mut Vec<Caller>, part: &[Caller]) {
    for caller in part {
        match all.iter_mut().find(|known| known.name == caller.name) {
            Some(known) => {
                known.sum.areas += caller.sum.areas;
                known.sum.bytes = known.sum.bytes.saturating_add(caller.sum.bytes);
            }
            None => all.push(caller.clone()),
        }
    }
    all.sort_by_key(|caller| std::cmp::Reverse(caller.sum.areas));
}

fn more(out: &mut String, list: &[Caller], sum: impl Fn(&Caller) -> Sum) {
    let rest = list.get(TOP..).unwrap_or_default();
    if !rest.is_empty() {
        let areas: u64 = rest.iter().map(|caller| sum(caller).areas).sum();
        let _ = writeln!(out, "and {areas} areas of {} others", rest.len());
    }
}

fn kib(kib: u64) -> String {
    bytes(kib.saturating_mul(1024))
}

/// Bytes in the unit that leaves at most four digits: `12.3M`.
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64;
    let mut unit = "";
    for next in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value < 100.0 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let texts: Vec<String> = [0, 1023, 1536, 150 << 20, 32 << 40, u64::MAX].map(bytes).to_vec();
        assert_eq!(texts, ["0", "1023", "1.5K", "150M", "32.0T", "16.0E"]);
    }
}
