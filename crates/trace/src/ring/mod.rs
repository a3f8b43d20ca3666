//! Sub-buffers of the kernel's ring buffer, as `trace_pipe_raw` returns them and `trace.dat` stores them.

mod layout;
mod sub_buffer;

pub(crate) use layout::MAX_SUB_BUFFER;
pub use layout::SubBufferLayout;
pub use sub_buffer::{MissedEvents, Record, SubBufferCursor, SubBufferError};
