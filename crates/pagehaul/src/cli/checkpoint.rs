//! `pagehaul checkpoint`, `pagehaul restart`, and `pagehaul convert` of checkpoints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_codec::{Method, zstd_level};
use pagehaul_process::{
    CheckpointOptions, Pid, ProcessError, RestartOptions, WholeOptions, bases_of, checkpoint,
    checkpoint_path, restart,
};
use pagehaul_render::process as draw;

use crate::cli::dump_output::CheckpointOutput;
use crate::cli::encrypt_to;
use crate::cli::options::{Identity, MaxMemory, Overwrite, Reporting, Threads, pid};
use crate::printed::print;
use crate::{run, usage};

/// Checkpoint a process tree with CRIU into one compressed file with checksums
///
/// Runs CRIU (version 4 or newer, on PATH; 4.2 for inet sockets on Linux 6.16 and newer) and streams its images through
/// memory, so that the processes are frozen no longer than copying takes. Refuses what CRIU cannot save here before it
/// stops anything, where that can be seen. Kills the processes once the file is safely on disk, unless --leave-running is given; if
/// anything fails, they continue. --force replaces OUTPUT once the new checkpoint is complete.
///
/// With --base, only the pages that differ from an earlier checkpoint of the same processes are written. A restart then needs that
/// file too, and those that it is based on: `info` lists them, `verify` checks them, `convert` makes one file of them. A base is known by
/// its path, which is relative where it is in the same directory, and by its ID.
///
/// With --keep-marks, the next checkpoint finds what was written to by marks (Linux 6.7 and newer). Otherwise, or if the marks are
/// lost, it reads and compares all memory. Both write the same pages.
///
/// With --encrypt-to, nothing of it is written in the clear. `restart`, `info`, `verify`, `convert` and --base take --identity; a chain may
/// have both encrypted files and others.
///
/// Exit status: 0, the checkpoint is complete; 1, there is none, and the processes continue; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul checkpoint 1234 service.ckpt
  pagehaul checkpoint --leave-running 1234 /var/checkpoints
  pagehaul checkpoint --leave-running --base 1.ckpt 1234 2.ckpt     what has changed since 1.ckpt
  pagehaul checkpoint --encrypt-to recipients 1234 service.ckpt.age
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
    /// Earlier checkpoint of the same processes (or its directory): write only what differs from it
    #[arg(long, value_name = "FILE")]
    pub(crate) base: Option<PathBuf>,
    /// Have writes marked until the next checkpoint, which with --base copies only what was written to. A small process keeps the marks,
    /// and ends when the processes do
    #[arg(long, requires = "leave_running")]
    pub(crate) keep_marks: bool,
    /// Codec: zstd with an optional level (zstd:3, zstd:-5)
    // zstd:1 is the default elsewhere because of an encoder tuned for pages. Frames of 1 MiB are libzstd's work, and frozen
    // processes wait for it.
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value = "zstd:-1")]
    pub(crate) compress: Method,
    /// Encrypt the checkpoint (age) so that only the holder of the secret key restarts or reads it: a recipient (age1…), a public
    /// ed25519 key of SSH, or a file with one a line; may be repeated
    #[arg(long, value_name = "RECIPIENT")]
    encrypt_to: Vec<String>,
    // Of --base, and what that is based on.
    #[command(flatten)]
    identity: Identity,
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
/// Checks every block that the checkpoint needs before restarting anything; on damage, fails and names the damaged range. The
/// processes get the same PIDs as before, which must be free. An incremental checkpoint needs the files that it is based on.
#[derive(Debug, Args)]
pub(crate) struct RestartArguments {
    /// Checkpoint, or the directory it is in
    pub(crate) checkpoint: PathBuf,
    #[command(flatten)]
    identity: Identity,
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

pub(crate) const NO_STREAM: &str =
    "a checkpoint cannot be written to a stream; name a file, or ./- for a file with this name";

pub(crate) fn save(arguments: &CheckpointArguments) -> anyhow::Result<ExitCode> {
    let Some(level) = zstd_level(arguments.compress) else {
        return Err(usage::wrong("checkpoints are compressed with zstd; use --compress zstd:LEVEL"));
    };
    if arguments.output == Path::new("-") {
        return Err(usage::wrong(NO_STREAM));
    }
    if arguments.base.as_deref() == Some(Path::new("-")) {
        return Err(usage::wrong("--base cannot be a stream; name the file of a checkpoint"));
    }
    let (keys, identity) = (&arguments.encrypt_to, arguments.identity.file());
    encrypt_to::spare_keys(keys, identity, &checkpoint_path(&arguments.output))?;
    let recipients = encrypt_to::recipients(keys)?;
    if let Some(base) = &arguments.base {
        hold(base, &arguments.identity)?;
    }
    let options = CheckpointOptions {
        leave_running: arguments.leave_running,
        level,
        threads: arguments.threads.count(),
        max_memory: arguments.max_memory.max_memory,
        base: arguments.base.clone(),
        keep_marks: arguments.keep_marks,
        recipients,
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
    hold(&arguments.checkpoint, &arguments.identity)?;
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

/// Makes one file of a checkpoint and those that it is based on.
pub(crate) fn make_whole(source: &Path, output: &Path, how: &CheckpointOutput) -> anyhow::Result<ExitCode> {
    let options = WholeOptions {
        level: how.level,
        threads: how.threads,
        recipients: how.recipients.clone(),
        overwrite: how.overwrite,
    };
    let (result, _) = run::cancellable(how.reporting.is_quiet(), |progress| {
        pagehaul_process::make_whole(source, output, &options, progress)
    })?;
    let report = result.map_err(failure)?;
    print(&report, None, how.reporting.manner(false), || draw::whole_checkpoint(&report));
    Ok(ExitCode::SUCCESS)
}

/// Keeps what opens the encrypted ones of a checkpoint and the files that it is based on.
fn hold(checkpoint: &Path, identity: &Identity) -> anyhow::Result<()> {
    let mut unlocking = identity.unlocking()?;
    bases_of(checkpoint, |file| unlocking.hold(file))?;
    Ok(())
}

/// Distinguishes a wrong command line from other errors.
fn failure(error: ProcessError) -> anyhow::Error {
    match error {
        ProcessError::OwnOption(_) => usage::wrong(error.to_string()),
        error => error.into(),
    }
}

/// The holder of `checkpoint --keep-marks`.
pub(crate) fn hold_marks() -> anyhow::Result<ExitCode> {
    pagehaul_process::hold_marks().context("the process that holds the marks failed")?;
    Ok(ExitCode::SUCCESS)
}

/// The helper of `checkpoint`.
pub(crate) fn hold_userfaultfd(pid: Pid, opens: bool) -> anyhow::Result<ExitCode> {
    pagehaul_process::hold_userfaultfd(pid, opens).context("the helper that holds the process failed")?;
    Ok(ExitCode::SUCCESS)
}
