//! Finalizes all parts, and reports on them.

use std::ops::Range;
use std::path::Path;

use pagehaul_kdump::write::SplitPartWriter;
use pagehaul_output::WriteError;
use pagehaul_vmcore::Source;

use super::plan::SplitPlan;
use super::writer::Written;
use crate::job::Job;
use crate::report::{CaptureReport, PartReport};
use crate::report::{Clock, outcome_at_end};
use crate::selection::Tally;
use crate::write::WriteStats;
use pagehaul_run::Outcome;

/// Returns the report of an output to which nothing is written yet.
pub(super) fn new_part(path: &Path) -> PartReport {
    PartReport {
        output: path.display().to_string(),
        outcome: Outcome::Complete,
        exists: false,
        start_pfn: 0,
        end_pfn: 0,
        pages: 0,
        pages_written: 0,
        stored_bytes: 0,
        output_bytes: 0,
    }
}

/// The pages of all parts, and those in none.
pub(super) struct Total {
    stats: WriteStats,
    /// Ranges of PFNs with pages in no part.
    left: Vec<Range<u64>>,
}

impl Total {
    /// Of parts that have all pages between them, or end early.
    pub(super) fn of(stats: WriteStats) -> Self {
        Self { stats, left: Vec::new() }
    }
}

/// Finalizes all parts. The incomplete mark is about the whole set: it is cleared in all parts if together they hold every
/// page, else in none.
pub(super) fn conclude(
    source: &Source,
    written: Vec<(usize, Written<'_>)>,
    mut plan: SplitPlan,
    stopped: Option<Outcome>,
    reports: &mut [PartReport],
) -> Total {
    let left = plan.close_gaps();
    let mut total = Total { stats: WriteStats::new(Outcome::Complete), left: Vec::new() };
    total.left = left.iter().map(|gap| plan.units().pfns(gap)).collect();
    let mut parts = Vec::new();
    let mut lost = plan.units().before(plan.units().len());
    for (part, (index, written)) in written.into_iter().enumerate() {
        let report = &mut reports[index];
        report.outcome = written.outcome;
        let range = plan.range(part);
        let pfns = plan.units().pfns(&range);
        if !written.sealed || pfns.is_empty() {
            // It holds nothing of use, and readers refuse an empty part next to a part that is a dump by itself.
            written.file.output().discard();
            continue;
        }
        let stats = written.stats.clone();
        *report = PartReport {
            exists: true,
            start_pfn: pfns.start,
            end_pfn: pfns.end,
            pages: plan.units().kept(range),
            pages_written: stats.written - stats.unreadable_pages,
            stored_bytes: stats.stored_bytes,
            output_bytes: written.file.size(),
            ..report.clone()
        };
        lost -= stats.written.min(lost);
        let pages = stats.written - stats.unreadable_pages;
        total.stats.add_all(stats, pages);
        parts.push((index, written.file, pfns));
    }
    total.stats.outcome = if lost > 0 {
        let failure = reports.iter().map(|report| &report.outcome).find(|outcome| !outcome.is_success());
        stopped.or_else(|| failure.cloned()).unwrap_or_else(|| {
            Outcome::ReadFailed(format!("{lost} pages are in no part, though no part failed"))
        })
    } else {
        outcome_at_end(source, total.stats.unreadable_pages)
    };
    let complete = total.stats.outcome.is_success();
    if let Err((index, why)) = finish_set(&mut parts, complete) {
        reports[index].outcome = why.clone();
        if total.stats.outcome.is_at_end() {
            total.stats.outcome = why;
        }
    }
    total
}

/// Writes the final ranges of all parts, and clears their incomplete marks if the set is `complete`. If a write fails, all
/// stay marked; returns the first part that failed, and why.
fn finish_set(
    parts: &mut [(usize, SplitPartWriter<'_>, Range<u64>)],
    complete: bool,
) -> Result<(), (usize, Outcome)> {
    let failed = |index: usize, file: &SplitPartWriter<'_>, error: &WriteError| {
        (index, error.outcome(&file.output().path().display().to_string()))
    };
    let mut result = Ok(());
    for (index, file, pfns) in parts.iter_mut() {
        let written = file.write_range(pfns.clone());
        result = result.and(written.map_err(|error| failed(*index, file, &error)));
    }
    if !complete || result.is_err() {
        return result;
    }
    for (index, file, _) in parts.iter_mut() {
        let written = file.write_status(true);
        result = result.and(written.map_err(|error| failed(*index, file, &error)));
    }
    if result.is_err() {
        // The disk that failed may fail again; the other parts must not say that the set is complete.
        parts.iter_mut().for_each(|(_, file, _)| drop(file.write_status(false)));
    }
    result
}

pub(super) fn report(
    job: &Job<'_>,
    parts: Vec<PartReport>,
    tally: &Tally,
    total: Total,
    clock: &Clock,
) -> CaptureReport {
    let complete = total.stats.outcome.is_success();
    let bytes = parts.iter().filter(|part| part.exists).map(|part| part.output_bytes).sum();
    let names: Vec<&str> = parts.iter().filter(|part| part.exists).map(|part| part.output.as_str()).collect();
    let mut report = job.report(Some(Path::new(&names.join(" "))), tally, total.stats, bytes, clock);
    for part in &parts {
        let why = match &part.outcome {
            Outcome::DiskFull(why) | Outcome::WriteFailed(why) | Outcome::ReadFailed(why) => why,
            Outcome::SizeLimit => "its size limit is reached",
            _ => continue,
        };
        let rest = match (complete, part.exists) {
            (true, true) => "the other parts took what it has no room for",
            (true, false) => "it does not belong to the set: the other parts hold every page",
            (false, true) => "its part ends there",
            (false, false) => "it holds nothing",
        };
        report.warnings.push(format!("{}: {why}; {rest}", part.output));
    }
    for gap in &total.left {
        report.warnings.push(format!(
            "the pages of PFNs {:#x} to {:#x} are in no part",
            gap.start,
            gap.end.saturating_sub(1)
        ));
    }
    report.parts = parts;
    report
}
