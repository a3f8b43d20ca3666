//! makedumpfile's command line: words between zeros.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

// They are in the program, not in a library.
#[allow(dead_code)]
#[path = "../../../../crates/pagehaul/src/makedumpfile/getopt.rs"]
mod getopt;
#[allow(dead_code)]
#[path = "../../../../crates/pagehaul/src/makedumpfile/options.rs"]
mod options;
#[allow(dead_code)]
#[path = "../../../../crates/pagehaul/src/makedumpfile/task.rs"]
mod task;

/// Runs the target.
pub fn run(data: &[u8]) {
    let words = data.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let options = options::Options::parse(words);
    if let Err(Some(sentence)) = options.task() {
        assert!(!sentence.is_empty());
    }
}
