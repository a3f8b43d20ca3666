//! Measures latencies in trace files.

use std::time::Duration;

use pagehaul_trace::{EventSource, Symbols};

use crate::call_tracker::Missed;
use crate::collector::Collector;
use crate::error::LatencyError;
use crate::event_name::{EventName, Key};
use crate::event_pairs::check_known;
use crate::function_timer::FunctionTimer;
use crate::report::{LatencyReport, NamedHistogram};
use crate::setup::Options;

/// The part of a trace to read, and its intervals, on the trace's clock. Starts at the first event.
#[derive(Debug, Clone, Copy, Default)]
pub struct Intervals {
    /// One report per interval of this length, unless it has no events; otherwise a single report.
    pub interval: Option<Duration>,
    /// Stops after this time.
    pub duration: Option<Duration>,
}

/// Measures a pair of trace events. CallTracker `take` with the trace clock in nanoseconds and the report at the
/// end of each interval.
///
/// # Errors
/// [`LatencyError`] if the trace cannot be read or lacks the events, and errors of `take`.
pub fn measure_pair<E: From<LatencyError>>(
    source: &mut dyn EventSource,
    (start, end, key): (&EventName, &EventName, &Key),
    options: &Options,
    intervals: Intervals,
    take: impl FnMut(u64, LatencyReport) -> Result<(), E>,
) -> Result<(), E> {
    let known = |source: &dyn EventSource| {
        check_known(source.formats(), start)?;
        check_known(source.formats(), end)
    };
    measure(source, Collector::between(start, end, key, options), known, &options.pids, intervals, take)
}

/// Measures functions from events of the function graph tracer or of pagehaul's probes. `symbols` resolves
/// the addresses of the former.
///
/// # Errors
/// [`LatencyError`] if the trace cannot be read or measures no functions, and errors of `take`.
pub fn measure_functions<E: From<LatencyError>>(
    source: &mut dyn EventSource,
    (patterns, symbols): (&[String], Symbols),
    options: &Options,
    intervals: Intervals,
    take: impl FnMut(u64, LatencyReport) -> Result<(), E>,
) -> Result<(), E> {
    let known = |source: &dyn EventSource| {
        if source.formats().iter().any(FunctionTimer::measures) {
            return Ok(());
        }
        Err(LatencyError::NotInTrace {
            event: "funcgraph_exit (trace-cmd record -p function_graph)".into(),
            known: "other events, which --between accepts".into(),
        })
    };
    let collector = Collector::functions(patterns, symbols, options);
    measure(source, collector, known, &options.pids, intervals, take)
}

fn measure<E: From<LatencyError>>(
    source: &mut dyn EventSource,
    mut collector: Collector,
    known: impl Fn(&dyn EventSource) -> Result<(), LatencyError>,
    pids: &[u32],
    intervals: Intervals,
    mut take: impl FnMut(u64, LatencyReport) -> Result<(), E>,
) -> Result<(), E> {
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let step = intervals.interval.map_or(u64::MAX, nanoseconds);
    let duration = intervals.duration.map_or(u64::MAX, nanoseconds);
    // Start of the trace, and end of the current interval.
    let mut times: Option<(u64, u64)> = None;
    let (mut last, mut lost) = (0, 0);
    let mut report = |at, (histograms, missed): (Vec<NamedHistogram>, Missed), lost_now: u64, warnings| {
        let lost_events = lost_now.saturating_sub(std::mem::replace(&mut lost, lost_now));
        let missed = Missed { lost_events, ..missed };
        take(at, LatencyReport { mechanism: "recorded trace".into(), histograms, missed, warnings })
    };
    while let Some(event) = source.next_event().map_err(LatencyError::from)? {
        last = event.ts();
        let (begin, end) = *times.get_or_insert((last, last.saturating_add(step)));
        if last.saturating_sub(begin) >= duration {
            // Unread events may be of formats not met yet, so missing events are not reported.
            let (end, lost) = (begin.saturating_add(duration), source.losses().at_least());
            return report(end, collector.take(true), lost, source.warnings().to_vec());
        }
        let over = (last >= end).then(|| collector.take(false));
        if wanted(pids, event.pid()) {
            collector.event(&event)?;
        }
        if let Some(over) = over {
            let passed = 1 + (last - end) / step;
            times = Some((begin, end.saturating_add(passed.saturating_mul(step))));
            report(end, over, source.losses().at_least(), Vec::new())?;
        }
    }
    known(source)?;
    report(last, collector.take(true), source.losses().at_least(), source.warnings().to_vec())
}

/// Recordings identify threads, not processes.
fn wanted(pids: &[u32], pid: i32) -> bool {
    pids.is_empty() || u32::try_from(pid).is_ok_and(|pid| pids.contains(&pid))
}
