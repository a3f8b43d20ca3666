use crate::comms::Comms;
use crate::error::TraceError;
use crate::event::Event;
use crate::format::Formats;
use crate::info::TraceInfo;
use crate::lost::Losses;
use crate::merge::{Merge, SubBufferSource};
use crate::source::EventSource;

/// An open trace file of ring-buffer sub-buffers: its metadata, and the merged events of its CPUs.
pub(crate) struct BinaryTrace<S> {
    pub(crate) info: TraceInfo,
    pub(crate) formats: Formats,
    pub(crate) comms: Comms,
    pub(crate) merge: Merge<S>,
}

impl<S: SubBufferSource> EventSource for BinaryTrace<S> {
    #[inline]
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        self.merge.next_event(&self.formats, &self.comms, u64::MAX)
    }

    fn formats(&self) -> &Formats {
        &self.formats
    }

    fn losses(&self) -> Losses {
        self.merge.losses()
    }
}
