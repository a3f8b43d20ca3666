//! Progress, cancellation and outcome of long runs (capture, convert, verify, core, checkpoint, restart); and running work
//! that may fail in any way in another process.

mod cancel;
mod child;
mod outcome;
mod progress;

pub use cancel::CancelToken;
pub use child::{ChildError, ChildOutput, output_within};
pub use outcome::Outcome;
pub use progress::{BytesWritten, Phase, Progress};
