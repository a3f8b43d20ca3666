//! What every long run has in common (capture, convert, verify, core, checkpoint, restart): how far it is, a way to end it
//! early, and how it ended. And work that is given to another process, since it may fail in any way.

mod cancel;
mod child;
mod outcome;
mod progress;

pub use cancel::CancelToken;
pub use child::{ChildError, ChildOutput, output_within};
pub use outcome::Outcome;
pub use progress::{BytesWritten, Phase, Progress};
