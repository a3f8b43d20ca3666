//! Progress, cancellation and outcome of long runs (capture, convert, verify, core, checkpoint, restart); and running work
//! that may fail in any way in another process; when what failed is tried again;
//! how much memory there is.

mod cancel;
mod child;
pub mod memory;
mod outcome;
mod progress;
mod retry;

pub use cancel::CancelToken;
pub use child::{ChildError, ChildOutput, output_unless, output_within};
pub use outcome::Outcome;
pub use progress::{BytesWritten, Phase, Progress};
pub use retry::{Moved, Pace, Patience, Retry, Stop};
