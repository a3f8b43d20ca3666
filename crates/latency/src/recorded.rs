//! Recording, and latencies in recorded traces.

use std::path::Path;

use pagehaul_trace::EventSource;
use pagehaul_trace::live::{RecordSummary, Recorder, RecorderOptions};

use crate::between::{Between, EventName, Key, check_known};
use crate::calls::Missed;
use crate::collect::Functions;
use crate::names::Names;
use crate::probes::Probes;
use crate::report::{Part, Report};
use crate::setup::{Options, Setup};
use crate::{Histogram, LatencyError};

/// Times the way from one trace event to another in a trace.
///
/// # Errors
/// [`LatencyError`] if the trace cannot be read, or has no such events.
pub fn between(
    source: &mut dyn EventSource,
    start: &EventName,
    end: &EventName,
    key: &Key,
    options: &Options,
) -> Result<Report, LatencyError> {
    let mut between = Between::new(start.clone(), end.clone(), key.clone());
    let mut histogram = Histogram::new(options.unit, options.step);
    while let Some(event) = source.next_event()? {
        if wanted(options, event.pid()) {
            between.event(&event, &mut histogram)?;
        }
    }
    check_known(source.formats(), start)?;
    check_known(source.formats(), end)?;
    let mut missed = between.take_missed();
    missed.unfinished = between.open();
    finish(source, missed, vec![Part { name: String::new(), histogram }])
}

/// Times functions in a trace: of the function graph tracer, or of our probes. `kallsyms` names the addresses of the former.
///
/// # Errors
/// [`LatencyError`] if the trace cannot be read, or times no functions.
pub fn functions(
    source: &mut dyn EventSource,
    kallsyms: &str,
    patterns: &[String],
    options: &Options,
) -> Result<Report, LatencyError> {
    let names = Names::parse(kallsyms);
    let mut functions = Functions::new(patterns.to_vec(), names, options.unit, options.step);
    while let Some(event) = source.next_event()? {
        if wanted(options, event.pid()) {
            functions.event(&event);
        }
    }
    if !source.formats().iter().any(Functions::knows) {
        return Err(LatencyError::NotInTrace {
            event: "funcgraph_exit (trace-cmd record -p function_graph)".into(),
            known: "others, which --between can take".into(),
        });
    }
    let open = functions.open();
    let (parts, mut missed) = functions.take(options.by_function);
    missed.unfinished = open;
    finish(source, missed, parts)
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
    pub fn finish(self) -> Result<RecordSummary, LatencyError> {
        let summary = self.recorder.finish()?;
        drop(self.probes);
        Ok(summary)
    }
}

/// A recording says of threads only which they are, not whose.
fn wanted(options: &Options, pid: i32) -> bool {
    options.pids.is_empty() || u32::try_from(pid).is_ok_and(|pid| options.pids.contains(&pid))
}

fn finish(source: &dyn EventSource, mut missed: Missed, parts: Vec<Part>) -> Result<Report, LatencyError> {
    let losses = source.losses();
    missed.lost_events = losses.events() + losses.gaps();
    Ok(Report { mechanism: "recorded trace".into(), parts, missed })
}
