use std::time::Duration;

use pagehaul_trace::EventSource;
use pagehaul_trace::live::LiveReader;

use crate::between::{Between, EventName, Key};
use crate::calls::Missed;
use crate::collect::Functions;
use crate::names::Names;
use crate::probes::Probes;
use crate::report::{Part, Report};
use crate::setup::{Options, Setup};
use crate::{Histogram, LatencyError};

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
    by_function: bool,
    lost: Lost,
    misses: u64,
    /// Before the probes, which can be removed when no instance uses them.
    reader: LiveReader,
    probes: Option<Probes>,
}

enum Collector {
    Functions(Box<Functions>),
    Between(Box<Between>, Box<Histogram>, Box<Histogram>),
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
        let names = match setup.probes {
            Some(_) => Names::default(),
            // Events of the function graph tracer carry addresses.
            None => Names::parse(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default()),
        };
        let functions = Functions::new(patterns.to_vec(), names, options.unit, options.step);
        Self::begin(setup, Collector::Functions(Box::new(functions)), options)
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
        let empty = Box::new(Histogram::new(options.unit, options.step));
        let between = Box::new(Between::new(start.clone(), end.clone(), key.clone()));
        Self::begin(setup, Collector::Between(between, empty.clone(), empty), options)
    }

    fn begin(setup: Setup, collector: Collector, options: &Options) -> Result<Self, LatencyError> {
        let Setup { mechanism, instance, probes } = setup;
        let mut reader = LiveReader::new(instance)?;
        reader.start()?;
        let (by_function, lost) = (options.by_function, Lost::default());
        Ok(Self { collector, mechanism, by_function, lost, misses: 0, reader, probes })
    }
}

impl Session for EventSession {
    fn advance(&mut self, wait: Duration) -> Result<bool, LatencyError> {
        let more = self.reader.poll(wait)?;
        while let Some(event) = self.reader.next_event()? {
            match &mut self.collector {
                Collector::Functions(functions) => functions.event(&event),
                Collector::Between(between, histogram, _) => between.event(&event, histogram)?,
            }
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
        let (parts, mut missed, open) = match &mut self.collector {
            Collector::Functions(functions) => {
                let (parts, missed) = functions.take(self.by_function);
                (parts, missed, functions.open())
            }
            Collector::Between(between, histogram, empty) => {
                let part =
                    Part { name: String::new(), histogram: *std::mem::replace(histogram, empty.clone()) };
                (vec![part], between.take_missed(), between.open())
            }
        };
        let misses = self.probes.as_ref().map_or(0, Probes::misses);
        missed += Missed {
            unfinished: if last { open } else { 0 },
            lost_events: std::mem::take(&mut self.lost.fresh),
            probe_misses: misses.saturating_sub(self.misses),
            ..Missed::default()
        };
        self.misses = misses;
        Ok(Report { mechanism: self.mechanism.into(), parts, missed })
    }
}
