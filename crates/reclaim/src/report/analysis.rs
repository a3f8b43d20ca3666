//! From a recording to models, and from models to a report.

use std::collections::BTreeMap;

use pagehaul_trace::{EventSource, Origin, Run, TraceError, TraceFile, TraceInfo};

use super::{CommandResult, LostReport, Report, SourceInfo, TimelineReport, check, rows, tables};
use crate::counters::{Pressure, VmstatDelta, machine_cpu};
use crate::decode::Decoder;
use crate::model::{Class, Model, Stretches, Tally, Tracker};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The trace has nothing of reclaim.
    #[error(
        "{name}: no event of reclaim can be in it: record with vmscan events, as `pagehaul reclaim record` does"
    )]
    NoReclaim {
        /// The file.
        name: String,
    },
}

/// One run of the command, or the whole trace if there was none.
pub(super) struct Sample {
    pub(super) model: Model,
    pub(super) vmstat: Option<VmstatDelta>,
    /// Seconds of CPU in user mode and in the kernel.
    pub(super) cpu: Option<(f64, f64)>,
    /// They are the machine's.
    pub(super) cpu_of_machine: bool,
    pub(super) elapsed_s: f64,
}

impl Sample {
    pub(super) fn tally(&self, class: Class) -> Tally {
        self.model.tallies.get(&class).cloned().unwrap_or_default()
    }
}

/// What decides whether a figure can be had.
pub(super) struct Context {
    pub(super) decoder: Decoder,
    pub(super) origin: Origin,
    pub(super) release: Option<(u32, u32)>,
    pub(super) mglru: Option<bool>,
    /// No page of a list was ever seen, though the kernel counted some.
    pub(super) lru_untraced: bool,
}

impl Context {
    /// Why events are not there, if they are not.
    pub(super) fn missing(&self, events: &[&str]) -> Option<String> {
        let missing = events.iter().find(|event| !self.decoder.has(event))?;
        Some(match self.origin {
            Origin::Recording | Origin::Live => format!("this kernel has no event {missing}"),
            // Text says what happened, not what could have.
            Origin::Text => return None,
            Origin::TraceDat(_) => format!("the trace knows no event {missing}"),
        })
    }

    /// Why none of several events is there.
    pub(super) fn missing_any(&self, events: &[&str]) -> Option<String> {
        if events.iter().any(|event| self.decoder.has(event)) { None } else { self.missing(&events[..1]) }
    }

    /// The same for events of the lists, which MGLRU of older kernels does not have.
    pub(super) fn missing_lru(&self, event: &str) -> Option<String> {
        let untraced = self.lru_untraced.then(|| "MGLRU of this kernel does not trace it".to_owned());
        self.missing(&[event]).or(untraced)
    }

    /// Reclaim stopped calling the file systems' writepage, which is gone: so in Linux 6.18 and 7.2 (shmem_writeout and
    /// swap_writeout in mm/vmscan.c), and not yet in 6.12.
    pub(super) fn no_file_writes(&self) -> bool {
        self.release.is_some_and(|release| release >= (6, 18))
    }
}

impl Model {
    pub(super) fn kswapd_ns(&self) -> u64 {
        self.kswapd.values().fold(0, |sum, kswapd| sum.saturating_add(kswapd.awake_ns))
    }

    pub(super) fn direct(&self) -> Stretches {
        self.tallies.get(&Class::Direct).map(|tally| tally.stretches.clone()).unwrap_or_default()
    }
}

