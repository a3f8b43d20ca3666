//! `pagehaul checkpoint` and `pagehaul restart`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_codec::{Method, zstd_level};
use pagehaul_process::{CheckpointOptions, Pid, ProcessError, RestartOptions, checkpoint, restart};
use pagehaul_render::process as draw;

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
    print(&report, None, arguments.reporting.manner(false), || draw::checkpoint(&report));
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
    print(&report, None, arguments.reporting.manner(false), || draw::restart(&report));
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
