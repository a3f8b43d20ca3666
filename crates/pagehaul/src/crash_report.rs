//! What a capture learns of the crash: `capture --triage`, `--facts`, `--exclude-per-cpu-lists`, `--erase` and
//! `--keep-…`.
//!
//! Another process makes each, before the capture allocates anything: if a damaged kernel makes it panic, run out of
//! memory or never end, the capture continues without it, or with `--erase` and `--keep-…` does not begin. For
//! `--triage` it also returns which pages the report is made of. They are written first, so that an incomplete dump
//! still explains the crash.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use pagehaul_capture::OwnerRules;
use pagehaul_erase::{Found, Subject};
use pagehaul_keep::Choice;
use pagehaul_run::{ChildOutput, output_unless};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::signals;

/// Memory that the report may take. 100,000 tasks take 64 MiB.
const MAX_MEMORY: u64 = 96 << 20;
/// Bytes of its output: the text, and the runs of pages.
const MAX_OUTPUT: u64 = 64 << 20;

/// What the process that makes the report returns.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct CrashReport {
    /// The report, one screen long.
    pub(crate) text: String,
    /// PFNs of the pages of the machine that it is made of, ascending, without duplicates.
    pub(crate) pages: Vec<Range<u64>>,
}

/// What the process that reads per-CPU lists returns.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct PerCpuFree {
    /// PFNs of free pages on per-CPU lists, ascending, without duplicates.
    pub(crate) pages: Vec<Range<u64>>,
    /// Why further pages on these lists are kept.
    pub(crate) skipped: Vec<String>,
}

/// The output of that process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome<T> {
    /// The report.
    Report(T),
    /// Why there is none.
    Error(String),
}

/// Makes the report of `source`, the arguments that name it, within `budget`.
pub(crate) fn report(source: &[OsString], budget: Duration) -> anyhow::Result<CrashReport> {
    let report: CrashReport = make(&["triage"], source, budget)?;
    Ok(CrashReport { pages: ascending(report.pages), ..report })
}

/// Makes the facts of `source` within `budget`, as JSON.
pub(crate) fn facts(source: &[OsString], budget: Duration) -> anyhow::Result<String> {
    make(&["facts"], source, budget)
}

/// Finds the free pages on per-CPU lists of `source` within `budget`.
pub(crate) fn per_cpu_free(source: &[OsString], budget: Duration) -> anyhow::Result<PerCpuFree> {
    let free: PerCpuFree = make(&["triage", "--per-cpu-lists"], source, budget)?;
    Ok(PerCpuFree { pages: ascending(free.pages), ..free })
}

/// Finds what of `subjects` is in `source` within `budget`.
pub(crate) fn erasure(subjects: &[Subject], source: &[OsString], budget: Duration) -> anyhow::Result<Found> {
    let names: Vec<_> = subjects.iter().map(|subject| subject.name()).collect();
    make(&["triage", &format!("--erasure={}", names.join(","))], source, budget)
}

/// Finds by what the owners of `choice` are known in `source` within `budget`.
pub(crate) fn owner_rules(
    choice: &Choice,
    source: &[OsString],
    budget: Duration,
) -> anyhow::Result<OwnerRules> {
    let choice = serde_json::to_string(choice).context("cannot write what is chosen as JSON")?;
    make(&["triage", &format!("--owner-rules={choice}")], source, budget)
}

fn make<T: DeserializeOwned>(command: &[&str], source: &[OsString], budget: Duration) -> anyhow::Result<T> {
    if budget.is_zero() {
        bail!("its time budget is 0");
    }
    let program =
        std::env::current_exe().context("cannot find the program that makes it (/proc/self/exe)")?;
    run(Command::new(program).arg0("pagehaul").args(command).arg("--for-capture").args(source), budget)
}

fn run<T: DeserializeOwned>(command: &mut Command, budget: Duration) -> anyhow::Result<T> {
    let ChildOutput { bytes, status } = output_unless(command, budget, MAX_OUTPUT, &signals::cancelled())?;
    match serde_json::from_slice(&bytes) {
        Ok(Outcome::Report(report)) => Ok(report),
        Ok(Outcome::Error(why)) => bail!(why),
        Err(_) => {
            let ended = status.map_or_else(String::new, |status| format!(" ({status})"));
            bail!("the process that makes it failed{ended}")
        }
    }
}

/// Sorts what the process returned, as a capture needs it.
fn ascending(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.retain(|run| run.start < run.end);
    runs.sort_unstable_by_key(|run| run.start);
    let mut end = 0;
    for run in &mut runs {
        run.start = run.start.max(end);
        end = end.max(run.end);
    }
    runs.retain(|run| run.start < run.end);
    runs
}

/// Limits the process that makes the report, which calls this first: the capture must not run out of memory because of it.
pub(crate) fn limit_process() {
    // Without a limit, the process ends after its time.
    pagehaul_sandbox::limit_memory(MAX_MEMORY);
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, budget: Duration) -> String {
        let made: anyhow::Result<CrashReport> = run(Command::new("sh").args(["-c", script]), budget);
        made.map_or_else(|error| error.to_string(), |report| report.text)
    }

    #[test]
    fn faults_of_the_process_are_errors() {
        let long = Duration::from_secs(60);
        assert_eq!(shell("printf '{\"Report\":{\"text\":\"it\",\"pages\":[]}}'", long), "it");
        assert_eq!(shell("printf '{\"Error\":\"no symbols\"}'", long), "no symbols");
        assert_eq!(shell("printf nonsense", long), "the process that makes it failed (exit status: 0)");
        assert!(shell("kill -ABRT $$", long).contains("signal: 6"));
        assert_eq!(shell("exec sleep 100", Duration::from_millis(20)), "it takes longer than 20ms");
    }

    #[test]
    fn no_budget_starts_no_process() {
        let refused = report(&["/nonexistent".into()], Duration::ZERO).unwrap_err();
        assert_eq!(refused.to_string(), "its time budget is 0");
    }

    #[test]
    fn runs_become_ascending() {
        assert_eq!(ascending(vec![8..9, 7..7, 1..4, 2..3, 3..6]), [1..4, 4..6, 8..9]);
    }
}