/// Reads a recording to its end.
///
/// # Errors
/// [`ReportError`] if it cannot be read, or has nothing to report.
pub fn analyse(recording: &mut TraceFile, name: &str, label: &str) -> Result<Report, ReportError> {
    let mut decoder = Decoder::default();
    decoder.announce(recording.formats().iter());
    let runs = recording.info().runs.clone();
    // Run times are CLOCK_MONOTONIC: with another clock they cannot be found in the trace.
    let timed = recording.info().machine.clock.as_deref() == Some("mono");
    let begin = recording.info().begin.as_ref().map(|snapshot| snapshot.monotonic_ns).filter(|_| timed);
    let mut whole = begin.map_or_else(Tracker::new, Tracker::starting_at);
    let mut parts = Parts::new(if timed { &runs } else { &[] });
    while let Some(event) = recording.next_event()? {
        let happening = decoder.decode(&event);
        whole.event(&event, happening);
        parts.event(&event, happening);
    }
    let info = recording.info();
    let end = info.end.as_ref().map(|snapshot| snapshot.monotonic_ns).filter(|_| timed);
    let whole = whole.finish(end);
    if whole.events == 0 && info.origin == Origin::Text || decoder.knows_nothing() {
        return Err(ReportError::NoReclaim { name: name.to_owned() });
    }
    let vmstat =
        info.begin.as_ref().zip(info.end.as_ref()).and_then(|(begin, end)| VmstatDelta::new(begin, end));
    let context = context(info, decoder, &whole, vmstat.as_ref());
    let samples = samples(info, &whole, parts.finish(), vmstat.clone());
    let pressure =
        info.begin.as_ref().zip(info.end.as_ref()).and_then(|(begin, end)| Pressure::delta(begin, end));
    let losses = recording.losses();
    let mut report = Report {
        label: label.to_owned(),
        source: source(info, name, &whole, &context),
        result: CommandResult::of(&runs),
        sections: rows::sections(&context, &samples),
        stalls: tables::stalls(&whole),
        tables: tables::all(&whole, &context, info),
        timeline: timeline(&whole, if timed { &runs } else { &[] }),
        checks: check::all(&whole, &context, vmstat.as_ref(), pressure),
        pressure,
        lost: LostReport {
            events: losses.events(),
            gaps: losses.gaps(),
            damaged: losses.damaged_sub_buffers(),
            counted_by_kernel: info.lost_by_cpu.values().sum(),
            unknown_events: losses.unknown_events,
            unfinished: whole.limits.unfinished,
            unmatched: whole.limits.unmatched_begins + whole.limits.unmatched_ends,
            uncertain: whole.limits.uncertain,
        },
        remarks: info.warnings.clone(),
    };
    report.remarks.extend(remarks(&report, &whole, &context, &runs, timed));
    Ok(report)
}

/// Trackers of runs; a run's events are those between its begin and end.
struct Parts {
    runs: Vec<(u64, u64)>,
    current: usize,
    tracker: Option<Tracker>,
    done: Vec<Model>,
}

impl Parts {
    fn new(runs: &[Run]) -> Self {
        let runs = runs.iter().map(|run| (run.begin_ns, run.end_ns)).collect();
        Self { runs, current: 0, tracker: None, done: Vec::new() }
    }

    fn event(&mut self, event: &pagehaul_trace::Event<'_>, happening: Option<crate::decode::Happening>) {
        while let Some(&(begin, end)) = self.runs.get(self.current) {
            if event.ts() < begin {
                return;
            }
            let tracker = self.tracker.get_or_insert_with(|| Tracker::starting_at(begin));
            if event.ts() <= end {
                tracker.event(event, happening);
                return;
            }
            self.close(end);
        }
    }

    fn close(&mut self, end: u64) {
        self.current += 1;
        self.done.push(self.tracker.take().unwrap_or_default().finish(Some(end)));
    }

    fn finish(mut self) -> Vec<Model> {
        while let Some(&(begin, end)) = self.runs.get(self.current) {
            self.tracker.get_or_insert_with(|| Tracker::starting_at(begin));
            self.close(end);
        }
        self.done
    }
}

