//! What `validate_process.py --report` found: lines of JSON, each of which names its part.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fmt;

/// The lines, by part, in the order of the run.
#[derive(Debug, Default)]
pub struct Report {
    parts: Vec<Part>,
}

#[derive(Debug, Default)]
struct Part {
    name: String,
    passed: usize,
    skipped: Vec<String>,
    restarts: usize,
    /// Milliseconds for which the processes of each checkpoint were frozen.
    frozen: Vec<f64>,
    pauses: Vec<(String, Vec<f64>)>,
    /// How it ended, and after how many seconds.
    end: Option<(String, f64)>,
}

/// A line has the part and one of the others.
#[derive(Deserialize)]
struct Line {
    part: String,
    passed: Option<String>,
    skipped: Option<String>,
    restart: Option<u32>,
    checkpoint: Option<Checkpoint>,
    pause: Option<String>,
    #[serde(default)]
    milliseconds: Vec<f64>,
    ended: Option<String>,
    #[serde(default)]
    seconds: f64,
}

/// The report of `pagehaul checkpoint --json`, as far as it is shown.
#[derive(Deserialize)]
struct Checkpoint {
    frozen_seconds: f64,
}

impl Report {
    /// Parses the lines.
    pub fn read(text: &str) -> Result<Report> {
        let mut report = Report::default();
        for line in text.lines() {
            let line: Line = serde_json::from_str(line).with_context(|| line.to_owned())?;
            report.add(line);
        }
        Ok(report)
    }

    fn add(&mut self, line: Line) {
        if self.parts.last().is_none_or(|part| part.name != line.part) {
            self.parts.push(Part { name: line.part, ..Part::default() });
        }
        let Some(part) = self.parts.last_mut() else { return };
        part.passed += usize::from(line.passed.is_some());
        part.restarts += usize::from(line.restart.is_some());
        part.skipped.extend(line.skipped);
        part.frozen.extend(line.checkpoint.map(|checkpoint| checkpoint.frozen_seconds * 1e3));
        part.pauses.extend(line.pause.map(|what| (what, line.milliseconds)));
        part.end = line.ended.map(|how| (how, line.seconds)).or(part.end.take());
    }

    /// Fails unless all parts passed, and those that were wanted are there.
    pub fn check(&self, wanted: &[String]) -> Result<()> {
        ensure!(!self.parts.is_empty(), "no part was run");
        for name in wanted {
            ensure!(self.parts.iter().any(|part| part.name == *name), "the part {name} was not run");
        }
        let failed: Vec<&str> =
            self.parts.iter().filter(|part| !part.is_passed()).map(|part| part.name.as_str()).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }
}

impl Part {
    fn is_passed(&self) -> bool {
        matches!(&self.end, Some((how, _)) if how == "passed")
    }
}

/// Median, least and most of times in milliseconds.
fn times(values: &[f64]) -> String {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or_default();
    match values.len() {
        0 => String::new(),
        count => {
            let median = f64::midpoint(at((count - 1) / 2), at(count / 2));
            format!("{median:.0} ({:.0} to {:.0})", at(0), at(count - 1))
        }
    }
}

impl fmt::Display for Report {
    /// Tables of Markdown, and why parts failed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| part | checks | restarts | frozen ms: median (least to most) | s | end |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for part in &self.parts {
            let (name, checks, restarts) = (&part.name, part.passed, part.restarts);
            let end = match (&part.end, part.skipped.is_empty()) {
                (None, _) => "not ended",
                (Some(_), _) if !part.is_passed() => "failed",
                (_, true) => "passed",
                (_, false) => "passed, something was skipped",
            };
            let seconds = part.end.as_ref().map_or(0.0, |(_, seconds)| *seconds);
            writeln!(
                f,
                "| {name} | {checks} | {restarts} | {} | {seconds:.0} | {end} |",
                times(&part.frozen)
            )?;
        }
        for (what, pauses) in self.parts.iter().flat_map(|part| &part.pauses) {
            writeln!(f, "pause of {what}, ms: {}", times(pauses))?;
        }
        for part in &self.parts {
            for what in &part.skipped {
                writeln!(f, "skipped: {}: {what}", part.name)?;
            }
            if let Some((how, _)) = part.end.as_ref().filter(|_| !part.is_passed()) {
                writeln!(f, "failed: {}: {how}", part.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"{"part": "events", "checkpoint": {"frozen_seconds": 0.25, "seconds": 1.0}}
{"part": "events", "restart": 1}
{"part": "events", "checkpoint": {"frozen_seconds": 0.5}}
{"part": "events", "restart": 2}
{"part": "events", "passed": "epoll"}
"#;
    const PASSED: &str = r#"{"part": "events", "ended": "passed", "seconds": 12.5}
"#;

    #[test]
    fn parts_are_counted() {
        let report = Report::read(&format!("{EVENTS}{PASSED}")).unwrap();
        report.check(&["events".into()]).unwrap();
        assert!(
            report.to_string().contains("| events | 1 | 2 | 375 (250 to 500) | 12 | passed |"),
            "{report}"
        );
    }

    #[test]
    fn a_part_that_failed_or_did_not_end_or_was_not_run_is_an_error() {
        let unended = Report::read(EVENTS).unwrap();
        assert!(unended.check(&[]).unwrap_err().to_string().contains("events"));
        let failed = r#"{"part": "tcp", "ended": "its state is wrong", "seconds": 1}"#;
        let report = Report::read(&format!("{EVENTS}{PASSED}{failed}")).unwrap();
        assert_eq!(report.check(&[]).unwrap_err().to_string(), "failed: tcp");
        assert!(report.to_string().contains("failed: tcp: its state is wrong"), "{report}");
        let report = Report::read(PASSED).unwrap();
        assert!(report.check(&["tcp".into()]).is_err());
        assert!(Report::read("").unwrap().check(&[]).is_err());
    }
}
