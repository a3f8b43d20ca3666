//! From a recording to models, and from models to a report.

use pagehaul_trace::{Event, EventSource, MachineInfo, Origin, Run, TraceError, TraceFile, TraceInfo};

use super::context::{Context, Sample, ms};
use super::document::{CommandResult, LostReport, ReclaimReport, SourceInfo, Stalls, TimelineReport};
use super::{check, rows, tables};
use crate::counters::{Pressure, VmstatDelta, machine_cpu};
use crate::decode::{Decoder, ReclaimEvent};
use crate::model::{AllIntervals, Model, Reclaimer};
use crate::tracker::Tracker;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has no events of reclaim.
    #[error("{name}: no events of reclaim: record vmscan events, as `pagehaul reclaim record` does")]
    NoReclaim {
        /// The file.
        name: String,
    },
}

/// Reads a recording to its end, and reports on it.
///
/// # Errors
/// Fails if the recording cannot be read, or has no events of reclaim.
pub fn analyse(recording: &mut TraceFile, name: &str, label: &str) -> Result<ReclaimReport, ReportError> {
    Ok(read(recording, name, label, false)?.0)
}

/// Does the same, and returns all intervals as well.
///
/// # Errors
/// Fails as [`analyse`] does.
pub fn analyse_all(
    recording: &mut TraceFile,
    name: &str,
    label: &str,
) -> Result<(ReclaimReport, AllIntervals), ReportError> {
    read(recording, name, label, true)
}

fn read(
    recording: &mut TraceFile,
    name: &str,
    label: &str,
    intervals: bool,
) -> Result<(ReclaimReport, AllIntervals), ReportError> {
    let mut decoder = Decoder::default();
    recording.formats().iter().for_each(|format| decoder.learn(format));
    let runs = recording.info().runs.clone();
    // Run times are CLOCK_MONOTONIC: with another clock they cannot be found in the trace.
    let timed = recording.info().machine.clock.as_deref() == Some("mono");
    let timed_runs = if timed { &runs[..] } else { &[] };
    let begin = recording.info().begin.as_ref().map(|snapshot| snapshot.monotonic_ns).filter(|_| timed);
    let mut whole = begin.map_or_else(Tracker::new, Tracker::starting_at);
    if intervals {
        whole.keep_intervals();
    }
    let mut by_run = RunTrackers::new(timed_runs);
    while let Some(event) = recording.next_event()? {
        let reclaim = decoder.decode(&event);
        whole.event(&event, reclaim);
        by_run.event(&event, reclaim);
    }
    let info = recording.info();
    let end = info.end.as_ref().map(|snapshot| snapshot.monotonic_ns).filter(|_| timed);
    let mut whole = whole.finish(end);
    let intervals = whole.intervals.take().unwrap_or_default();
    if whole.events == 0 && info.origin == Origin::Text || !decoder.has_vmscan() {
        return Err(ReportError::NoReclaim { name: name.to_owned() });
    }
    let counters = info.begin.as_ref().zip(info.end.as_ref());
    let vmstat = counters.and_then(|(begin, end)| VmstatDelta::new(begin, end));
    let pressure = counters.and_then(|(begin, end)| Pressure::delta(begin, end));
    let context = Context::new(info, decoder, &whole, vmstat.as_ref());
    let samples = samples(info, &whole, by_run.finish(), vmstat.clone());
    let losses = recording.losses();
    let mut report = ReclaimReport {
        label: label.to_owned(),
        source: source(info, name, &whole, &context),
        result: CommandResult::of(&runs),
        sections: rows::sections(&context, &samples),
        stalls: stalls(&whole),
        tables: tables::all(&whole, &context, info),
        timeline: timeline(&whole, &info.machine, timed_runs),
        checks: check::all(&whole, &context, vmstat.as_ref(), pressure),
        pressure,
        lost: LostReport {
            events: losses.events(),
            gaps: losses.gaps(),
            damaged: losses.damaged_sub_buffers(),
            counted_by_kernel: info.lost_by_cpu.values().sum(),
            unknown_events: losses.unknown_events,
            unfinished: whole.completeness.unfinished,
            unmatched: whole.completeness.unmatched_begins + whole.completeness.unmatched_ends,
            uncertain: whole.completeness.uncertain,
        },
        warnings: info.warnings.clone(),
    };
    report.warnings.extend(warnings(&report, &whole, &context, &runs, timed));
    Ok((report, intervals))
}

/// A tracker for each run of the command. Its events are those between the begin and the end of the run.
struct RunTrackers {
    runs: Vec<(u64, u64)>,
    current: usize,
    tracker: Option<Tracker>,
    models: Vec<Model>,
}

impl RunTrackers {
    fn new(runs: &[Run]) -> Self {
        let runs = runs.iter().map(|run| (run.begin_ns, run.end_ns)).collect();
        Self { runs, current: 0, tracker: None, models: Vec::new() }
    }

    fn event(&mut self, event: &Event<'_>, reclaim: Option<ReclaimEvent>) {
        while let Some(&(begin, end)) = self.runs.get(self.current) {
            if event.ts() < begin {
                return;
            }
            let tracker = self.tracker.get_or_insert_with(|| Tracker::starting_at(begin));
            if event.ts() <= end {
                tracker.event(event, reclaim);
                return;
            }
            self.close(end);
        }
    }

    fn close(&mut self, end: u64) {
        self.current += 1;
        self.models.push(self.tracker.take().unwrap_or_default().finish(Some(end)));
    }

    fn finish(mut self) -> Vec<Model> {
        while let Some(&(begin, end)) = self.runs.get(self.current) {
            self.tracker.get_or_insert_with(|| Tracker::starting_at(begin));
            self.close(end);
        }
        self.models
    }
}

