//! Watches vmalloc over time.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use pagehaul_latency::trace_file::Intervals;
use pagehaul_latency::{
    EventRecorder, EventSession, Histogram, LatencyReport, Mechanism, Missed, NamedHistogram, Options,
    Session, Setup, Unit,
};
use pagehaul_trace::live::{Instance, InstanceOptions, LiveReader, Recorder, RecorderOptions, Tracefs};
use pagehaul_trace::{EventSource, Symbols};
use serde::Serialize;

use crate::activity::{Activity, Counts};
use crate::error::VmallocError;
use crate::usage::field;

/// The functions that purge areas: one call per vmap node since 6.9 (72210662c5a2), one for all areas before.
pub(crate) const PURGE_FUNCTIONS: [&str; 2] = ["purge_vmap_node", "__purge_vmap_area_lazy"];
const EVENTS: [&str; 3] = ["alloc_vmap_area", "free_vmap_area_noflush", "purge_vmap_area_lazy"];

/// Activity over an interval.
#[derive(Debug, Clone, Serialize)]
pub struct Interval {
    /// Length of the interval.
    pub seconds: f64,
    /// Bytes of a page.
    pub page_size: u64,
    /// Counts of events.
    #[serde(flatten)]
    pub counts: Counts,
    /// Histogram of areas per purge.
    #[serde(skip)]
    pub purge_sizes: Histogram,
    /// Latency of the purge function, if the kernel has probes.
    #[serde(skip)]
    pub purge_times: Option<Histogram>,
    /// VmallocUsed in KiB at the end.
    pub used_kib: Option<u64>,
    /// Events that the kernel lost.
    pub lost_events: u64,
    /// What the reader should know, one sentence each. Of the intervals of a trace, the last has it.
    pub warnings: Vec<String>,
}

/// Watches the running kernel.
pub struct Monitor {
    reader: LiveReader,
    activity: Activity,
    purges: Option<(&'static str, EventSession)>,
    begin: Instant,
    lost: u64,
    /// Whether allocations have stacks.
    stacks: bool,
    /// Modules at the last resolution of symbols.
    modules: String,
}

impl Monitor {
    /// Starts watching. `stacks` records the caller of each allocation.
    ///
    /// # Errors
    /// [`VmallocError`] if the kernel lacks the events or refuses.
    pub fn start(tracefs: &Tracefs, stacks: bool, buffer_kb: u32) -> Result<Self, VmallocError> {
        let (instance, stacks) = set_up(tracefs, stacks, buffer_kb)?;
        let mut reader = LiveReader::new(instance)?;
        let purges = measure_purges(tracefs);
        reader.start()?;
        let activity = Activity::new(Symbols::default());
        let mut monitor =
            Self { reader, activity, purges, begin: Instant::now(), lost: 0, stacks, modules: String::new() };
        monitor.refresh_symbols();
        Ok(monitor)
    }

    /// Returns the function whose latency is measured.
    pub fn purge_function(&self) -> Option<&'static str> {
        self.purges.as_ref().map(|(name, _)| *name)
    }

    /// Sleeps for `wait`, then reads the kernel's buffers.
    ///
    /// # Errors
    /// [`VmallocError`] if a buffer cannot be read.
    pub fn poll(&mut self, wait: Duration) -> Result<(), VmallocError> {
        self.reader.poll(wait)?;
        self.refresh_symbols();
        while let Some(event) = self.reader.next_event()? {
            self.activity.event(&event);
        }
        if let Some((_, session)) = &mut self.purges {
            session.poll(Duration::ZERO)?;
        }
        Ok(())
    }

    /// Reads the symbols again after a module was loaded.
    fn refresh_symbols(&mut self) {
        let modules = std::fs::read_to_string("/proc/modules").unwrap_or_default();
        // Reference counts change all the time: only name and size are compared.
        let words = |line: &'_ str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        let modules = modules.lines().map(words).collect::<Vec<_>>().join("\n") + "\n";
        // Symbols of unloaded modules are kept: the buffers may still have events of theirs.
        let added = modules.lines().any(|line| !self.modules.lines().any(|known| known == line));
        if self.stacks && added {
            self.activity.set_symbols(Symbols::of_kernel());
            self.modules = modules;
        }
    }

    /// Returns the activity since the last call.
    ///
    /// # Errors
    /// [`VmallocError`] if a kernel file cannot be read.
    pub fn take(&mut self) -> Result<Interval, VmallocError> {
        let (counts, purge_sizes) = self.activity.take();
        let purge_times = match &mut self.purges {
            Some((_, session)) => {
                session.take(false)?.histograms.into_iter().next().map(|named| named.histogram)
            }
            None => None,
        };
        let lost = self.reader.losses().at_least();
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
        let seconds = self.begin.elapsed().as_secs_f64();
        self.begin = Instant::now();
        let lost_events = lost - std::mem::replace(&mut self.lost, lost);
        Ok(Interval {
            seconds,
            page_size: rustix::param::page_size() as u64,
            counts,
            purge_sizes,
            purge_times,
            used_kib: meminfo.map(|text| field(&text, "VmallocUsed")),
            lost_events,
            warnings: Vec::new(),
        })
    }
}

