//! `pagehaul core`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_codec::{Codec, Method, zstd_level};
use pagehaul_process::{CoreReport, Kinds, Mode, Options, Pid, Target, core};
use pagehaul_render::process as draw;

use crate::cli::core_encrypted;
use crate::cli::encrypt_to;
use crate::cli::options::{MaxMemory, Overwrite, Reporting, Threads, pid};
use crate::printed::print;
use crate::{exit, run, standard_output, usage};

/// zstd's level where none is given. The process does not wait for it, so the core may as well be smaller.
const LEVEL: i32 = 3;

/// Write a core of a process without ending it
///
/// Stops all threads, copies the memory at memory speed, resumes the process, then compresses and writes the copy. gdb,
/// lldb, drgn and elfutils open the core; a core in zstd frames (OUTPUT ends in .zst) after `zstd -d`. Pages never
/// touched and pages of zeros are holes. --force replaces OUTPUT once the new core is complete; an incomplete one then goes to
/// OUTPUT.incomplete.
///
/// Exit status: 0, the core is complete; 1, there is no core; 2, the command line is wrong; 3, the core is incomplete and
/// marked so (disk full, signal, the process ended). The process continues unchanged in every case.
#[derive(Debug, Args)]
#[command(
    after_help = "Kinds of mappings: anon-private, anon-shared, file-private, file-shared, elf-headers, \
huge-private, huge-shared, dax-private, dax-shared; and anonymous, shared, file, huge, dax, all for several.

Examples:
  pagehaul core 1234 core.zst
  pagehaul core --snapshot 1234 core.zst
  pagehaul core --include file --exclude shared 1234 core
  pagehaul core 1234 - | ssh host 'cat > core'
  pagehaul core --encrypt-to recipients 1234 core.zst.age"
)]
pub(crate) struct CoreArguments {
    /// Process ID
    #[arg(value_parser = pid)]
    pub(crate) pid: Pid,
    /// File to write; `-` writes to standard output
    pub(crate) output: PathBuf,
    /// Codec: zstd with an optional level (zstd:3, zstd:-5), or none for plain ELF [default: zstd:3 if OUTPUT ends in .zst or the core is encrypted, else none]
    #[arg(short, long, value_name = "CODEC[:LEVEL]")]
    pub(crate) compress: Option<Method>,
    /// Encrypt the core (age) so that only the holder of the secret key reads it, after `age -d` and `zstd -d`: a recipient
    /// (age1…), a public ed25519 key of SSH, or a file with one a line; may be repeated
    #[arg(long, value_name = "RECIPIENT")]
    encrypt_to: Vec<String>,
    /// Copy while the process runs, and stop it for its registers only: memory is not from a single moment
    #[arg(long, conflicts_with = "snapshot")]
    pub(crate) live: bool,
    /// Make the process fork a copy-on-write child during a short stop, and save the child
    #[arg(long)]
    pub(crate) snapshot: bool,
    /// Also include these kinds of mappings, beyond the process's coredump_filter
    #[arg(long, value_name = "KINDS", default_value = "none", hide_default_value = true, value_parser = kinds)]
    pub(crate) include: Kinds,
    /// Exclude these kinds of mappings
    #[arg(long, value_name = "KINDS", default_value = "none", hide_default_value = true, value_parser = kinds)]
    pub(crate) exclude: Kinds,
    #[command(flatten)]
    max_memory: MaxMemory,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    reporting: Reporting,
}

pub(crate) fn run(arguments: &CoreArguments) -> anyhow::Result<ExitCode> {
    let to_stdout = arguments.output == Path::new("-");
    if to_stdout && arguments.reporting.is_json() {
        return Err(usage::wrong(
            "--json and the core cannot both go to standard output; name an output file",
        ));
    }
    if let Some(refusal) = standard_output::refusal().filter(|_| to_stdout) {
        return Err(usage::wrong(refusal));
    }
    encrypt_to::spare_keys(&arguments.encrypt_to, None, &arguments.output)?;
    let recipients = encrypt_to::recipients(&arguments.encrypt_to)?;
    let target = if to_stdout {
        Target::Stdout
    } else {
        Target::File { path: arguments.output.clone(), overwrite: arguments.overwrite.force }
    };
    let options = Options {
        mode: match (arguments.live, arguments.snapshot) {
            (true, _) => Mode::Live,
            (_, true) => Mode::Snapshot,
            _ => Mode::Stopped,
        },
        include: arguments.include,
        exclude: arguments.exclude,
        level: level(arguments)?,
        threads: arguments.threads.count(),
        max_memory: arguments.max_memory.max_memory,
    };
    let (result, peak) = run::cancellable(arguments.reporting.is_quiet(), |progress| match &recipients {
        None => Ok(core(arguments.pid, &target, &options, progress)?),
        Some(recipients) => {
            let (output, force) = (&arguments.output, arguments.overwrite.force);
            core_encrypted::write(arguments.pid, output, force, &options, recipients, progress)
        }
    })?;
    let report: CoreReport = result?;
    let is_encrypted = recipients.is_some();
    print(&report, Some(peak), arguments.reporting.manner(to_stdout), || {
        draw::core(&report, is_encrypted, peak)
    });
    match draw::core_failure(&report, is_encrypted) {
        None => Ok(ExitCode::SUCCESS),
        Some(sentence) => {
            tell!("pagehaul: {sentence}");
            Ok(ExitCode::from(exit::INCOMPLETE))
        }
    }
}

/// The helper of `--snapshot`.
pub(crate) fn hold_snapshot(pid: Pid, state: u8) -> anyhow::Result<ExitCode> {
    pagehaul_process::hold_snapshot(pid, state).context("the helper that holds the process failed")?;
    Ok(ExitCode::SUCCESS)
}

/// zstd's level, or none for plain ELF. A stream has no holes, and an encrypted one does not compress any more.
fn level(arguments: &CoreArguments) -> anyhow::Result<Option<i32>> {
    let zst = arguments.output.extension().is_some_and(|extension| extension == "zst")
        || !arguments.encrypt_to.is_empty();
    match arguments.compress {
        None if zst => Ok(Some(LEVEL)),
        None => Ok(None),
        Some(method) if method.codec() == Codec::None => Ok(None),
        Some(method) => match zstd_level(method) {
            Some(level) => Ok(Some(level)),
            None => {
                Err(usage::wrong("cores are compressed with zstd or not at all; use --compress zstd or none"))
            }
        },
    }
}

fn kinds(text: &str) -> Result<Kinds, String> {
    if text == "none" { Ok(Kinds::NONE) } else { text.parse() }
}
