//! A core of a process, plain or in zstd frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_fuzz::in_file;
use pagehaul_process::{describe, verify};
use pagehaul_run::Progress;

fuzz_target!(|data: &[u8]| {
    in_file(data, |path| {
        let info = describe(path);
        let found = verify(path, 1, &Progress::default());
        // What can be described can be verified.
        if let (Ok(Some(_)), Ok(found)) = (info, found) {
            assert!(found.is_some());
        }
    });
});
