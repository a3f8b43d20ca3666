use crate::{Comms, Event, Formats, Losses, TraceError};

/// Events in the order of time, wherever they come from.
pub trait EventSource {
    /// The next event; none at the end (of what there is now, for live sources).
    ///
    /// # Errors
    /// [`TraceError`] if the source cannot be read on.
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError>;

    /// The kinds of events known so far. Text sources learn theirs as lines come.
    fn formats(&self) -> &Formats;

    /// Names of tasks known so far.
    fn comms(&self) -> &Comms;

    /// What is known to be missing so far.
    fn losses(&self) -> Losses;
}
