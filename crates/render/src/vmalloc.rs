//! The vmalloc space: usage and intervals.

use pagehaul_latency::Histogram;
use pagehaul_present::Table;
use pagehaul_present::number::bytes_short;
use pagehaul_vmalloc::{AreaKind, Interval, NamedTotal, Usage, purge_report};

use crate::{latency, warnings};

/// Callers and tasks shown.
const TOP: usize = 10;

/// Formats the usage.
pub fn usage(usage: &Usage) -> String {
    let lazy = usage.kind(AreaKind::Unpurged);
    let space = match &usage.space {
        Some(space) => format!(
            "largest gap between areas  {}, {} gaps; {} above the highest area",
            bytes_short(space.largest_gap),
            space.gaps,
            bytes_short(space.above)
        ),
        None => "gaps           unknown: the kernel hashes addresses; `sysctl kernel.kptr_restrict=1` shows them to root"
            .into(),
    };
    let mut kinds = Table::new(["kind", "areas", "size"]);
    kinds.rows(
        usage
            .kinds
            .iter()
            .map(|(kind, total)| [(*kind).to_owned(), total.areas.to_string(), bytes_short(total.bytes)]),
    );
    let mut nodes = Table::new(["node", "pages", "size"]);
    nodes.rows(
        usage
            .nodes
            .iter()
            .map(|(node, pages)| [node.to_string(), pages.to_string(), page_bytes(*pages, usage.page_size)]),
    );
    let nodes = if usage.nodes.len() > 1 { format!("\n{nodes}") } else { String::new() };
    let mut callers = Table::new(["size", "areas", "caller"]).left([2]);
    callers.rows(usage.callers.iter().take(TOP).map(|caller| {
        [bytes_short(caller.total.bytes), caller.total.areas.to_string(), caller.name.clone()]
    }));
    format!(
        "address space  {}\nused           {} (VmallocUsed)\nfreed, not yet purged  {} in {} areas\n{space}\n\n\
         {kinds}{nodes}\n{callers}{}",
        kib(usage.total_kib),
        kib(usage.used_kib),
        bytes_short(lazy.bytes),
        lazy.areas,
        others(&usage.callers),
    )
}

/// Returns the heading of [`interval_row`]s.
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

/// Formats an interval as one row: sizes in bytes, `areas` is the mean and `max` the maximum per purge.
pub fn interval_row(interval: &Interval) -> String {
    let counts = &interval.counts;
    let per_second = |count: u64| count as f64 / interval.seconds.max(1e-9);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".into());
    let limit = counts.lazy_limit_pages.filter(|limit| *limit > 0);
    let times = interval.purge_times.as_ref().filter(|times| times.count() > 0);
    format!(
        "{:>9} {:>9.0} {:>10} {:>9.0} {:>6} {:>10} {:>10} {:>5} {:>7.1} {:>9} {:>9} {:>9} {:>9}",
        or_dash(interval.used_kib.map(kib)),
        per_second(counts.allocated.areas),
        bytes_short(counts.allocated.bytes),
        per_second(counts.freed),
        counts.failed.areas,
        or_dash(counts.lazy_pages.map(|pages| page_bytes(pages, interval.page_size))),
        page_bytes(counts.lazy_peak_pages, interval.page_size),
        or_dash(limit.map(|limit| format!("{:.0}", counts.lazy_peak_pages as f64 / limit as f64 * 100.0))),
        per_second(counts.purges),
        or_dash(counts.purged.checked_div(counts.purges).map(|mean| mean.to_string())),
        counts.largest_purge,
        or_dash(times.and_then(|times| times.percentile_ns(50.0)).map(|ns| (ns / 1000).to_string())),
        or_dash(times.and_then(Histogram::max_ns).map(|ns| (ns / 1000).to_string())),
    )
}

