//! /proc files of processes, and CRIU's messages.

use pagehaul_process::fuzzing;

/// Runs the target.
pub fn run(data: &[u8]) {
    fuzzing::mappings(data);
    fuzzing::stat(data);
    fuzzing::status(&String::from_utf8_lossy(data));
    fuzzing::criu(data);
}
