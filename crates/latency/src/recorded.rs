//! Recording, and latencies in recorded traces.

use std::path::Path;
use std::time::Duration;

use pagehaul_trace::live::{Recorder, RecorderOptions, RecordingSummary};
use pagehaul_trace::{EventSource, Symbols};

use crate::LatencyError;
use crate::between::{EventName, Key, check_known};
use crate::calls::Missed;
use crate::collect::Functions;
use crate::collector::Collector;
use crate::probes::Probes;
use crate::report::{Part, Report};
use crate::setup::{Options, Setup};

/// How much of a trace to read, and in what stretches, by its own clock. It begins at the first event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stretches {
    /// A report for each stretch of so long, except those without any event; one for all without.
    pub interval: Option<Duration>,
    /// No further than this.
    pub duration: Option<Duration>,
}

/// Times the way from one trace event to another in a trace, and gives `take` a report at the end of each stretch, with the trace's
/// clock then, in nanoseconds.
///
/// # Errors
/// [`LatencyError`] if the trace cannot be read, or has no such events; and what `take` fails with.
pub fn between<E: From<LatencyError>>(
    source: &mut dyn EventSource,
    (start, end, key): (&EventName, &EventName, &Key),
    options: &Options,
    stretches: Stretches,
    take: impl FnMut(u64, Report) -> Result<(), E>,
) -> Result<(), E> {
    let known = |source: &dyn EventSource| {
        check_known(source.formats(), start)?;
        check_known(source.formats(), end)
    };
    time(source, Collector::between(start, end, key, options), known, &options.pids, stretches, take)
}

/// Times functions in a trace: of the function graph tracer, or of our probes. `symbols` names the addresses of the former.
///
/// # Errors
/// [`LatencyError`] if the trace cannot be read, or times no functions; and what `take` fails with.
pub fn functions<E: From<LatencyError>>(
    source: &mut dyn EventSource,
    (patterns, symbols): (&[String], Symbols),
    options: &Options,
    stretches: Stretches,
    take: impl FnMut(u64, Report) -> Result<(), E>,
) -> Result<(), E> {
    let known = |source: &dyn EventSource| {
        if source.formats().iter().any(Functions::knows) {
            return Ok(());
        }
        Err(LatencyError::NotInTrace {
            event: "funcgraph_exit (trace-cmd record -p function_graph)".into(),
            known: "others, which --between can take".into(),
        })
    };
    let collector = Collector::functions(patterns, symbols, options);
    time(source, collector, known, &options.pids, stretches, take)
}

fn time<E: From<LatencyError>>(
    source: &mut dyn EventSource,
    mut collector: Collector,
    known: impl Fn(&dyn EventSource) -> Result<(), LatencyError>,
    pids: &[u32],
    stretches: Stretches,
    mut take: impl FnMut(u64, Report) -> Result<(), E>,
) -> Result<(), E> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let step = stretches.interval.map_or(u64::MAX, nanoseconds);
    let whole = stretches.duration.map_or(u64::MAX, nanoseconds);
    // The begin, and the end of the current stretch.
    let mut times: Option<(u64, u64)> = None;
    let (mut last, mut lost) = (0, 0);
    let mut report = |at, (parts, missed): (Vec<Part>, Missed), lost_now: u64| {
        let lost_events = lost_now.saturating_sub(std::mem::replace(&mut lost, lost_now));
        let missed = Missed { lost_events, ..missed };
        take(at, Report { mechanism: "recorded trace".into(), parts, missed })
    };
    while let Some(event) = source.next_event().map_err(LatencyError::from)? {
        last = event.ts();
        let (begin, end) = *times.get_or_insert((last, last.saturating_add(step)));
        if last.saturating_sub(begin) >= whole {
            // What comes later may be events of kinds not met yet: nothing can be said of those that are missing.
            return report(begin.saturating_add(whole), collector.take(true), lost_events(source));
        }
        let over = (last >= end).then(|| collector.take(false));
        if wanted(pids, event.pid()) {
            collector.event(&event)?;
        }
        if let Some(over) = over {
            let stretches = 1 + (last - end) / step;
            times = Some((begin, end.saturating_add(stretches.saturating_mul(step))));
            report(end, over, lost_events(source))?;
        }
    }
    known(source)?;
    report(last, collector.take(true), lost_events(source))
}

/// Records the events of a [`Setup`] to a file.
pub struct Recording {
    /// Before the probes, which can be removed when no instance uses them.
    recorder: Recorder,
    probes: Option<Probes>,
}

impl Recording {
    /// Begins. `command` is noted in the file.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel refuses, or the file cannot be written.
    pub fn start(setup: Setup, path: &Path, command: &[String]) -> Result<Self, LatencyError> {
        let Setup { instance, probes, .. } = setup;
        let options =
            RecorderOptions { command: command.to_vec(), without_self: true, ..RecorderOptions::default() };
        let recorder = Recorder::start(instance, path, &options)?;
        Ok(Self { recorder, probes })
    }

    /// Whether it ended by itself: [`Recording::finish`] says why.
    pub fn failed(&self) -> bool {
        self.recorder.failed()
    }

    /// Ends, and completes the file.
    ///
    /// # Errors
    /// [`LatencyError`] of what failed; the file then says that it is cut.
    pub fn finish(self) -> Result<RecordingSummary, LatencyError> {
        let summary = self.recorder.finish()?;
        drop(self.probes);
        Ok(summary)
    }
}

/// A recording says of threads only which they are, not whose.
fn wanted(pids: &[u32], pid: i32) -> bool {
    pids.is_empty() || u32::try_from(pid).is_ok_and(|pid| pids.contains(&pid))
}

fn lost_events(source: &dyn EventSource) -> u64 {
    let losses = source.losses();
    losses.events() + losses.gaps()
}
