use pagehaul_trace::{Event, Symbols};

use crate::between::{Between, EventName, Key};
use crate::calls::Missed;
use crate::collect::Functions;
use crate::report::Part;
use crate::setup::Options;
use crate::{Histogram, LatencyError};

/// What events are counted to, of live kernels and recordings alike.
pub(crate) enum Collector {
    /// Functions; a histogram for each of them, or one for all.
    Functions(Box<Functions>, bool),
    /// A pair of events, its histogram, and an empty one.
    Between(Box<Between>, Box<Histogram>, Box<Histogram>),
}

impl Collector {
    pub(crate) fn functions(patterns: &[String], symbols: Symbols, options: &Options) -> Self {
        let functions = Functions::new(patterns.to_vec(), symbols, options.unit, options.step);
        Self::Functions(Box::new(functions), options.by_function)
    }

    pub(crate) fn between(start: &EventName, end: &EventName, key: &Key, options: &Options) -> Self {
        let empty = Box::new(Histogram::new(options.unit, options.step));
        let between = Between::new(start.clone(), end.clone(), key.clone());
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

    /// What was counted since the last time. `last` counts what is open as unfinished.
    pub(crate) fn take(&mut self, last: bool) -> (Vec<Part>, Missed) {
        let (parts, mut missed, open) = match self {
            Self::Functions(functions, by_function) => {
                let (parts, missed) = functions.take(*by_function);
                (parts, missed, functions.open())
            }
            Self::Between(between, histogram, empty) => {
                let histogram = *std::mem::replace(histogram, empty.clone());
                (vec![Part { name: String::new(), histogram }], between.take_missed(), between.open())
            }
        };
        missed.unfinished = if last { open } else { 0 };
        (parts, missed)
    }
}
