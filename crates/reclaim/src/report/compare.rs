//! Reports side by side.

use serde::Serialize;

use super::document::ReclaimReport;
use super::section::{Better, Row, Unit};
use crate::stats::{Difference, Summary, welch};

/// Several reports, the first of which is what the others are compared with.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What is compared.
    pub columns: Vec<ComparisonColumn>,
    /// The command's result, then the sections of the reports.
    pub sections: Vec<ComparisonSection>,
}

/// A column: a kernel, a setting.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonColumn {
    /// Its name.
    pub label: String,
    /// The kernel.
    pub release: Option<String>,
    /// Values behind each figure.
    pub runs: usize,
    /// Events are missing in it.
    pub lost: bool,
}

/// Rows under a heading.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonSection {
    /// The heading.
    pub title: String,
    /// The rows.
    pub rows: Vec<ComparisonRow>,
}

/// A figure of all columns.
#[derive(Debug, Clone, Serialize)]
pub struct ComparisonRow {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// What is good.
    pub better: Better,
    /// By column.
    pub changes: Vec<Change>,
}

/// A figure and how it compares with the first column's.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// Over runs; none if it cannot be had.
    pub summary: Option<Summary>,
    /// Change of the mean against the first column, per cent; none if one is missing or the first is zero and this isn't.
    pub percent: Option<f64>,
    /// Welch's 95 % interval of the difference, for two runs or more on both sides.
    pub difference: Option<Difference>,
    /// Why the figure cannot be had.
    pub note: Option<String>,
}

impl Comparison {
    /// Compares reports with the first.
    pub fn new(reports: &[ReclaimReport]) -> Self {
        let column = |report: &ReclaimReport| ComparisonColumn {
            label: report.label.clone(),
            release: report.source.machine.release.clone(),
            runs: report
                .sections
                .iter()
                .flat_map(|section| &section.rows)
                .map(|row| row.values.len())
                .max()
                .unwrap_or(0),
            lost: report.lost.any(),
        };
        let mut sections = Vec::new();
        if reports.iter().any(|report| report.result.is_some()) {
            sections.push(ComparisonSection { title: "Command".into(), rows: command_rows(reports) });
        }
        if let Some(first) = reports.first() {
            for section in &first.sections {
                let rows = section.rows.iter().map(|row| {
                    let same = |report: &ReclaimReport| find(report, section.title, &row.name).cloned();
                    let rows: Vec<Option<Row>> = reports.iter().map(same).collect();
                    compare(&row.name, row.unit, row.better, &rows)
                });
                sections.push(ComparisonSection { title: section.title.into(), rows: rows.collect() });
            }
        }
        Self { columns: reports.iter().map(column).collect(), sections }
    }
}

fn find<'a>(report: &'a ReclaimReport, section: &str, name: &str) -> Option<&'a Row> {
    report.sections.iter().find(|known| known.title == section)?.rows.iter().find(|row| row.name == name)
}

fn command_rows(reports: &[ReclaimReport]) -> Vec<ComparisonRow> {
    let names = reports
        .iter()
        .find_map(|report| report.result.as_ref())
        .map(|result| result.figures().map(|(name, _)| name));
    let rows = names.into_iter().flatten().enumerate().map(|(at, name)| {
        let unit = if at < 3 { Unit::Seconds } else { Unit::Count };
        let better = if at < 3 { Better::Lower } else { Better::Neither };
        let row = |report: &ReclaimReport| {
            let values = report.result.as_ref().map(|result| result.figures()[at].1.to_vec());
            Some(Row { name: name.into(), unit, better, values: values?, note: None })
        };
        let rows: Vec<Option<Row>> = reports.iter().map(row).collect();
        compare(name, unit, better, &rows)
    });
    rows.collect()
}

fn compare(name: &str, unit: Unit, better: Better, rows: &[Option<Row>]) -> ComparisonRow {
    let first = rows.first().and_then(|row| row.as_ref()).map(|row| row.values.clone()).unwrap_or_default();
    let base = Summary::of(&first);
    let changes = rows.iter().enumerate().map(|(at, row)| {
        let values = row.as_ref().map(|row| row.values.as_slice()).unwrap_or_default();
        let summary = Summary::of(values);
        let percent = match (base, summary) {
            (Some(base), Some(this)) if base.mean != 0.0 => Some(100.0 * (this.mean - base.mean) / base.mean),
            (Some(_), Some(this)) if this.mean == 0.0 => Some(0.0),
            _ => None,
        };
        let difference = if at == 0 { None } else { welch(&first, values) };
        Change { summary, percent, difference, note: row.as_ref().and_then(|row| row.note.clone()) }
    });
    ComparisonRow { name: name.to_owned(), unit, better, changes: changes.collect() }
}
