use std::path::PathBuf;

use pagehaul_encryption::Recipients;
use serde::{Deserialize, Serialize};

use crate::units::Pid;

/// How a checkpoint is taken.
#[derive(Debug, Clone, Default)]
pub struct CheckpointOptions {
    /// Let the processes go on afterwards instead of ending them.
    pub leave_running: bool,
    /// zstd's level.
    pub level: i32,
    /// Threads that compress.
    pub threads: usize,
    /// Bytes of memory the images may take before they are compressed. None: half of what is available.
    pub max_memory: Option<u64>,
    /// An earlier checkpoint of the same processes: only what has changed since is written.
    pub base: Option<PathBuf>,
    /// Keep the marks of writes until the next checkpoint, which then copies only what was written to. Needs `leave_running`.
    pub keep_marks: bool,
    /// Who can read the file; if none are named, it is not encrypted.
    pub recipients: Option<Recipients>,
    /// Replace an existing file.
    pub overwrite: bool,
    /// CRIU, where it isn't to be searched on PATH.
    pub criu: Option<PathBuf>,
    /// More arguments for CRIU.
    pub arguments: Vec<String>,
}

/// The report of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointReport {
    /// The process, and its tree's size.
    pub pid: Pid,
    pub processes: usize,
    /// The container.
    pub output: String,
    /// CRIU's version.
    pub criu: String,
    /// Images CRIU wrote.
    pub images: usize,
    /// What was left out because the base has it.
    pub base: Option<BaseReport>,
    /// Bytes of them.
    pub image_bytes: u64,
    /// Bytes of the container.
    pub output_bytes: u64,
    /// How memory was copied while the processes ran; `None` if all of it was copied while they were frozen.
    pub pre_copy: Option<PreCopyReport>,
    /// Why memory was not copied while the processes ran.
    pub no_pre_copy: Option<String>,
    /// Whether writes are marked until the next checkpoint.
    pub kept_marks: bool,
    /// Seconds the processes were frozen, as CRIU has it: until they went on, or were killed.
    pub frozen_seconds: f64,
    /// Seconds until CRIU had sent all images.
    pub criu_seconds: f64,
    /// Seconds for everything.
    pub seconds: f64,
    /// Whether memory was too short, so that CRIU had to wait for the compression.
    pub buffer_was_short: bool,
    /// Whether the processes go on.
    pub left_running: bool,
    /// Whether the container is encrypted.
    pub encrypted: bool,
    /// What restarted processes lack, because CRIU does not restore it.
    pub lost: Vec<Lost>,
    /// What CRIU lacks on this system, and what was done about it.
    pub notes: Vec<String>,
}

/// A property that processes lose at a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Its name, such as `mseal`.
    pub property: String,
    /// How many mappings, threads or processes have it.
    pub count: usize,
    /// What has it and what becomes of it, as a sentence.
    pub note: String,
}

/// Report of an incremental checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BaseReport {
    pub path: String,
    /// How unchanged pages were found: `marks`, by marks of writes since the base; `compared`, by their contents. Shared memory,
    /// pages of files and small processes are compared in both cases.
    pub way: &'static str,
    /// Bytes of the images that are in the base, or in one of its bases.
    pub unchanged_bytes: u64,
}

/// Report of the memory that was copied while the processes ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PreCopyReport {
    /// How often what had been written was copied again, the first copy included.
    pub rounds: usize,
    /// Bytes copied while the processes ran and unchanged when they were frozen.
    pub running_bytes: u64,
    /// Bytes of their private anonymous memory copied while they were frozen. Shared memory, pages of files and processes born meanwhile
    /// are copied then, too, and not counted.
    pub frozen_bytes: u64,
    /// Bytes that were compressed and written while the processes ran. Pages that were written to afterwards count each time.
    pub spilled_bytes: u64,
    /// Bytes of them that are in the file and no part of the checkpoint.
    pub unused_bytes: u64,
    /// Seconds the processes were stopped before, to track their writes.
    pub stopped_seconds: f64,
    /// Why the kernel looked at each page while the processes were frozen, for CRIU to read their smaps: all of them, or the
    /// processes that are named. It takes about 17 ms for each GiB.
    pub walked: Vec<String>,
    /// Processes whose memory was all copied again while they were frozen, and why: something began to write to it without
    /// marks after the first copy.
    pub copied_again: Vec<String>,
}