fn samples(info: &TraceInfo, whole: &Model, parts: Vec<Model>, vmstat: Option<VmstatDelta>) -> Vec<Sample> {
    if parts.is_empty() {
        let cpu = info.begin.as_ref().zip(info.end.as_ref()).and_then(|(begin, end)| machine_cpu(begin, end));
        // Runs that cannot be found in the trace still say how long they took.
        let of_runs =
            info.runs.iter().fold((0.0, 0.0), |sum, run| (sum.0 + run.user_s, sum.1 + run.system_s));
        let own = !info.runs.is_empty();
        return vec![Sample {
            model: whole.clone(),
            vmstat,
            cpu: if own { Some(of_runs) } else { cpu },
            cpu_of_machine: !own,
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
    parts.into_iter().zip(&info.runs).map(sample).collect()
}

fn context(info: &TraceInfo, decoder: Decoder, whole: &Model, vmstat: Option<&VmstatDelta>) -> Context {
    let setting = info.machine.settings.get("/sys/kernel/mm/lru_gen/enabled");
    // Bit 0 is the switch; the kernel prints hexadecimal.
    let switched = setting.and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
    let seen = whole.limits.mglru_seen.then_some(true);
    let native = info.origin == Origin::Recording;
    // A kernel without the file has no MGLRU.
    let mglru = switched.map(|bits| bits & 1 != 0).or(seen).or(native.then_some(false));
    let pages: u64 = whole.tallies.values().map(|tally| tally.all().scanned + tally.all().taken).sum();
    let counted = vmstat
        .and_then(|vmstat| vmstat.sum(&["pgscan_direct", "pgscan_kswapd", "pgscan_anon", "pgscan_file"]));
    Context {
        decoder,
        origin: info.origin,
        release: info.machine.release.as_deref().and_then(release),
        mglru,
        lru_untraced: mglru == Some(true) && pages == 0 && counted.unwrap_or(0) > 0,
    }
}

/// The first two numbers of `uname -r`.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn source(info: &TraceInfo, name: &str, whole: &Model, context: &Context) -> SourceInfo {
    SourceInfo {
        files: vec![name.to_owned()],
        format: info.origin.to_string(),
        release: info.machine.release.clone(),
        hostname: info.machine.hostname.clone(),
        machine: info.machine.machine.clone(),
        clock: info.machine.clock.clone(),
        cpus: info.machine.cpus,
        command: info.machine.command.clone(),
        settings: info.machine.settings.clone(),
        mglru: context.mglru,
        duration_s: whole.end_ns.saturating_sub(whole.begin_ns) as f64 / 1e9,
        events: whole.events,
    }
}

fn timeline(model: &Model, runs: &[Run]) -> TimelineReport {
    let slice = model.timeline.slice_ns.max(1) as f64;
    let mib_s = |pages: u64| pages as f64 * 4096.0 / (1 << 20) as f64 / (slice / 1e9);
    let moments = &model.timeline.moments;
    let since = |ns: u64| ns.saturating_sub(model.begin_ns) as f64 / 1e9;
    TimelineReport {
        slice_s: slice / 1e9,
        direct: moments.iter().map(|moment| moment.direct_ns as f64 / slice).collect(),
        memcg: moments.iter().map(|moment| moment.memcg_ns as f64 / slice).collect(),
        kswapd: moments.iter().map(|moment| moment.kswapd_ns as f64 / slice).collect(),
        throttled: moments.iter().map(|moment| moment.throttled_ns as f64 / slice).collect(),
        kswapd_mib_s: moments.iter().map(|moment| mib_s(moment.kswapd_reclaimed)).collect(),
        task_mib_s: moments.iter().map(|moment| mib_s(moment.task_reclaimed)).collect(),
        runs: runs.iter().map(|run| (since(run.begin_ns), since(run.end_ns))).collect(),
    }
}

fn remarks(report: &Report, whole: &Model, context: &Context, runs: &[Run], timed: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    let lost = &report.lost;
    if lost.any() {
        let most = lost.events.max(lost.counted_by_kernel);
        remarks.push(format!(
            "events were lost ({most} counted, {} gaps, {} damaged parts): all figures are lower bounds; record with a larger --buffer-size",
            lost.gaps, lost.damaged
        ));
    }
    if whole.limits.awake_at_begin > 0 {
        remarks.push("kswapd was awake when the trace began: its time counts from there".into());
    }
    if context.lru_untraced {
        remarks.push(
            "MGLRU of this kernel has no events for its lists (so in 6.1): pages are those of /proc/vmstat"
                .into(),
        );
    }
    if context.mglru == Some(true) && !context.lru_untraced {
        remarks
            .push("MGLRU: pages scanned are those taken off the lists, as /proc/vmstat counts them".into());
    }
    if !runs.is_empty() && !timed {
        remarks.push("the clock is not mono: runs of the command cannot be told apart in the trace".into());
    }
    let failed = runs.iter().filter(|run| !run.succeeded()).count();
    if failed > 0 {
        remarks.push(format!("{failed} of {} runs of the command failed", runs.len()));
    }
    remarks
}

impl Report {
    /// One report of several recordings of the same thing: rows have the values of all runs, the rest is that of the first.
    pub fn group(label: &str, reports: Vec<Self>) -> Option<Self> {
        let mut reports = reports.into_iter();
        let mut first = reports.next()?;
        first.label = label.to_owned();
        for other in reports {
            first.source.files.extend(other.source.files);
            match (&mut first.result, other.result) {
                (Some(mine), Some(theirs)) => mine.extend(theirs),
                (mine @ None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
            let rows: BTreeMap<String, super::Row> = other
                .sections
                .into_iter()
                .flat_map(|section| section.rows)
                .map(|row| (row.name.clone(), row))
                .collect();
            for row in first.sections.iter_mut().flat_map(|section| &mut section.rows) {
                if let Some(same) = rows.get(&row.name) {
                    row.values.extend(&same.values);
                }
            }
        }
        Some(first)
    }
}
