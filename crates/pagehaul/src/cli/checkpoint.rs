//! `pagehaul checkpoint` and `pagehaul restart`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use clap::Args;
use pagehaul_codec::{Method, zstd_level};
use pagehaul_present::number::{bytes, count, parse_bytes};
use pagehaul_present::time::{seconds, utc};
use pagehaul_process::{
    CheckpointInfo, CheckpointOptions, CheckpointReport, Pid, RestartOptions, RestartReport, checkpoint,
    restart,
};

use crate::printed::{Manner, print};
use crate::{run, usage};

/// Save a process and its descendants with CRIU, compressed, in one file with checksums
///
/// CRIU (version 4 or newer, on PATH) saves what the kernel knows; its images stream through memory, so that the
/// processes are frozen no longer than it takes to copy them. They are ended once the file is safe on the disk, unless
/// --leave-running; if anything fails, they go on.
///
/// Exit status: 0, the checkpoint is complete; 1, there is none, and the processes go on; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul checkpoint 1234 service.ckpt
  pagehaul checkpoint --leave-running 1234 /var/checkpoints
  pagehaul checkpoint 1234 service.ckpt -- --tcp-established --shell-job")]
pub(crate) struct CheckpointArguments {
    /// First process to save
    pub(crate) pid: Pid,
    /// File to write, or an existing folder to write checkpoint.pagehaul to
    pub(crate) output: PathBuf,
    /// Let the processes go on
    #[arg(long)]
    pub(crate) leave_running: bool,
    /// zstd, with a level: zstd:3, zstd:-5
    // Processes wait for it, and frames of a MiB are libzstd's: the encoder that makes level 1 the default elsewhere is for
    // pages.
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value = "zstd:-1")]
    pub(crate) compress: Method,
    /// Memory the images may take before they are compressed. If that is too little, the processes stay frozen until the
    /// rest is compressed [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_memory: Option<u64>,
    /// Threads that compress [default: every CPU this process may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// CRIU's program [default: criu on PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) criu: Option<PathBuf>,
    /// Replace the output if it exists, once the new checkpoint is whole
    #[arg(long)]
    pub(crate) force: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// More arguments for `criu dump`
    #[arg(last = true)]
    pub(crate) arguments: Vec<String>,
}

/// Restart the processes of a checkpoint
///
/// Every block of the checkpoint is checked before anything is restarted; one that is damaged is refused, and where the
/// damage is is said. The processes have the same PIDs as before, which must be free.
#[derive(Debug, Args)]
pub(crate) struct RestartArguments {
    /// Checkpoint, or the folder it is in
    pub(crate) checkpoint: PathBuf,
    /// Threads that check and decompress [default: every CPU this process may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// CRIU's program [default: criu on PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) criu: Option<PathBuf>,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// More arguments for `criu restore`
    #[arg(last = true)]
    pub(crate) arguments: Vec<String>,
}

pub(crate) fn save(arguments: &CheckpointArguments) -> anyhow::Result<ExitCode> {
    let Some(level) = zstd_level(arguments.compress) else {
        return Err(usage::wrong("checkpoints are compressed with zstd; use --compress zstd:LEVEL"));
    };
    let options = CheckpointOptions {
        leave_running: arguments.leave_running,
        level,
        threads: threads(arguments.threads),
        max_memory: arguments.max_memory,
        overwrite: arguments.force,
        criu: arguments.criu.clone(),
        arguments: arguments.arguments.clone(),
    };
    let (result, _) = run::cancellable(arguments.quiet, |progress| {
        checkpoint(arguments.pid, &arguments.output, &options, progress)
    })?;
    let report = result?;
    let manner = Manner { json: arguments.json, quiet: arguments.quiet, output_taken: false };
    print(&report, None, manner, || render(&report));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(arguments: &RestartArguments) -> anyhow::Result<ExitCode> {
    let options = RestartOptions {
        threads: threads(arguments.threads),
        criu: arguments.criu.clone(),
        arguments: arguments.arguments.clone(),
    };
    let (result, _) =
        run::cancellable(arguments.quiet, |progress| restart(&arguments.checkpoint, &options, progress))?;
    let report = result?;
    let manner = Manner { json: arguments.json, quiet: arguments.quiet, output_taken: false };
    print(&report, None, manner, || render_restart(&report));
    Ok(ExitCode::SUCCESS)
}

fn threads(given: Option<u16>) -> usize {
    given.map_or_else(|| thread::available_parallelism().map_or(1, Into::into), Into::into)
}

fn render(report: &CheckpointReport) -> String {
    let mut out = format!(
        "process {}: {} processes {}\n{}: {} for {} of images ({:.2} to 1)\n",
        report.pid,
        count(report.processes as u64),
        if report.left_running { "saved, and running on" } else { "saved and ended" },
        report.output,
        bytes(report.output_bytes),
        bytes(report.image_bytes),
        report.image_bytes as f64 / report.output_bytes.max(1) as f64,
    );
    out += &format!(
        "frozen {:.1} ms, CRIU {} took {}, all {}\n",
        report.frozen_seconds * 1e3,
        report.criu,
        seconds(report.criu_seconds),
        seconds(report.seconds),
    );
    if report.buffer_was_short {
        out += "note: the images did not fit the memory for them: the processes stayed frozen while they were \
                compressed (--max-memory)\n";
    }
    out
}

fn render_restart(report: &RestartReport) -> String {
    format!(
        "process {} runs again: {} of images checked in {}, all {}\n",
        report.pid,
        bytes(report.image_bytes),
        seconds(report.verify_seconds),
        seconds(report.seconds),
    )
}

/// A checkpoint as `pagehaul info` shows it.
pub(crate) fn describe(info: &CheckpointInfo) -> String {
    let text = |key: &str| match &info.about[key] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut out = String::new();
    for (name, value) in [
        ("format", "checkpoint of processes (CRIU images)".to_owned()),
        ("complete", "yes".into()),
        ("process", format!("{} ({})", text("pid"), text("name"))),
        ("processes", text("processes")),
        ("time", utc(info.about["time"].as_u64().unwrap_or(0))),
        ("CRIU", text("criu")),
        ("images", format!("{} ({})", info.images.len(), bytes(info.image_bytes))),
        ("file", bytes(info.file_bytes)),
    ] {
        out += &format!("{name:14}{value}\n");
    }
    out
}
