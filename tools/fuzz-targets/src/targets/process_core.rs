//! A core of a process, plain or in zstd frames.

use crate::in_file;
use pagehaul_process::{describe, verify};
use pagehaul_run::Progress;

/// Runs the target.
pub fn run(data: &[u8]) {
    in_file(data, |path| {
        let info = describe(path);
        let found = verify(path, 1, &Progress::default());
        // What can be described can be verified.
        if let (Ok(Some(_)), Ok(found)) = (info, found) {
            assert!(found.is_some());
        }
    });
}
