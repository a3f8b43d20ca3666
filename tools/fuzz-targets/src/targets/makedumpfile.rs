//! makedumpfile's command line: words between zeros.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use pagehaul_makedumpfile::{Invalid, Options};

/// Runs the target.
pub fn run(data: &[u8]) {
    let words = data.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    if let Err(Invalid::Because(sentence)) = Options::parse(words).task() {
        assert!(!sentence.is_empty());
    }
}
