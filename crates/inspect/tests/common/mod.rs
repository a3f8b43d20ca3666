//! What tests of reports share.

use pagehaul_synth::Task;

/// A task with the stack of one that waits for I/O.
pub fn task(pid: u32, state: u32) -> Task {
    Task {
        pid,
        comm: format!("task{pid}"),
        state,
        ran: 1,
        stack: vec!["__schedule", "schedule", "io_schedule"],
        pages: Some(100),
    }
}
