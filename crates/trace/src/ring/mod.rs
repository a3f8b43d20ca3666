//! The kernel's ring buffer, sub-buffer by sub-buffer, as `trace_pipe_raw` gives it and `trace.dat` keeps it.

mod layout;
mod sub_buffer;

pub(crate) use layout::MAX_SUB_BUFFER;
pub use layout::SubBufferLayout;
pub use sub_buffer::{MissedEvents, Record, SubBufferCursor, SubBufferError};
