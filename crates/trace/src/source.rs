use crate::error::TraceError;
use crate::event::Event;
use crate::format::Formats;
use crate::lost::Losses;

/// A source of events in time order.
pub trait EventSource {
    /// Returns the next event, or `None` at the end. For live sources, the end is that of the last poll.
    ///
    /// # Errors
    /// [`TraceError`] if the source cannot be read any further.
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError>;

    /// Returns the event formats known so far. Text sources add formats as they meet new kinds of lines.
    fn formats(&self) -> &Formats;

    /// Returns the losses known so far.
    fn losses(&self) -> Losses;

    /// Returns what the user should know, as far as it is known, one sentence each: a truncated file, parts left out.
    fn warnings(&self) -> &[String] {
        &[]
    }
}