fn set_up(tracefs: &Tracefs, stacks: bool, buffer_kb: u32) -> Result<(Instance, bool), VmallocError> {
    if !EVENTS.iter().any(|event| tracefs.has_event("vmalloc", event)) {
        return Err(VmallocError::NoEvents);
    }
    let instance = tracefs.create_instance(&InstanceOptions { buffer_kb, ..InstanceOptions::default() })?;
    for event in EVENTS.iter().filter(|event| tracefs.has_event("vmalloc", event)) {
        instance.enable("vmalloc", event)?;
    }
    // Kernels without stack traces refuse: tasks are known then, callers are not.
    let stacks = stacks && instance.write("events/vmalloc/alloc_vmap_area/trigger", "stacktrace").is_ok();
    Ok((instance, stacks))
}

/// Measures the purge function, if the kernel can.
fn measure_purges(tracefs: &Tracefs) -> Option<(&'static str, EventSession)> {
    let mechanism = Mechanism::choose(tracefs).ok()?;
    let options = Options {
        unit: Unit::Microseconds,
        step: None,
        by_function: false,
        pids: Vec::new(),
        buffer_kb: 512,
    };
    PURGE_FUNCTIONS.into_iter().find_map(|name| {
        let patterns = [name.to_owned()];
        let setup = Setup::functions(tracefs, &patterns, mechanism, &options).ok()?;
        Some((name, EventSession::functions(setup, &patterns, &options).ok()?))
    })
}

/// Starts to record the events to `file`, which messages call `path`.
///
/// # Errors
/// [`VmallocError`] if the kernel lacks the events or refuses.
pub fn record(
    tracefs: &Tracefs,
    (file, path): (File, &Path),
    buffer_kb: u32,
    command: &[String],
) -> Result<EventRecorder, VmallocError> {
    let (instance, _) = set_up(tracefs, false, buffer_kb)?;
    let options = RecorderOptions { command: command.to_vec(), ..RecorderOptions::default() };
    Ok(Recorder::start(instance, (file, path), &options)?.into())
}

/// Reads a trace of a machine with pages of `page_size` bytes, up to `intervals.duration`, split into `intervals.interval` if given.
///
/// # Errors
/// [`VmallocError`] if the trace cannot be read or has no vmalloc events.
pub fn read_trace(
    source: &mut dyn EventSource,
    symbols: Symbols,
    page_size: u64,
    intervals: Intervals,
) -> Result<Vec<Interval>, VmallocError> {
    let mut activity = Activity::new(symbols);
    let mut all = Vec::new();
    let mut begin: Option<u64> = None;
    let (mut first, mut last) = (None, 0);
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let (step, duration) = (intervals.interval.map(nanoseconds), intervals.duration.map(nanoseconds));
    let mut finish = |activity: &mut Activity, from: u64, to: u64| {
        let (counts, purge_sizes) = activity.take();
        let seconds = to.saturating_sub(from) as f64 / 1e9;
        all.push(Interval {
            seconds,
            page_size,
            counts,
            purge_sizes,
            purge_times: None,
            used_kib: None,
            lost_events: 0,
            warnings: Vec::new(),
        });
    };
    while let Some(event) = source.next_event()? {
        let ts = event.ts();
        let first = *first.get_or_insert(ts);
        if duration.is_some_and(|duration| ts.saturating_sub(first) >= duration) {
            break;
        }
        last = ts;
        let from = *begin.get_or_insert(last);
        if let Some(step) = step
            && last.saturating_sub(from) >= step
        {
            // Time without events belongs to the interval before the next event.
            let whole = last.saturating_sub(from) / step * step;
            finish(&mut activity, from, from.saturating_add(whole));
            begin = Some(from.saturating_add(whole));
        }
        activity.event(&event);
    }
    finish(&mut activity, begin.unwrap_or(last), last);
    if let Some(interval) = all.last_mut() {
        interval.lost_events = source.losses().at_least();
        interval.warnings = source.warnings().to_vec();
    }
    if !source.formats().iter().any(|format| EVENTS.contains(&format.name.as_str())) {
        return Err(VmallocError::NotInTrace);
    }
    Ok(all)
}

/// Returns the latency report of the purge function.
pub fn purge_report(function: &str, times: Histogram) -> LatencyReport {
    let histograms = vec![NamedHistogram { name: function.into(), histogram: times }];
    LatencyReport { mechanism: String::new(), histograms, missed: Missed::default(), warnings: Vec::new() }
}