/// Formats what follows the rows: purges, callers and tasks of all intervals together.
pub fn summary(intervals: &[Interval], purge_function: Option<&str>) -> String {
    let mut out = String::new();
    let mut times: Option<Histogram> = None;
    let mut sizes: Option<Histogram> = None;
    let (mut callers, mut tasks) = (Vec::new(), Vec::new());
    let page_size = intervals.first().map_or(0, |interval| interval.page_size);
    let (mut seconds, mut lost, mut peak, mut limit, mut failed) = (0.0, 0, 0, None, 0);
    let merge = |all: &mut Option<Histogram>, one: &Histogram| match all {
        Some(all) => all.merge(one),
        None => *all = Some(one.clone()),
    };
    for interval in intervals {
        merge(&mut sizes, &interval.purge_sizes);
        if let Some(one) = &interval.purge_times {
            merge(&mut times, one);
        }
        join(&mut callers, &interval.counts.callers);
        join(&mut tasks, &interval.counts.tasks);
        seconds += interval.seconds;
        lost += interval.lost_events;
        peak = peak.max(interval.counts.lazy_peak_pages);
        limit = interval.counts.lazy_limit_pages.or(limit);
        failed += interval.counts.failed.areas;
    }
    let mut line = |text: String| out.push_str(&(text + "\n"));
    let of_limit = limit.map_or_else(String::new, |limit| format!(" of {}", page_bytes(limit, page_size)));
    line(format!("\nbacklog peak {}{of_limit}", page_bytes(peak, page_size)));
    if let Some((first, end)) = intervals.iter().rev().find_map(|interval| interval.counts.range) {
        let size = bytes_short(end.saturating_sub(first));
        line(format!("areas are allocated from {first:#x} to {end:#x} ({size})"));
    }
    if failed > 0 {
        line(format!("{failed} allocations failed: no free address range"));
    }
    if let Some(sizes) = sizes.filter(|sizes| sizes.count() > 0) {
        line(format!("\nareas per purge ({} purges)", sizes.count()));
        for bucket in sizes.log2_buckets() {
            line(format!("{:>10} -> {:<10} : {}", bucket.low, bucket.high, bucket.count));
        }
    }
    if let (Some(times), Some(function)) = (times.filter(|times| times.count() > 0), purge_function) {
        out.push_str(&latency::text(&purge_report(function, times), true));
    }
    for (title, list) in [("caller", callers), ("task", tasks)] {
        if list.is_empty() {
            continue;
        }
        let mut table = Table::new(["areas", "per s", "size", title]).left([3]);
        table.rows(list.iter().take(TOP).map(|NamedTotal { name, total }| {
            let rate = total.areas as f64 / f64::max(seconds, 1e-9);
            [total.areas.to_string(), format!("{rate:.1}"), bytes_short(total.bytes), name.clone()]
        }));
        out.push_str(&format!("\n{table}{}", others(&list)));
    }
    if lost > 0 {
        out.push_str(&format!(
            "{lost} events lost because the kernel's buffers were full: try a larger --buffer-size\n"
        ));
    }
    out + &intervals.iter().map(|interval| warnings::lines(&interval.warnings)).collect::<String>()
}

fn join(all: &mut Vec<NamedTotal>, list: &[NamedTotal]) {
    for one in list {
        match all.iter_mut().find(|known| known.name == one.name) {
            Some(known) => known.total += one.total,
            None => all.push(one.clone()),
        }
    }
    all.sort_by_key(|one| std::cmp::Reverse(one.total.areas));
}

/// Sums up what the tables omit.
fn others(list: &[NamedTotal]) -> String {
    let rest = list.get(TOP..).unwrap_or_default();
    if rest.is_empty() {
        return String::new();
    }
    let areas: u64 = rest.iter().map(|one| one.total.areas).sum();
    format!("and {areas} areas of {} others\n", rest.len())
}

fn kib(kib: u64) -> String {
    bytes_short(kib.saturating_mul(1024))
}

fn page_bytes(pages: u64, page_size: u64) -> String {
    bytes_short(pages.saturating_mul(page_size))
}

#[cfg(test)]
mod tests {
    use pagehaul_latency::Unit;
    use pagehaul_vmalloc::{Areas, Counts};

    use super::*;

    #[test]
    fn bytes_follow_from_the_size_of_pages() {
        for (page_size, backlog, of_node) in [(4 << 10, "1.0M", "12.0K"), (64 << 10, "16.0M", "192.0K")] {
            let counts = Counts { lazy_pages: Some(256), lazy_peak_pages: 256, ..Counts::default() };
            let interval = Interval {
                seconds: 1.0,
                page_size,
                counts,
                purge_sizes: Histogram::new(Unit::Microseconds, None),
                purge_times: None,
                used_kib: None,
                lost_events: 0,
                warnings: Vec::new(),
            };
            let summary = summary(&[interval], None);
            assert!(summary.contains(&format!("backlog peak {backlog}")), "{summary}");
            let areas = "0x0000000000001000-0x0000000000042000 266240 a+0x1/0x2 pages=4 vmalloc N0=3 N1=1\n";
            let text = usage(&Usage::new(&Areas::parse(areas).unwrap(), "", page_size));
            assert!(text.contains(of_node), "{text}");
        }
    }
}
