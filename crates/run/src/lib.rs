//! What every long run has in common (capture, convert, verify, core, checkpoint, restart): how far it is, and a way to
//! end it early.

mod cancel;
mod progress;

pub use cancel::CancelToken;
pub use progress::{BytesWritten, Phase, Progress};
