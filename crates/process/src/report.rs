use pagehaul_run::Outcome;
use serde::Serialize;

use crate::units::Pid;

/// Where the time went, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Seconds {
    /// Before the process was stopped: examining it, allocating memory.
    pub prepare: f64,
    /// From the stop of the first thread until the last one is resumed.
    pub pause: f64,
    /// Copying its memory; within the pause, unless it is live or a snapshot.
    pub copy: f64,
    /// From the end of preparing until everything was written.
    pub pack: f64,
    /// Waiting for the disk.
    pub finish: f64,
}

/// The report of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CoreReport {
    /// How it ended.
    pub outcome: Outcome,
    /// The process.
    pub pid: Pid,
    pub name: String,
    /// "stopped", "live" or "snapshot".
    pub mode: &'static str,
    /// Threads of the process.
    pub threads_saved: usize,
    /// Where the core is.
    pub output: String,
    /// "none" or zstd and a level.
    pub codec: String,
    /// Threads that copied and compressed.
    pub threads: usize,
    /// Kinds of mappings in the core.
    pub kinds: String,
    /// Bytes of address space that are mapped.
    pub mapped_bytes: u64,
    /// Of these, bytes excluded: of kinds not selected, VM_DONTDUMP, devices, never touched.
    pub excluded_bytes: u64,
    /// Bytes of the core, decompressed, holes included.
    pub core_bytes: u64,
    /// Bytes of existing pages that were copied.
    pub page_bytes: u64,
    /// Of these, bytes of zeros that became holes; 0 where they were compressed with the rest.
    pub zero_bytes: u64,
    pub output_bytes: u64,
    /// Pages that could not be read; they read as zeros.
    pub unreadable_pages: u64,
    /// Bytes of memory allocated for the copy.
    pub buffer_bytes: u64,
    /// Whether that was too little, so that the copy waited for the output.
    pub buffer_was_short: bool,
    /// Where the time went.
    pub seconds: Seconds,
    /// What the user should know.
    pub warnings: Vec<String>,
}
