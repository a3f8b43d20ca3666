//! Compares recordings with the kernels' own counters.

use super::output;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::fmt::Write;
use std::path::Path;

/// A recording of one test on one kernel.
pub struct Recording<'a> {
    pub kernel: &'a str,
    pub test: &'a str,
    pub file: &'a Path,
}

/// The part of `pagehaul reclaim report --json` that the comparison uses.
#[derive(Deserialize)]
struct Report {
    checks: Vec<Check>,
    lost: Lost,
}

#[derive(Deserialize)]
struct Lost {
    events: u64,
}

#[derive(Deserialize)]
struct Check {
    what: String,
    trace: f64,
    counted: f64,
    counters: String,
    verdict: String,
    note: Option<String>,
}

/// Returns a table for each kernel, and the number of page totals that differ from `/proc/vmstat`.
pub fn section(pagehaul: &Path, recordings: &[Recording<'_>]) -> Result<(String, usize)> {
    let mut tables = String::new();
    let (mut equal, mut unequal, mut notes) = (0, 0, Vec::new());
    for of_one in recordings.chunk_by(|a, b| a.kernel == b.kernel) {
        let reports = of_one.iter().map(|one| report(pagehaul, one.file)).collect::<Result<Vec<_>>>()?;
        let kernel = of_one.first().map_or("", |one| one.kernel);
        let tests: Vec<&str> = of_one.iter().map(|one| one.test).collect();
        let _ = write!(
            tables,
            "\n| {kernel} | {} | counters |\n|{}\n",
            tests.join(" | "),
            "---|".repeat(tests.len() + 2)
        );
        for (at, first) in reports.first().map_or(&[][..], |report| &report.checks).iter().enumerate() {
            let checks: Vec<&Check> = reports.iter().filter_map(|report| report.checks.get(at)).collect();
            let cells: Vec<String> = checks.iter().map(|check| check.cell()).collect();
            let _ = writeln!(tables, "| {} | {} | {} |", first.what, cells.join(" | "), first.counters);
            for check in checks {
                if check.what.starts_with("pages scanned") || check.what.starts_with("pages reclaimed") {
                    *(if check.verdict == "equal" { &mut equal } else { &mut unequal }) += 1;
                }
                if let Some(note) = check.note.as_ref().filter(|_| check.verdict != "equal") {
                    let note = format!("{}: {note}", check.what);
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
            }
        }
        let lost: Vec<String> = reports.iter().map(|report| report.lost.events.to_string()).collect();
        let _ = writeln!(tables, "| events lost | {} | |", lost.join(" | "));
    }
    let mut text = String::from("\n## Against the kernels' own counters\n");
    let _ = write!(
        text,
        "From the events, then from `/proc/vmstat` and `/proc/pressure/memory`, taken before and after. Pages scanned and reclaimed are \
         equal to the last page in {equal} of {} comparisons.\n{tables}",
        equal + unequal
    );
    if !notes.is_empty() {
        let _ = write!(text, "\nWhere they differ:\n");
        for note in notes {
            let _ = writeln!(text, "- {note}");
        }
    }
    Ok((text, unequal))
}

fn report(pagehaul: &Path, file: &Path) -> Result<Report> {
    let path = file.to_string_lossy();
    let json = output(pagehaul, &["reclaim", "report", "--json", &path])?;
    serde_json::from_str(&json).with_context(|| format!("the report of {path}"))
}

impl Check {
    fn cell(&self) -> String {
        let sign = match (self.what.contains("at most"), self.verdict.as_str()) {
            (true, "equal") => "≤",
            (_, "equal") => "=",
            (_, "close") => "≈",
            _ => "≠",
        };
        format!("{} {sign} {}", number(self.trace), number(self.counted))
    }
}

/// Formats a number without decimals, in groups of three digits.
fn number(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_show_what_is_equal() {
        let check = |what: &str, trace, counted, verdict: &str| Check {
            what: what.into(),
            trace,
            counted,
            counters: String::new(),
            verdict: verdict.into(),
            note: None,
        };
        assert_eq!(check("pages", 1_234_567.0, 1_234_567.0, "equal").cell(), "1,234,567 = 1,234,567");
        assert_eq!(check("ms, at most PSI's", 3.2, 100.0, "equal").cell(), "3 ≤ 100");
        assert_eq!(check("pages", 999.0, 1000.0, "close").cell(), "999 ≈ 1,000");
        assert_eq!(check("pages", 1.0, 2000.0, "differs").cell(), "1 ≠ 2,000");
    }
}
