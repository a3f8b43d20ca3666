use std::time::Duration;

use pagehaul_trace::live::LiveReader;
use pagehaul_trace::{EventSource, Symbols};

use crate::call_tracker::Missed;
use crate::collector::Collector;
use crate::error::LatencyError;
use crate::event_name::{EventName, Key};
use crate::probes::Probes;
use crate::report::LatencyReport;
use crate::setup::{Options, Setup};

/// A measurement on the running kernel.
pub trait Session {
    /// Sleeps for `wait`, then reads the kernel's buffers. Returns false once tracing is stopped and the
    /// buffers are empty.
    ///
    /// # Errors
    /// [`LatencyError`] if a buffer cannot be read.
    fn poll(&mut self, wait: Duration) -> Result<bool, LatencyError>;

    /// Stops tracing.
    ///
    /// # Errors
    /// [`LatencyError`] if the write fails.
    fn stop(&mut self) -> Result<(), LatencyError>;

    /// Returns the latencies since the last call. If `last`, open calls count as open_at_end.
    ///
    /// # Errors
    /// [`LatencyError`] if a kernel file cannot be read.
    fn take(&mut self, last: bool) -> Result<LatencyReport, LatencyError>;
}

/// Measures functions or a pair of trace events by reading events.
pub struct EventSession {
    collector: Collector,
    mechanism: &'static str,
    /// Lost events and probe misses up to the last report.
    lost: u64,
    misses: u64,
    /// Before the probes, which can only be removed once no instance uses them.
    reader: LiveReader,
    probes: Option<Probes>,
}

impl EventSession {
    /// Starts to measure functions.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel's buffers cannot be read.
    pub fn functions(setup: Setup, patterns: &[String], options: &Options) -> Result<Self, LatencyError> {
        let symbols = match setup.probes {
            Some(_) => Symbols::default(),
            // Events of the function graph tracer carry addresses.
            None => Symbols::of_kernel(),
        };
        Self::begin(setup, Collector::functions(patterns, symbols, options))
    }

    /// Starts to measure a pair of events.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel's buffers cannot be read.
    pub fn between(
        setup: Setup,
        start: &EventName,
        end: &EventName,
        key: &Key,
        options: &Options,
    ) -> Result<Self, LatencyError> {
        Self::begin(setup, Collector::between(start, end, key, options))
    }

    fn begin(setup: Setup, collector: Collector) -> Result<Self, LatencyError> {
        let Setup { mechanism, instance, probes } = setup;
        let mut reader = LiveReader::new(instance)?;
        reader.start()?;
        Ok(Self { collector, mechanism, lost: 0, misses: 0, reader, probes })
    }
}

impl Session for EventSession {
    fn poll(&mut self, wait: Duration) -> Result<bool, LatencyError> {
        let more = self.reader.poll(wait)?;
        while let Some(event) = self.reader.next_event()? {
            self.collector.event(&event)?;
        }
        Ok(more)
    }

    fn stop(&mut self) -> Result<(), LatencyError> {
        Ok(self.reader.stop()?)
    }

    fn take(&mut self, last: bool) -> Result<LatencyReport, LatencyError> {
        let (histograms, mut missed) = self.collector.take(last);
        let misses = self.probes.as_ref().map_or(0, Probes::misses);
        let lost = self.reader.losses().at_least();
        missed += Missed {
            lost_events: lost - self.lost,
            probe_misses: misses.saturating_sub(self.misses),
            ..Missed::default()
        };
        (self.lost, self.misses) = (lost, misses);
        Ok(LatencyReport { mechanism: self.mechanism.into(), histograms, missed, warnings: Vec::new() })
    }
}
