//! `pagehaul checkpoint` and `pagehaul restart`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_codec::{Method, zstd_level};
use pagehaul_present::number::{bytes, count};
use pagehaul_present::time::{seconds, utc};
use pagehaul_process::{
    CheckpointInfo, CheckpointOptions, CheckpointReport, Pid, ProcessError, RestartOptions, RestartReport,
    checkpoint, restart,
};

use crate::cli::options::{MaxMemory, Overwrite, Reporting, Threads, pid};
use crate::printed::print;
use crate::{run, usage};

/// Checkpoint a process tree with CRIU into one compressed file with checksums
///
/// Runs CRIU (version 4 or newer, on PATH; 4.2 for inet sockets on Linux 6.16 and newer) and streams its images through
/// memory, so that the processes are frozen no longer than copying takes. Refuses what CRIU cannot save here before it
/// stops anything, where that can be seen. Kills the processes once the file is safely on disk, unless --leave-running is given; if
/// anything fails, they continue. --force replaces OUTPUT once the new checkpoint is complete.
///
/// Exit status: 0, the checkpoint is complete; 1, there is none, and the processes continue; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul checkpoint 1234 service.ckpt
  pagehaul checkpoint --leave-running 1234 /var/checkpoints
  pagehaul checkpoint 1234 service.ckpt -- --tcp-established --shell-job")]
pub(crate) struct CheckpointArguments {
    /// Root of the process tree
    #[arg(value_parser = pid)]
    pub(crate) pid: Pid,
    /// File to write, or an existing directory to write checkpoint.pagehaul to
    pub(crate) output: PathBuf,
    /// Let the processes continue
    #[arg(long)]
    pub(crate) leave_running: bool,
    /// Codec: zstd with an optional level (zstd:3, zstd:-5)
    // zstd:1 is the default elsewhere because of an encoder tuned for pages. Frames of 1 MiB are libzstd's work, and frozen
    // processes wait for it.
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value = "zstd:-1")]
    pub(crate) compress: Method,
    #[command(flatten)]
    max_memory: MaxMemory,
    #[command(flatten)]
    threads: Threads,
    /// CRIU executable [default: criu on PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) criu: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    reporting: Reporting,
    /// Further arguments for `criu dump`
    #[arg(last = true)]
    pub(crate) arguments: Vec<String>,
}

/// Restart a checkpointed process tree
///
/// Checks every block of the checkpoint before restarting anything; on damage, fails and names the damaged range. The
/// processes get the same PIDs as before, which must be free.
#[derive(Debug, Args)]
pub(crate) struct RestartArguments {
    /// Checkpoint, or the directory it is in
    pub(crate) checkpoint: PathBuf,
    #[command(flatten)]
    threads: Threads,
    /// CRIU executable [default: criu on PATH]
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) criu: Option<PathBuf>,
    #[command(flatten)]
    reporting: Reporting,
    /// Further arguments for `criu restore`
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
        threads: arguments.threads.count(),
        max_memory: arguments.max_memory.max_memory,
        overwrite: arguments.overwrite.force,
        criu: arguments.criu.clone(),
        arguments: arguments.arguments.clone(),
    };
    let (result, _) = run::cancellable(arguments.reporting.is_quiet(), |progress| {
        checkpoint(arguments.pid, &arguments.output, &options, progress)
    })?;
    let report = result.map_err(failure)?;
    print(&report, None, arguments.reporting.manner(false), || render(&report));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(arguments: &RestartArguments) -> anyhow::Result<ExitCode> {
    let options = RestartOptions {
        threads: arguments.threads.count(),
        criu: arguments.criu.clone(),
        arguments: arguments.arguments.clone(),
    };
    let (result, _) = run::cancellable(arguments.reporting.is_quiet(), |progress| {
        restart(&arguments.checkpoint, &options, progress)
    })?;
    let report = result.map_err(failure)?;
    print(&report, None, arguments.reporting.manner(false), || render_restart(&report));
    Ok(ExitCode::SUCCESS)
}

/// Distinguishes a wrong command line from other errors.
fn failure(error: ProcessError) -> anyhow::Error {
    match error {
        ProcessError::OwnOption(_) => usage::wrong(error.to_string()),
        error => error.into(),
    }
}

/// The helper of `checkpoint`.
pub(crate) fn hold_userfaultfd(pid: Pid) -> anyhow::Result<ExitCode> {
    pagehaul_process::hold_userfaultfd(pid).context("the helper that holds the process failed")?;
    Ok(ExitCode::SUCCESS)
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
    if let Some(copy) = &report.pre_copy {
        out += &format!(
            "copied {} while running, in {} rounds after a stop of {:.1} ms; {} while frozen\n",
            bytes(copy.running_bytes),
            copy.rounds,
            copy.stopped_seconds * 1e3,
            bytes(copy.frozen_bytes),
        );
        for reason in &copy.copied_again {
            out += &format!("note: all memory was copied while frozen: {reason}\n");
        }
    }
    if let Some(reason) = &report.no_pre_copy {
        out += &format!("note: all memory was copied while frozen: {reason}\n");
    }
    for note in &report.notes {
        out += &format!("note: {note}\n");
    }
    if report.buffer_was_short {
        out += "note: the images did not fit the memory for them: the processes stayed frozen while they were \
                compressed (--max-memory)\n";
    }
    out
}

fn render_restart(report: &RestartReport) -> String {
    let mut out = format!(
        "process {} runs again: {} of images checked in {}, all {}\n",
        report.pid,
        bytes(report.image_bytes),
        seconds(report.verify_seconds),
        seconds(report.seconds),
    );
    if report.rearmed_timers > 0 {
        out += &format!(
            "note: periodic timers (timerfd) that had expired when they were saved: {}; they fire one interval after the \
             restart\n",
            count(report.rearmed_timers as u64)
        );
    }
    out
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
