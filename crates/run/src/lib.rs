//! What every long run has in common (capture, convert, verify, core, checkpoint, restart): how far it is, a way to end it
//! early, and how it ended.

mod cancel;
mod outcome;
mod progress;

pub use cancel::CancelToken;
pub use outcome::Outcome;
pub use progress::{BytesWritten, Phase, Progress};
