//! The tables of reports and comparisons, for text and for web pages.

use pagehaul_present::number::{count, significant};
use pagehaul_present::{Cell, Table, Tone};

use super::figures::{datum, figure};
use pagehaul_reclaim::report::{
    self, Better, Change, Check, CommandResult, Comparison, ComparisonRow, ComparisonSection, Datum,
    LostReport, Section, Verdict,
};
use pagehaul_reclaim::stats::Summary;

/// The statistics of the command's figures.
pub(super) fn result(result: &CommandResult) -> Table {
    let mut table = Table::new(["", "min", "mean", "stddev", "max"]);
    for (name, values) in result.figures() {
        let Some(Summary { mean, stddev, min, max, .. }) = Summary::of(values) else { continue };
        let figures = [min, mean, stddev, max].map(|value| format!("{value:.2}"));
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    table
}

/// The rows of a section, with their spread if there were several runs.
pub(super) fn section(section: &Section) -> Table {
    let spread = section.rows.iter().any(|row| row.values.len() > 1);
    let header: &[&str] = if spread { &["", "mean", "stddev", "min", "max", ""] } else { &[] };
    let mut table = Table::new(header.iter().copied()).left([0, if spread { 5 } else { 2 }]);
    for row in &section.rows {
        let mut cells = vec![Cell::from(row.name.clone())];
        match Summary::of(&row.values) {
            Some(Summary { mean, stddev, min, max, count }) => {
                cells.push(figure(mean, row.unit).into());
                if spread {
                    cells.push(if count > 1 { significant(stddev) } else { String::new() }.into());
                    cells.extend([min, max].map(|value| Cell::from(figure(value, row.unit))));
                }
            }
            None => {
                cells.push(Cell::new("n/a", Tone::Soft));
                cells.extend((0..if spread { 3 } else { 0 }).map(|_| Cell::default()));
            }
        }
        let note = row.note.as_ref().map_or(String::new(), |note| format!("({note})"));
        cells.push(Cell::new(note, Tone::Soft));
        table.row(cells);
    }
    table
}

/// A table of figures.
pub(super) fn data(data: &report::Table) -> Table {
    let columns = data.columns.iter().enumerate();
    let left: Vec<usize> = columns.filter(|(_, column)| !column.number).map(|(at, _)| at).collect();
    let mut table = Table::new(data.columns.iter().map(|column| column.name)).left(left);
    let tone = |cell: &Datum| if *cell == Datum::None { Tone::Soft } else { Tone::Plain };
    table.rows(data.rows.iter().map(|row| row.iter().map(|cell| Cell::new(datum(cell), tone(cell)))));
    table
}

/// The trace against the kernel's counters.
pub(super) fn checks(checks: &[Check]) -> Table {
    let mut table = Table::new(["", "trace", "counted", "", "by"]).left([0, 3, 4]);
    for check in checks {
        let verdict = match check.verdict {
            Verdict::Equal => Cell::new("agrees", Tone::Good),
            Verdict::Close => Cell::new("close", Tone::Soft),
            Verdict::Differs => Cell::new("DIFFERS", Tone::Bad),
        };
        let note = check.note.filter(|_| check.verdict != Verdict::Equal);
        let note = note.map_or(String::new(), |note| format!(" ({note})"));
        table.row([
            Cell::from(check.what),
            significant(check.trace).into(),
            significant(check.counted).into(),
            verdict,
            Cell::new(format!("{}{note}", check.counters), Tone::Soft),
        ]);
    }
    table
}

/// What the trace does not hold.
pub(super) fn lost(lost: &LostReport) -> [(&'static str, u64); 8] {
    [
        ("events lost from the ring buffers", lost.events),
        ("events lost by the kernel's count", lost.counted_by_kernel),
        ("losses of unknown size", lost.gaps),
        ("damaged parts of the file", lost.damaged),
        ("events of unknown kinds", lost.unknown_events),
        ("unfinished intervals", lost.unfinished),
        ("begins or ends without the other", lost.unmatched),
        ("intervals with lost events inside", lost.uncertain),
    ]
}

/// One section of a comparison, two columns for each report: its figure, and how that has changed.
pub(super) fn comparison(comparison: &Comparison, section: &ComparisonSection) -> Table {
    let columns = comparison.columns.iter().flat_map(|column| {
        let lost = if column.lost { " (events lost)" } else { "" };
        [format!("{}{lost}", column.label), String::new()]
    });
    let left = (0..=comparison.columns.len()).map(|column| 2 * column);
    let mut table = Table::new([String::new()].into_iter().chain(columns)).left(left);
    for row in &section.rows {
        let changes =
            row.changes.iter().enumerate().flat_map(|(at, change)| change_cells(row, change, at == 0));
        table.row([Cell::from(row.name.clone())].into_iter().chain(changes));
    }
    table
}

fn change_cells(row: &ComparisonRow, change: &Change, base: bool) -> [Cell; 2] {
    let Some(summary) = change.summary else {
        return [Cell { title: change.note.clone(), ..Cell::new("n/a", Tone::Soft) }, Cell::default()];
    };
    let value = Cell::from(figure(summary.mean, row.unit));
    if base {
        return [value, Cell::default()];
    }
    let percent = match change.percent {
        None => "new".to_owned(),
        Some(0.0) => "0 %".to_owned(),
        Some(percent) => format!("{percent:+.2} %"),
    };
    let Some(difference) = change.difference.filter(|difference| difference.difference != 0.0) else {
        return [value, Cell::new(percent, Tone::Soft)];
    };
    let (word, tone) = match (difference.real, row.better, difference.difference > 0.0) {
        (false, ..) => ("~", Tone::Soft),
        (true, Better::Neither, _) => ("changed", Tone::Plain),
        (true, Better::Lower, false) | (true, Better::Higher, true) => ("better", Tone::Good),
        (true, ..) => ("worse", Tone::Bad),
    };
    let (low, high) = (significant(difference.low), significant(difference.high));
    [value, Cell::new(format!("{percent} [{low}, {high}] {word}"), tone)]
}

/// Explains the changes of a comparison.
pub(super) fn comparison_key(comparison: &Comparison) -> &'static str {
    if comparison.columns.iter().all(|column| column.runs > 1) {
        "Changes are of means against the first column. [low, high]: the 95 % interval of the difference (Welch). Better, \
         worse or changed: zero is outside; ~: no difference shown."
    } else {
        "Changes are against the first column. A single run does not show whether a change is significant: record with --repeat."
    }
}

/// The percentiles of stalls in milliseconds.
pub(super) fn percentiles(stalls: &report::Stalls) -> Vec<(String, String)> {
    let percentiles = stalls.percentiles_ms.iter();
    percentiles.map(|&(percent, ms)| (super::figures::percentile(percent), significant(ms))).collect()
}

/// How many stalls there were, and how long they took together.
pub(super) fn total(stalls: &report::Stalls) -> String {
    format!("{} in {} ms", count(stalls.count), significant(stalls.total_ms))
}
