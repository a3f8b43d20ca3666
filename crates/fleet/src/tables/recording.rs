//! Tables of recordings: page reclaim and latencies of functions.

use std::collections::BTreeMap;

use pagehaul_facts::Missing;
use pagehaul_latency::{LatencyError, Options, Unit, trace_file};
use pagehaul_reclaim::model::{AllIntervals, Stall};
use pagehaul_reclaim::{ReclaimReport, ReportError, analyse_all};
use pagehaul_trace::{Input, TraceError, TraceFile, TraceInfo};
use serde::Serialize;

use super::{longs, texts};
use crate::names::{LATENCY, RECLAIM};
use crate::table::{Key, Table, Values};
use pagehaul_redact::{Names, REMOVED, Redaction};

/// Makes the tables of a recording, and the reasons for those that it lacks.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn recording(
    input: &Input,
    key: &Key,
    redaction: Option<&Redaction>,
) -> Result<(Vec<Table>, Vec<Missing>), TraceError> {
    let mut file = TraceFile::from_input(input.clone())?;
    let run = Run::new(file.info(), redaction);
    let (mut tables, mut missing) = (Vec::new(), Vec::new());
    let mut lacks = |names: &[&str], reason: String| {
        missing.extend(names.iter().map(|what| Missing { what: (*what).to_owned(), reason: reason.clone() }));
    };
    match analyse_all(&mut file, "the recording", "") {
        Ok((report, intervals)) => tables.extend([
            reclaim_runs(&report, &run, key),
            reclaim_figures(&report, key),
            reclaim_stalls(&intervals, &file.info().task_cgroups, key, redaction),
        ]),
        Err(ReportError::Trace(why)) => return Err(why),
        Err(why) => lacks(&RECLAIM, why.to_string()),
    }
    match latencies(input) {
        Ok(report) => tables.extend([latency_runs(&report, &run, key), latency_hist(&report, key)]),
        Err(why) => lacks(&LATENCY, why.to_string()),
    }
    Ok((tables, missing))
}

fn latencies(input: &Input) -> Result<pagehaul_latency::LatencyReport, LatencyError> {
    let options =
        Options { unit: Unit::Nanoseconds, step: None, by_function: true, pids: Vec::new(), buffer_kb: 0 };
    let mut file = TraceFile::from_input(input.clone())?;
    let functions = (&["*".to_owned()][..], file.info().symbols.clone());
    let mut found = None;
    let take = |_, report| {
        found = Some(report);
        Ok::<(), LatencyError>(())
    };
    trace_file::measure_functions(&mut file, functions, &options, trace_file::Intervals::default(), take)?;
    found.ok_or_else(|| LatencyError::NotInTrace { event: "of a function".into(), known: "none".into() })
}

