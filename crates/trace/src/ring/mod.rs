//! The kernel's ring buffer, sub-buffer by sub-buffer, as `trace_pipe_raw` gives it and `trace.dat` keeps it.

mod header;
mod page;

pub(crate) use header::MAX_PAGE;
pub use header::PageLayout;
pub use page::{Missed, PageCursor, PageFault, Record};