fn samples(info: &TraceInfo, whole: &Model, by_run: Vec<Model>, vmstat: Option<VmstatDelta>) -> Vec<Sample> {
    if by_run.is_empty() {
        // Runs that cannot be found in the trace still have times of their own.
        let of_runs = info.runs.iter().map(|run| (run.user_s, run.system_s));
        let of_runs = of_runs.reduce(|sum, run| (sum.0 + run.0, sum.1 + run.1));
        let counters = info.begin.as_ref().zip(info.end.as_ref());
        return vec![Sample {
            model: whole.clone(),
            vmstat,
            cpu: of_runs.or_else(|| counters.and_then(|(begin, end)| machine_cpu(begin, end))),
            cpu_of_machine: of_runs.is_none(),
            elapsed_s: whole.end_ns.saturating_sub(whole.begin_ns) as f64 / 1e9,
        }];
    }
    let sample = |(model, run): (Model, &Run)| Sample {
        model,
        vmstat: VmstatDelta::new(&run.before, &run.after),
        cpu: Some((run.user_s, run.system_s)),
        cpu_of_machine: false,
        elapsed_s: run.wall_s(),
    };
    by_run.into_iter().zip(&info.runs).map(sample).collect()
}

fn source(info: &TraceInfo, name: &str, whole: &Model, context: &Context) -> SourceInfo {
    SourceInfo {
        files: vec![name.to_owned()],
        format: info.origin.to_string(),
        machine: info.machine.clone(),
        mglru: context.mglru,
        duration_s: whole.end_ns.saturating_sub(whole.begin_ns) as f64 / 1e9,
        events: whole.events,
    }
}

fn stalls(model: &Model) -> Vec<Stalls> {
    let known = Reclaimer::ALL.iter().filter_map(|of| Some((*of, &model.by_reclaimer.get(of)?.intervals)));
    let stalls = known.filter(|(_, intervals)| intervals.begun > 0).map(|(reclaimer, intervals)| Stalls {
        reclaimer,
        name: reclaimer.name(),
        count: intervals.begun,
        total_ms: ms(intervals.ns),
        percentiles_ms: [50.0, 90.0, 95.0, 99.0, 99.9, 100.0]
            .into_iter()
            .filter_map(|percent| Some((percent, ms(intervals.durations.percentile_ns(percent)?))))
            .collect(),
        histogram: intervals.durations.buckets(),
    });
    stalls.collect()
}

fn timeline(model: &Model, machine: &MachineInfo, runs: &[Run]) -> TimelineReport {
    let slice = model.timeline.slice_ns.max(1) as f64;
    let share = |ns: u64| ns as f64 / slice;
    let mib_s = |pages: u64| machine.bytes(pages) as f64 / (1 << 20) as f64 / (slice / 1e9);
    let slices = &model.timeline.slices;
    let since = |ns: u64| ns.saturating_sub(model.begin_ns) as f64 / 1e9;
    TimelineReport {
        slice_s: slice / 1e9,
        direct: slices.iter().map(|slice| share(slice.direct_ns)).collect(),
        memcg: slices.iter().map(|slice| share(slice.memcg_ns)).collect(),
        kswapd: slices.iter().map(|slice| share(slice.kswapd_ns)).collect(),
        throttled: slices.iter().map(|slice| share(slice.throttled_ns)).collect(),
        kswapd_mib_s: slices.iter().map(|slice| mib_s(slice.kswapd_reclaimed)).collect(),
        task_mib_s: slices.iter().map(|slice| mib_s(slice.task_reclaimed)).collect(),
        runs: runs.iter().map(|run| (since(run.begin_ns), since(run.end_ns))).collect(),
    }
}

fn warnings(
    report: &ReclaimReport,
    whole: &Model,
    context: &Context,
    runs: &[Run],
    timed: bool,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let lost = &report.lost;
    if lost.any() {
        let most = lost.events.max(lost.counted_by_kernel);
        warnings.push(format!(
            "events were lost ({most} counted, {} gaps, {} damaged parts): all figures are lower bounds; record with a larger --buffer-size",
            lost.gaps, lost.damaged
        ));
    }
    if whole.completeness.awake_at_begin > 0 {
        warnings.push("kswapd was awake when the trace began: its time counts from there".into());
    }
    if context.lru_untraced {
        warnings.push(
            "MGLRU of this kernel has no events for its lists (as in 6.1): pages are those of /proc/vmstat"
                .into(),
        );
    } else if context.mglru == Some(true) {
        warnings
            .push("MGLRU: pages scanned are those taken off the lists, as /proc/vmstat counts them".into());
    }
    if !runs.is_empty() && !timed {
        warnings.push("the clock is not mono: runs of the command cannot be told apart in the trace".into());
    }
    let failed = runs.iter().filter(|run| !run.succeeded()).count();
    if failed > 0 {
        warnings.push(format!("{failed} of {} runs of the command failed", runs.len()));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TimeSlice;

    #[test]
    fn reclaimed_bytes_follow_from_the_size_of_pages() {
        let mut model = Model::default();
        model.timeline.slice_ns = 1_000_000_000;
        model.timeline.slices =
            vec![TimeSlice { kswapd_reclaimed: 512, task_reclaimed: 256, ..TimeSlice::default() }];
        let rates = |page_size| {
            let found = timeline(&model, &MachineInfo { page_size, ..MachineInfo::default() }, &[]);
            [found.kswapd_mib_s, found.task_mib_s].concat()
        };
        assert_eq!(rates(Some(4 << 10)), [2.0, 1.0]);
        assert_eq!(rates(Some(16 << 10)), [8.0, 4.0]);
        assert_eq!(rates(Some(64 << 10)), [32.0, 16.0]);
        assert_eq!(rates(None), [2.0, 1.0]);
    }
}
