//! The log of a kernel as text: the crash in it.

use pagehaul_facts::{Crash, FRAMES, lines_of_text};

/// Runs the target.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(crash) = Crash::find(&lines_of_text(&text)) else { return };
    assert!(crash.signature.frames.len() <= FRAMES);
    assert!(crash.text.len() <= text.len() + 1);
}
