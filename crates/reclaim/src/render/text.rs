//! Reports in a terminal.

use std::fmt::Write;

use super::numbers::{count, datum, duration_us, figure, number};
use crate::report::{Better, Change, Check, Comparison, ComparisonRow, Report, StallClass, Table, Verdict};
use crate::stats::Summary;

/// A report as text.
pub fn report(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail: results are dropped.
    let _ = head(&mut out, report);
    let _ = result(&mut out, report);
    let _ = sections(&mut out, report);
    for class in &report.stalls {
        let _ = stalls(&mut out, class);
    }
    for table in &report.tables {
        let _ = self::table(&mut out, table);
    }
    let _ = timeline(&mut out, report);
    let _ = checks(&mut out, &report.checks);
    let _ = lost(&mut out, report);
    out
}

type Done = Result<(), std::fmt::Error>;

fn head(out: &mut String, report: &Report) -> Done {
    let source = &report.source;
    writeln!(
        out,
        "{}: {}, {} events in {:.2} s",
        source.files.join(", "),
        source.format,
        count(source.events),
        source.duration_s
    )?;
    let mut parts = Vec::new();
    parts.extend(source.release.as_ref().map(|release| format!("Linux {release}")));
    parts.extend(source.machine.clone());
    parts.extend(source.cpus.map(|cpus| format!("{cpus} CPUs")));
    parts.extend(
        source.mglru.map(|mglru| if mglru { "MGLRU".into() } else { "active and inactive lists".into() }),
    );
    parts.extend(source.clock.as_ref().map(|clock| format!("clock {clock}")));
    if !parts.is_empty() {
        writeln!(out, "{}", parts.join(", "))?;
    }
    if !source.command.is_empty() {
        writeln!(out, "$ {}", source.command.join(" "))?;
    }
    for remark in &report.remarks {
        writeln!(out, "! {remark}")?;
    }
    Ok(())
}

fn result(out: &mut String, report: &Report) -> Done {
    let Some(result) = &report.result else { return Ok(()) };
    let runs = result.exits.len();
    writeln!(
        out,
        "\nCommand, {runs} {}; exit {}",
        if runs == 1 { "run" } else { "runs" },
        exits(&result.exits)
    )?;
    let mut rows = vec![["", "min", "mean", "stddev", "max"].map(str::to_owned).to_vec()];
    for (name, values) in result.figures() {
        let Some(Summary { mean, stddev, min, max, .. }) = Summary::of(values) else { continue };
        let mut row = vec![name.to_owned()];
        row.extend([min, mean, stddev, max].map(|value| format!("{value:.2}")));
        rows.push(row);
    }
    grid(out, &rows, |column| column > 0)
}

/// "0" or "0, 0, 1".
fn exits(exits: &[String]) -> String {
    match exits {
        [first, rest @ ..] if rest.iter().all(|exit| exit == first) => first.clone(),
        _ => exits.join(", "),
    }
}

fn sections(out: &mut String, report: &Report) -> Done {
    for section in &report.sections {
        writeln!(out, "\n{}", section.title)?;
        let spread = section.rows.iter().any(|row| row.values.len() > 1);
        let mut rows = Vec::new();
        if spread {
            rows.push(["", "mean", "stddev", "min", "max", ""].map(str::to_owned).to_vec());
        }
        for row in &section.rows {
            let note = row.note.as_ref().map_or(String::new(), |note| format!("({note})"));
            let mut cells = vec![row.name.clone()];
            match Summary::of(&row.values) {
                Some(Summary { mean, stddev, min, max, count }) => {
                    cells.push(figure(mean, row.unit));
                    if spread {
                        cells.push(if count > 1 { number(stddev) } else { String::new() });
                        cells.extend([figure(min, row.unit), figure(max, row.unit)]);
                    }
                }
                None => cells.extend(
                    std::iter::once("n/a".to_owned())
                        .chain(spread.then(String::new))
                        .chain(spread.then(String::new))
                        .chain(spread.then(String::new)),
                ),
            }
            cells.push(note);
            rows.push(cells);
        }
        let last = rows.last().map_or(0, Vec::len).saturating_sub(1);
        grid(out, &rows, |column| column > 0 && column < last)?;
    }
    Ok(())
}

/// Width of the longest bar.
const BAR: usize = 40;

fn stalls(out: &mut String, class: &StallClass) -> Done {
    writeln!(out, "\nStalls, {}: {} in {} ms", class.name, count(class.count), number(class.total_ms))?;
    let percentile = |&(percent, ms): &(f64, f64)| {
        let name = if percent >= 100.0 { "max".into() } else { format!("p{percent}") };
        format!("{name} {}", number(ms))
    };
    let percentiles: Vec<String> = class.percentiles_ms.iter().map(percentile).collect();
    if !percentiles.is_empty() {
        writeln!(out, "  {} ms", percentiles.join("  "))?;
    }
    let most = class.histogram.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    for bucket in &class.histogram {
        let width = (bucket.count as f64 / most as f64 * BAR as f64).round() as usize;
        let range = format!("{} to {}", duration_us(bucket.from_us), duration_us(bucket.to_us + 1));
        writeln!(out, "  {range:>20} {:>9} |{:<BAR$}|", count(bucket.count), "#".repeat(width))?;
    }
    Ok(())
}

