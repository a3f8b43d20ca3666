//! The images that `restart` reads and changes: CRIU's process tree and open files.

/// Runs the target.
pub fn run(data: &[u8]) {
    pagehaul_process::fuzzing::restart(data);
}
