//! Trace events of all kernels from Linux 4.4 to 7.3 as one set of types.

mod event;
mod reader;
mod shrinkers;

use std::collections::BTreeSet;

use pagehaul_trace::{Event, EventFormat};

pub use event::{IntervalKind, LruList, ReclaimEvent, ReclaimStat, ThrottleReason};
pub use shrinkers::ShrinkerNames;

/// Turns trace events into [`ReclaimEvent`]s. Each kind of event is looked up once.
#[derive(Default)]
pub struct Decoder {
    /// By the format's index; none for kinds not seen yet, `Some(None)` for those that have nothing to do with reclaim.
    readers: Vec<Option<Option<reader::Reader>>>,
    shrinkers: ShrinkerNames,
    /// Names of the kinds of events that the trace has, or could have.
    available: BTreeSet<String>,
}

impl Decoder {
    /// Decodes an event; none if it has nothing to do with reclaim.
    #[inline]
    pub fn decode(&mut self, event: &Event<'_>) -> Option<ReclaimEvent> {
        let format = event.format();
        if !matches!(self.readers.get(format.index), Some(Some(_))) {
            self.learn(format);
        }
        let reader = self.readers.get(format.index)?.as_ref()?.as_ref()?;
        reader(event, &mut self.shrinkers)
    }

    /// Learns a kind of event. The formats of a recording count as available even where no event came.
    #[cold]
    pub fn learn(&mut self, format: &EventFormat) {
        if self.readers.len() <= format.index {
            self.readers.resize_with(format.index + 1, || None);
        }
        let reader = reader::reader(format);
        if reader.is_some() {
            self.available.insert(format.name.clone());
        }
        self.readers[format.index] = Some(reader);
    }

    /// Returns whether the trace has, or could have, events of this name.
    pub fn has(&self, name: &str) -> bool {
        self.available.contains(name)
    }

    /// Returns whether the trace has, or could have, any event of reclaim.
    pub(crate) fn has_vmscan(&self) -> bool {
        self.available.iter().any(|name| name.starts_with("mm_vmscan_"))
    }

    /// The names of shrinkers by id.
    pub fn shrinkers(&self) -> &ShrinkerNames {
        &self.shrinkers
    }
}
