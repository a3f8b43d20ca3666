//! /proc files of processes, and CRIU's messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_process::fuzzing;

fuzz_target!(|data: &[u8]| {
    fuzzing::mappings(data);
    fuzzing::stat(data);
    fuzzing::status(&String::from_utf8_lossy(data));
    fuzzing::criu(data);
});
