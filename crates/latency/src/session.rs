use std::time::Duration;

use pagehaul_trace::live::LiveReader;
use pagehaul_trace::{EventSource, Symbols};

use crate::LatencyError;
use crate::between::{EventName, Key};
use crate::calls::Missed;
use crate::collector::Collector;
use crate::probes::Probes;
use crate::report::Report;
use crate::setup::{Options, Setup};

/// A measurement on the running kernel.
pub trait Session {
    /// Waits so long, and takes in what happened. False once tracing was stopped and everything is in.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel's buffers cannot be read.
    fn advance(&mut self, wait: Duration) -> Result<bool, LatencyError>;

    /// Ends tracing.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel refuses.
    fn stop(&mut self) -> Result<(), LatencyError>;

    /// What was measured since the last time. `last` counts what is open as unfinished.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel does not say.
    fn take(&mut self, last: bool) -> Result<Report, LatencyError>;
}

/// Reads events; functions or a pair of trace events.
pub struct EventSession {
    collector: Collector,
    mechanism: &'static str,
    lost: Lost,
    misses: u64,
    /// Before the probes, which can be removed when no instance uses them.
    reader: LiveReader,
    probes: Option<Probes>,
}

/// What was lost when one looked last.
#[derive(Default)]
struct Lost {
    events: u64,
    gaps: u64,
    /// Not yet reported.
    fresh: u64,
}

impl EventSession {
    /// Begins to time functions that `setup` is for.
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

    /// Begins to time the way between two events that `setup` is for.
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
        Ok(Self { collector, mechanism, lost: Lost::default(), misses: 0, reader, probes })
    }
}

impl Session for EventSession {
    fn advance(&mut self, wait: Duration) -> Result<bool, LatencyError> {
        let more = self.reader.poll(wait)?;
        while let Some(event) = self.reader.next_event()? {
            self.collector.event(&event)?;
        }
        let losses = self.reader.losses();
        let (events, gaps) = (losses.events(), losses.gaps());
        if (events, gaps) != (self.lost.events, self.lost.gaps) {
            // A gap of unknown length is one event at least.
            self.lost.fresh += (events - self.lost.events) + (gaps - self.lost.gaps);
            (self.lost.events, self.lost.gaps) = (events, gaps);
        }
        Ok(more)
    }

    fn stop(&mut self) -> Result<(), LatencyError> {
        Ok(self.reader.stop()?)
    }

    fn take(&mut self, last: bool) -> Result<Report, LatencyError> {
        let (parts, mut missed) = self.collector.take(last);
        let misses = self.probes.as_ref().map_or(0, Probes::misses);
        missed += Missed {
            lost_events: std::mem::take(&mut self.lost.fresh),
            probe_misses: misses.saturating_sub(self.misses),
            ..Missed::default()
        };
        self.misses = misses;
        Ok(Report { mechanism: self.mechanism.into(), parts, missed })
    }
}