/// What every kind of recording has.
struct Run {
    columns: [(&'static str, Values); 7],
}

impl Run {
    fn new(info: &TraceInfo, redaction: Option<&Redaction>) -> Self {
        let machine = &info.machine;
        let host = match (redaction, &machine.hostname) {
            (Some(redaction), Some(host)) => Some(redaction.name("host", host)),
            (_, host) => host.clone(),
        };
        let command = match redaction {
            _ if machine.command.is_empty() => None,
            Some(_) => Some(REMOVED.to_owned()),
            None => Some(machine.command.join(" ")),
        };
        Self {
            columns: [
                ("format", Values::text([Some(info.origin.to_string())])),
                ("host", Values::text([host])),
                ("release", Values::text([machine.release.clone()])),
                ("arch", Values::text([machine.machine.clone()])),
                ("cpus", Values::int([machine.cpus])),
                ("command", Values::text([command])),
                ("started", Values::Time(vec![started(info).and_then(|ns| i64::try_from(ns / 1000).ok())])),
            ],
        }
    }
}

/// Returns when a recording was begun: nanoseconds since 1970.
pub(crate) fn started(info: &TraceInfo) -> Option<u64> {
    info.begin.as_ref().map(|counters| counters.realtime_ns).filter(|ns| *ns > 0)
}

fn reclaim_runs(report: &ReclaimReport, run: &Run, key: &Key) -> Table {
    let source = &report.source;
    let lost = &report.lost;
    let elapsed = (0.0..9e9).contains(&source.duration_s).then_some((source.duration_s * 1e9) as i64);
    let columns = [
        ("elapsed_ns", Values::long([elapsed])),
        ("mglru", Values::Bool(vec![source.mglru])),
        ("events", Values::long([Some(source.events)])),
        ("lost_events", Values::long([Some(lost.events.max(lost.counted_by_kernel))])),
        ("gaps", Values::long([Some(lost.gaps)])),
        ("damaged", Values::long([Some(lost.damaged)])),
        ("unfinished", Values::long([Some(lost.unfinished)])),
        ("unmatched", Values::long([Some(lost.unmatched)])),
        ("uncertain", Values::long([Some(lost.uncertain)])),
        ("warnings", Values::texts([report.warnings.clone()])),
    ];
    Table::new("reclaim_runs", key, run.columns.clone().into_iter().chain(columns))
}

/// Figures of the report: their number changes with the kernel, so each is a row.
fn reclaim_figures(report: &ReclaimReport, key: &Key) -> Table {
    let sections = report.sections.iter();
    let rows = sections.flat_map(|section| section.rows.iter().map(move |row| (section.title, row)));
    let rows: Vec<_> = rows
        .flat_map(|(title, row)| {
            row.values.iter().enumerate().map(move |(at, value)| (title, row, at, *value))
        })
        .collect();
    let columns = [
        ("section", texts(&rows, |(title, ..)| *title)),
        ("figure", texts(&rows, |(_, row, ..)| row.name.as_str())),
        ("unit", Values::text(rows.iter().map(|(_, row, ..)| name(row.unit)))),
        ("run", Values::int(rows.iter().map(|(.., at, _)| Some(*at)))),
        ("value", Values::Double(rows.iter().map(|(.., value)| Some(*value)).collect())),
    ];
    Table::new("reclaim_figures", key, columns)
}

fn reclaim_stalls(
    intervals: &AllIntervals,
    cgroups: &BTreeMap<i32, String>,
    key: &Key,
    redaction: Option<&Redaction>,
) -> Table {
    let stalls = intervals.stalls.as_slice();
    let awake = intervals.kswapd.as_slice();
    let number = |get: fn(&Stall) -> u64| longs(stalls, get);
    let flag = |get: fn(&Stall) -> bool| Values::Bool(stalls.iter().map(|stall| Some(get(stall))).collect());
    let comm = |comm: &str| {
        redaction.map_or_else(|| comm.to_owned(), |redaction| redaction.task(comm, &Names::default()))
    };
    let cgroup = |pid: i32| {
        let path = cgroups.get(&pid)?;
        Some(redaction.map_or_else(|| path.clone(), |redaction| redaction.name("cgroup", path)))
    };
    let kind = stalls.iter().map(|stall| name(stall.reclaimer));
    let start = stalls.iter().map(|stall| stall.begin_ns).chain(awake.iter().map(|(_, begin, _)| *begin));
    let kswapd = awake.iter().map(|(_, begin, end)| end.saturating_sub(*begin));
    let node = stalls.iter().map(|_| None).chain(awake.iter().map(|(node, ..)| Some(*node)));
    let mut columns = [
        ("kind", Values::text(kind.chain(awake.iter().map(|_| Some("kswapd".to_owned()))))),
        ("start_ns", Values::long(start.map(Some))),
        ("duration_ns", Values::long(stalls.iter().map(|stall| stall.duration_ns).chain(kswapd).map(Some))),
        ("node", Values::int(node)),
        ("tid", Values::int(stalls.iter().map(|stall| Some(stall.pid)))),
        ("comm", texts(stalls, |stall| comm(&stall.comm))),
        ("cgroup", Values::text(stalls.iter().map(|stall| cgroup(stall.pid)))),
        ("order", Values::int(stalls.iter().map(|stall| Some(stall.order)))),
        ("throttled_ns", number(|stall| stall.throttled_ns)),
        ("shrinkers_ns", number(|stall| stall.shrinkers_ns)),
        ("compaction_ns", number(|stall| stall.compaction_ns)),
        ("scanned_pages", number(|stall| stall.scanned)),
        ("reclaimed_pages", number(|stall| stall.reclaimed)),
        ("written_folios", number(|stall| stall.written)),
        ("unfinished", flag(|stall| stall.unfinished)),
        ("uncertain", flag(|stall| stall.uncertain)),
    ];
    for (_, values) in &mut columns {
        values.pad(stalls.len() + awake.len());
    }
    Table::new("reclaim_stalls", key, columns)
}

fn latency_runs(report: &pagehaul_latency::LatencyReport, run: &Run, key: &Key) -> Table {
    let missed = &report.missed;
    let calls = report.histograms.iter().map(|found| found.histogram.count()).sum::<u64>();
    let columns = [
        ("calls", Values::long([Some(calls)])),
        ("lost_events", Values::long([Some(missed.lost_events)])),
        ("ends_without_start", Values::long([Some(missed.ends_without_start)])),
        ("starts_without_end", Values::long([Some(missed.starts_without_end)])),
        ("open_at_gap", Values::long([Some(missed.open_at_gap)])),
        ("open_at_end", Values::long([Some(missed.open_at_end)])),
        ("probe_misses", Values::long([Some(missed.probe_misses)])),
        ("dropped", Values::long([Some(missed.dropped)])),
    ];
    Table::new("latency_runs", key, run.columns.clone().into_iter().chain(columns))
}

fn latency_hist(report: &pagehaul_latency::LatencyReport, key: &Key) -> Table {
    let functions = report.histograms.iter();
    let rows: Vec<_> = functions
        .flat_map(|found| {
            let buckets = found.histogram.log2_buckets().into_iter();
            buckets.filter(|bucket| bucket.count > 0).map(|bucket| (found.name.as_str(), bucket))
        })
        .collect();
    let columns = [
        ("function", texts(&rows, |(function, _)| *function)),
        ("low_ns", longs(&rows, |(_, bucket)| bucket.low)),
        ("high_ns", longs(&rows, |(_, bucket)| bucket.high)),
        ("count", longs(&rows, |(_, bucket)| bucket.count)),
    ];
    Table::new("latency_hist", key, columns)
}

/// Returns the name that JSON has for a value.
fn name(value: impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_owned)
}