fn table(out: &mut String, table: &Table) -> Done {
    writeln!(out, "\n{}\n  {}", table.title, table.about)?;
    let mut rows = vec![table.columns.iter().map(|column| column.name.to_owned()).collect::<Vec<_>>()];
    rows.extend(table.rows.iter().map(|row| row.iter().map(datum).collect()));
    grid(out, &rows, |column| table.columns.get(column).is_some_and(|column| column.number))?;
    if table.left_out > 0 {
        writeln!(out, "  and {} more", table.left_out)?;
    }
    Ok(())
}

/// Columns of a terminal the timeline takes.
const WIDTH: usize = 72;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

fn timeline(out: &mut String, report: &Report) -> Done {
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
    writeln!(
        out,
        "\nOver {:.2} s; full height at the right",
        timeline.slice_s * timeline.direct.len() as f64
    )?;
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
        writeln!(out, "  {name:<24}|{bars}| {}", number(most))?;
    }
    Ok(())
}

fn checks(out: &mut String, checks: &[Check]) -> Done {
    if checks.is_empty() {
        return writeln!(out, "\nNot checked against the kernel's counters: the trace does not hold them");
    }
    writeln!(out, "\nChecked against the kernel's counters")?;
    let mut rows = vec![["", "trace", "counted", "", ""].map(str::to_owned).to_vec()];
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Equal => "agrees",
            Verdict::Close => "close",
            Verdict::Differs => "DIFFERS",
        };
        let note = check.note.filter(|_| check.verdict != Verdict::Equal);
        let note = note.map_or_else(|| check.counters.clone(), |note| format!("{} ({note})", check.counters));
        rows.push(vec![
            check.what.to_owned(),
            number(check.trace),
            number(check.counted),
            verdict.into(),
            note,
        ]);
    }
    grid(out, &rows, |column| column == 1 || column == 2)
}

fn lost(out: &mut String, report: &Report) -> Done {
    let lost = &report.lost;
    writeln!(
        out,
        "\nLost: {} events ({} counted by the kernel), {} gaps, {} damaged parts; {} unfinished stretches, {} unmatched, {} uncertain",
        count(lost.events),
        count(lost.counted_by_kernel),
        lost.gaps,
        lost.damaged,
        lost.unfinished,
        lost.unmatched,
        lost.uncertain
    )
}

/// A comparison as text.
pub fn comparison(comparison: &Comparison) -> String {
    let mut out = String::new();
    let _ = compare(&mut out, comparison);
    out
}

fn compare(out: &mut String, comparison: &Comparison) -> Done {
    let several = comparison.columns.iter().all(|column| column.runs > 1);
    for section in &comparison.sections {
        let mut rows = Vec::new();
        let mut header = vec![section.title.clone()];
        for column in &comparison.columns {
            header.push(if column.lost {
                format!("{} (events lost)", column.label)
            } else {
                column.label.clone()
            });
            header.push(String::new());
        }
        rows.push(header);
        for row in &section.rows {
            let mut cells = vec![row.name.clone()];
            for change in &row.changes {
                cells.extend(change_cells(row, change));
            }
            rows.push(cells);
        }
        grid(out, &rows, |column| column > 0 && column % 2 == 1)?;
        writeln!(out)?;
    }
    for column in &comparison.columns {
        let release = column.release.as_deref().unwrap_or("kernel unknown");
        writeln!(
            out,
            "{}: {release}, {} {}",
            column.label,
            column.runs,
            if column.runs == 1 { "run" } else { "runs" }
        )?;
    }
    if several {
        writeln!(
            out,
            "Changes are of means against the first column. [low, high]: 95 % interval of the change (Welch); better, worse or"
        )?;
        writeln!(out, "changed: zero is not in it; ~: the runs do not tell.")?;
    } else {
        writeln!(
            out,
            "Changes are against the first column. Single runs do not tell whether a change is real: record with --repeat."
        )?;
    }
    Ok(())
}

/// The figure, and its change.
fn change_cells(row: &ComparisonRow, change: &Change) -> [String; 2] {
    let Some(summary) = change.summary else { return ["n/a".into(), String::new()] };
    let percent = change.percent.map_or_else(|| "(new)".to_owned(), |percent| format!("({percent:.2}%)"));
    let sure = match (&change.difference, change.percent) {
        (Some(difference), Some(_)) if difference.difference != 0.0 => {
            let word = match (difference.real, row.better, difference.difference > 0.0) {
                (false, ..) => "~",
                (true, Better::Neither, _) => "changed",
                (true, Better::Lower, false) | (true, Better::Higher, true) => "better",
                (true, ..) => "worse",
            };
            format!(" [{}, {}] {word}", number(difference.low), number(difference.high))
        }
        _ => String::new(),
    };
    [figure(summary.mean, row.unit), format!("{percent}{sure}")]
}

/// Rows in aligned columns, two spaces in.
fn grid(out: &mut String, rows: &[Vec<String>], right: impl Fn(usize) -> bool) -> Done {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::from(" ");
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if right(column) { write!(line, " {cell:>width$}")? } else { write!(line, " {cell:<width$}")? }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
