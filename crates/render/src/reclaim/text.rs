//! Reports in a terminal.

use std::fmt::Write;

use pagehaul_present::number::{count, significant};
use pagehaul_present::printable;
use pagehaul_present::time::microseconds;

use super::{figures, tables};
use crate::warnings;
use pagehaul_reclaim::report::{Comparison, ReclaimReport, Stalls};

/// Formats a report as text.
pub fn report(report: &ReclaimReport) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report);
    out
}

/// Formats a comparison as text.
pub fn comparison(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = compare(&mut out, comparison);
    out
}

type Written = Result<(), std::fmt::Error>;

fn write(out: &mut String, report: &ReclaimReport) -> Written {
    head(out, report)?;
    if let Some(result) = &report.result {
        let runs = figures::runs(result.exits.len());
        writeln!(out, "\nCommand, {runs}; exit {}\n{}", exits(&result.exits), tables::result(result))?;
    } else {
        writeln!(out)?;
    }
    for section in &report.sections {
        writeln!(out, "{}\n{}", section.title, tables::section(section))?;
    }
    report.stalls.iter().try_for_each(|class| stalls(out, class))?;
    for table in &report.tables {
        writeln!(out, "{}\n {}\n{}", table.title, table.about, tables::data(table))?;
        if table.omitted_rows > 0 {
            out.pop();
            writeln!(out, " and {} more\n", table.omitted_rows)?;
        }
    }
    timeline(out, report)?;
    if report.checks.is_empty() {
        writeln!(out, "Not checked against the kernel's counters: the trace does not hold them\n")?;
    } else {
        writeln!(out, "Checked against the kernel's counters\n{}", tables::checks(&report.checks))?;
    }
    let lost = tables::lost(&report.lost).into_iter().filter(|(_, value)| *value > 0);
    let lost: Vec<String> = lost.map(|(name, value)| format!("{} {name}", count(value))).collect();
    writeln!(out, "Missing: {}", if lost.is_empty() { "nothing".into() } else { lost.join(", ") })
}

fn head(out: &mut String, report: &ReclaimReport) -> Written {
    let source = &report.source;
    let (files, events) = (source.files.join(", "), count(source.events));
    let files = printable(&files);
    writeln!(out, "{files}: {}, {events} events in {:.2} s", source.format, source.duration_s)?;
    let machine = figures::machine(source);
    if !machine.is_empty() {
        writeln!(out, "{}", printable(&machine.join(", ")))?;
    }
    if !source.machine.command.is_empty() {
        writeln!(out, "$ {}", printable(&source.machine.command.join(" ")))?;
    }
    out.write_str(&warnings::lines(&report.warnings))
}

/// "0" or "0, 0, 1".
fn exits(exits: &[String]) -> String {
    match exits {
        [first, rest @ ..] if rest.iter().all(|exit| exit == first) => first.clone(),
        _ => exits.join(", "),
    }
}

/// Width of the longest bar.
const BAR: usize = 40;

fn stalls(out: &mut String, stalls: &Stalls) -> Written {
    writeln!(out, "Stalls, {}: {}", stalls.name, tables::total(stalls))?;
    let percentiles = tables::percentiles(stalls).into_iter().map(|(name, ms)| format!("{name} {ms}"));
    let percentiles: Vec<String> = percentiles.collect();
    if !percentiles.is_empty() {
        writeln!(out, " {} ms", percentiles.join("  "))?;
    }
    let most = stalls.histogram.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    for bucket in &stalls.histogram {
        let width = (bucket.count as f64 / most as f64 * BAR as f64).round() as usize;
        let range = format!("{} to {}", microseconds(bucket.from_us), microseconds(bucket.to_us + 1));
        writeln!(out, " {range:>20} {:>9} |{:<BAR$}|", count(bucket.count), "#".repeat(width))?;
    }
    writeln!(out)
}

/// Columns of a terminal that the timeline takes.
const WIDTH: usize = 72;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn timeline(out: &mut String, report: &ReclaimReport) -> Written {
    let timeline = &report.timeline;
    let lines = [
        ("tasks in direct reclaim", &timeline.direct),
        ("in other reclaim", &timeline.memcg),
        ("throttled in reclaim", &timeline.throttled),
        ("kswapds awake", &timeline.kswapd),
        ("MiB/s by tasks", &timeline.task_mib_s),
        ("MiB/s by kswapd", &timeline.kswapd_mib_s),
    ];
    let shown: Vec<_> = lines.iter().filter(|(_, values)| values.iter().any(|&value| value > 0.0)).collect();
    if shown.is_empty() {
        return Ok(());
    }
    let seconds = timeline.slice_s * timeline.direct.len() as f64;
    writeln!(out, "Over {seconds:.2} s; full height at the right")?;
    for (name, values) in shown {
        // Means over equal parts of the time.
        let part = values.len().div_ceil(WIDTH).max(1);
        let means: Vec<f64> =
            values.chunks(part).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect();
        let most = means.iter().copied().fold(0.0, f64::max);
        let level = |&mean: &f64| {
            let level = (mean / most * 8.0).ceil() as usize;
            LEVELS.get(level).copied().unwrap_or('█')
        };
        let bars: String = means.iter().map(level).collect();
        writeln!(out, " {name:<24}|{bars}| {}", significant(most))?;
    }
    writeln!(out)
}

fn compare(out: &mut String, comparison: &Comparison) -> Written {
    for section in &comparison.sections {
        writeln!(out, "{}\n{}", section.title, tables::comparison(comparison, section))?;
    }
    for column in &comparison.columns {
        let release = column.release.as_deref().unwrap_or("kernel unknown");
        writeln!(out, "{}: {release}, {}", column.label, figures::runs(column.runs))?;
    }
    writeln!(out, "{}", tables::comparison_key(comparison))
}
