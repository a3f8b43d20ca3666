use pagehaul_trace::{Event, Symbols};

use crate::call_tracker::Missed;
use crate::error::LatencyError;
use crate::event_name::{EventName, Key};
use crate::event_pairs::EventPairs;
use crate::function_timer::FunctionTimer;
use crate::histogram::Histogram;
use crate::report::NamedHistogram;
use crate::setup::Options;

/// Collects histograms from events of live kernels and trace files.
pub(crate) enum Collector {
    /// FunctionTimer, and whether each has its own histogram.
    Functions(Box<FunctionTimer>, bool),
    /// A pair of events, its histogram, and an empty histogram.
    Between(Box<EventPairs>, Box<Histogram>, Box<Histogram>),
}

impl Collector {
    pub(crate) fn functions(patterns: &[String], symbols: Symbols, options: &Options) -> Self {
        let functions = FunctionTimer::new(patterns.to_vec(), symbols, options.unit, options.step);
        Self::Functions(Box::new(functions), options.by_function)
    }

    pub(crate) fn between(start: &EventName, end: &EventName, key: &Key, options: &Options) -> Self {
        let empty = Box::new(Histogram::new(options.unit, options.step));
        let between = EventPairs::new(start.clone(), end.clone(), key.clone());
        Self::Between(Box::new(between), empty.clone(), empty)
    }

    pub(crate) fn event(&mut self, event: &Event<'_>) -> Result<(), LatencyError> {
        match self {
            Self::Functions(functions, _) => {
                functions.event(event);
                Ok(())
            }
            Self::Between(between, histogram, _) => between.event(event, histogram),
        }
    }

    /// Returns what was collected since the last call. If `last`, open calls count as open_at_end.
    pub(crate) fn take(&mut self, last: bool) -> (Vec<NamedHistogram>, Missed) {
        let (histograms, mut missed, open) = match self {
            Self::Functions(functions, by_function) => {
                let (histograms, missed) = functions.take(*by_function);
                (histograms, missed, functions.open())
            }
            Self::Between(between, histogram, empty) => {
                let histogram = *std::mem::replace(histogram, empty.clone());
                (
                    vec![NamedHistogram { name: String::new(), histogram }],
                    between.take_missed(),
                    between.open(),
                )
            }
        };
        missed.open_at_end = if last { open } else { 0 };
        (histograms, missed)
    }
}
