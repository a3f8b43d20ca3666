//! Latencies, in the layout of funclatency.

use std::fmt::Write;

use pagehaul_latency::{Bucket, Histogram, LatencyReport, Missed, NamedHistogram, PERCENTILES, Unit};

use crate::warnings;

/// Width of the bars in characters.
const STARS: u64 = 40;
/// Longest run of empty linear buckets that is shown; longer ones become a line of dots.
const EMPTY_ROWS: usize = 8;
/// From this value on, numbers exceed the ten columns of narrow rows.
const WIDE: u64 = 10_000_000_000;

/// Formats a report. `by_function` precedes each histogram with its name.
pub fn text(report: &LatencyReport, by_function: bool) -> String {
    let mut out = String::new();
    let filled = report.histograms.iter().filter(|entry| entry.histogram.count() > 0);
    let mut empty = true;
    for entry in filled {
        empty = false;
        render_histogram(&mut out, entry, by_function);
    }
    if empty {
        out.push_str("\nnothing was measured\n");
    }
    render_missed(&mut out, &report.missed);
    out + &warnings::lines(&report.warnings)
}

fn render_histogram(out: &mut String, entry: &NamedHistogram, named: bool) {
    let histogram = &entry.histogram;
    if named {
        line(out, format_args!("\nFunction = {}", entry.name));
    } else {
        out.push('\n');
    }
    match histogram.linear_buckets() {
        Some(linear) => rows(out, &linear, EMPTY_ROWS, histogram.unit()),
        None => rows(out, &histogram.log2_buckets(), usize::MAX, histogram.unit()),
    }
    let divisor = u128::from(histogram.unit().nanoseconds());
    let unit = histogram.unit().name();
    line(
        out,
        format_args!(
            "\navg = {} {unit}, total: {} {unit}, count: {}",
            histogram.mean_ns() / divisor,
            histogram.total_ns() / divisor,
            histogram.count()
        ),
    );
    line(out, format_args!("{}", percentiles(histogram)));
}

fn percentiles(histogram: &Histogram) -> String {
    let divisor = histogram.unit().nanoseconds();
    let mut text = String::new();
    if let Some(shortest) = histogram.min_ns() {
        let _ = write!(text, "min = {}, ", shortest / divisor);
    }
    // Counts of the kernel give upper bounds only.
    let sign = if histogram.percentiles_are_bounds() { "<=" } else { "=" };
    for (name, percent) in PERCENTILES {
        // Beyond one event in `count`, a percentile equals max.
        if histogram.count() as f64 * (100.0 - percent) / 100.0 < 1.0 && percent > 50.0 {
            continue;
        }
        let value = histogram.percentile_ns(percent).unwrap_or(0) / divisor;
        let _ = write!(text, "{name} {sign} {value}, ");
    }
    match histogram.max_ns() {
        Some(longest) => {
            let _ = write!(text, "max = {}", longest / divisor);
        }
        None => text.truncate(text.trim_end_matches(", ").len()),
    }
    text
}

fn rows(out: &mut String, rows: &[Bucket], max_empty: usize, unit: Unit) {
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let wide = rows.iter().any(|row| row.high >= WIDE && row.count > 0);
    let (width, header, name) = if wide { (20, 10, 29) } else { (10, 5, 19) };
    let name_text = unit.name();
    line(out, format_args!("{:header$}{name_text:name$} : count     distribution", ""));
    let mut hidden = 0;
    for (at, row) in rows.iter().enumerate() {
        let empty = |row: &&Bucket| row.count == 0;
        let run = rows.get(at..).unwrap_or_default().iter().take_while(empty).count();
        if hidden == 0 && run > max_empty {
            hidden = run;
            line(out, format_args!("{:>width$}", "..."));
        }
        if hidden > 0 {
            hidden -= 1;
            continue;
        }
        let stars = (u128::from(STARS) * u128::from(row.count) / u128::from(most.max(1))) as usize;
        let bar = "*".repeat(stars);
        let high = if row.high == u64::MAX { "...".to_owned() } else { row.high.to_string() };
        line(
            out,
            format_args!(
                "{:>width$} -> {high:width$} : {:<8} |{bar:stars$}|",
                row.low,
                row.count,
                stars = STARS as usize
            ),
        );
    }
}

fn render_missed(out: &mut String, missed: &Missed) {
    let Missed {
        ends_without_start,
        starts_without_end,
        open_at_gap,
        open_at_end,
        nested,
        probe_misses,
        dropped,
        lost_events,
    } = *missed;
    let lines = [
        (nested, "nested in another call of the same function by the same task, each measured"),
        (open_at_end, "still open when tracing ended"),
        (ends_without_start, "ends without a start: begun before tracing, or the start was missed"),
        (starts_without_end, "starts without an end, or started again before it"),
        (probe_misses, "missed by the kernel's probes (kprobe_profile)"),
        (dropped, "dropped because a table was full"),
        (open_at_gap, "open where events were lost"),
        (
            lost_events,
            "events lost because the kernel's buffers were full: try a larger --buffer-size, or --in-kernel",
        ),
    ];
    for (count, what) in lines.into_iter().filter(|(count, _)| *count > 0) {
        line(out, format_args!("{count} {what}"));
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_looks_like_funclatencys() {
        let mut histogram = Histogram::new(Unit::Microseconds, None);
        for us in [1, 5, 5, 6, 9] {
            histogram.record(us * 1000);
        }
        let histograms = vec![NamedHistogram { name: "vfs_read".into(), histogram }];
        let missed = Missed { nested: 2, lost_events: 3, ..Missed::default() };
        let report = LatencyReport { mechanism: "kprobes".into(), histograms, missed, warnings: Vec::new() };
        let expected = "
Function = vfs_read
     usecs               : count     distribution
         0 -> 1          : 1        |*************                           |
         2 -> 3          : 0        |                                        |
         4 -> 7          : 3        |****************************************|
         8 -> 15         : 1        |*************                           |

avg = 5 usecs, total: 26 usecs, count: 5
min = 1, p50 = 5, max = 9
2 nested in another call of the same function by the same task, each measured
3 events lost because the kernel's buffers were full: try a larger --buffer-size, or --in-kernel
";
        assert_eq!(text(&report, true), expected);
    }

    #[test]
    fn wide_values_and_linear_rows_stay_in_their_columns() {
        let mut histogram = Histogram::new(Unit::Nanoseconds, None);
        histogram.record(1 << 40);
        let mut out = String::new();
        render_histogram(&mut out, &NamedHistogram { name: String::new(), histogram }, false);
        let bars: Vec<usize> = out.lines().filter_map(|line| line.find('|')).collect();
        assert!(bars.iter().all(|at| *at == bars[0]), "{out}");
        let mut histogram = Histogram::new(Unit::Milliseconds, Some(5));
        histogram.record(12_000_000);
        histogram.record(92_000_000);
        let mut out = String::new();
        render_histogram(&mut out, &NamedHistogram { name: String::new(), histogram }, false);
        assert!(out.contains("        10 -> 14         : 1        |****"), "{out}");
        assert_eq!(out.lines().filter(|line| line.trim() == "...").count(), 1, "{out}");
        assert_eq!(out.lines().filter(|line| line.contains("->")).count(), 2, "{out}");
    }
}
