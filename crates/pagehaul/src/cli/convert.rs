//! `pagehaul convert`.

#[cfg(feature = "process")]
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use pagehaul_capture::{KnownPages, Limits};
use pagehaul_kernel::DumpLevel;
use pagehaul_upload::is_remote;

#[cfg(feature = "process")]
use crate::cli::checkpoint::NO_STREAM;
use crate::cli::dump_output::{DumpOutput, PageSelection};
use crate::cli::erase::Erase;
use crate::cli::keep::Keep;
use crate::cli::options::{Identity, ImageLayout};
use crate::sandbox::{self, Sandbox};
use crate::usage;

/// Convert a dump: another format or codec, fewer pages; join a split set, unflatten, salvage; make a checkpoint whole
///
/// Of an incremental checkpoint of processes, the output is a whole one, which needs no base.
///
/// The output holds every readable page of the source, unless --dump-level excludes it. Unreadable pages are counted and
/// recorded as missing, and the output is marked incomplete.
///
/// Exit status: 0, nothing was lost; 1, there is no output; 2, the command line is wrong; 3, pages were lost, or the
/// output is incomplete.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul convert dump.1 dump.2 dump.3 whole     join a split set
  pagehaul convert dump.flat dump                 unflatten
  pagehaul convert -f elf dump vmcore             for gdb
  pagehaul convert -d 31 -c zstd:3 vmcore small   filter and recompress
  pagehaul convert --encrypt-to age1… dump dump.age
  pagehaul convert --erase keys,names dump shared to give away
  pagehaul convert --keep-pid 4711 dump shared     the kernel's memory and that of one process
  pagehaul convert --layout flat memory dump      of what QEMU's pmemsave wrote
  pagehaul convert 12.ckpt whole.ckpt             a checkpoint with those that it is based on
  pagehaul convert --encrypt-to age1… 12.ckpt whole.ckpt.age
  pagehaul convert damaged salvaged               keep what is readable of a damaged or truncated file")]
pub(crate) struct ConvertArguments {
    /// The dump, or the parts of a split set in any order, files or URLs; last, the file to write (`-`: a flattened stream)
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "OUTPUT"])]
    files: Vec<PathBuf>,
    /// Pages to exclude, as for `capture` [default: none]
    #[arg(short, long, value_name = "LEVEL")]
    dump_level: Option<DumpLevel>,
    #[command(flatten)]
    pub(crate) dump: DumpOutput,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    erase: Erase,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    layout: ImageLayout,
}

/// The file that is written, which for a checkpoint may be named by its directory.
#[cfg(feature = "process")]
fn file_of(output: &Path, sources: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let is_checkpoint = |source: &PathBuf| !is_remote(source) && pagehaul_process::is_checkpoint(source);
    let Some(checkpoint) = sources.iter().find(|source| is_checkpoint(source)) else {
        return Ok(output.to_owned());
    };
    if sources.len() > 1 {
        let name = checkpoint.display();
        return Err(usage::wrong(format!(
            "{name} is a checkpoint of processes, which is converted alone: name the newest one and the file to write"
        )));
    }
    if output == Path::new("-") {
        return Err(usage::wrong(NO_STREAM));
    }
    Ok(pagehaul_process::checkpoint_path(output))
}

pub(crate) fn run(arguments: &ConvertArguments) -> anyhow::Result<ExitCode> {
    let Some((output, sources)) = arguments.files.split_last() else { bail!("name a source and an output") };
    if is_remote(output) {
        return Err(usage::wrong("convert writes files; copy the result to the server"));
    }
    let bases = super::hold(sources, &arguments.identity)?;
    arguments.dump.recipients()?;
    arguments.dump.spare_keys(std::slice::from_ref(output), arguments.identity.file())?;
    // Before the sandbox, which allows the files alone.
    #[cfg(feature = "process")]
    let output = &file_of(output, sources)?;
    arguments.dump.spare_keys(std::slice::from_ref(output), arguments.identity.file())?;
    sandbox::enter(Sandbox::reading(sources.iter().chain(&bases)).writing([output]))?;
    #[cfg(feature = "process")]
    if let [source] = sources
        && pagehaul_process::is_checkpoint(source)
    {
        let of_dumps = [
            (arguments.dump_level.is_some(), "--dump-level"),
            (!arguments.erase.subjects().is_empty(), "--erase"),
        ];
        let of_dumps = of_dumps.into_iter().find(|(given, _)| *given).map(|(_, option)| option.to_owned());
        if let Some(option) = of_dumps.or(arguments.keep.given()) {
            let why = format!("{option} is for dumps, and the source is a checkpoint of processes");
            return Err(usage::wrong(&why));
        }
        return crate::cli::checkpoint::make_whole(source, output, &arguments.dump.of_checkpoint()?);
    }
    let mut source = arguments.layout.open(sources)?;
    let level = arguments.keep.level(arguments.dump_level, DumpLevel::NONE)?;
    let owners = arguments.keep.apply(&mut source, arguments.dump.is_quiet())?;
    arguments.erase.apply(&mut source, arguments.dump.is_quiet())?;
    let selection = PageSelection {
        level,
        keep_all: arguments.dump_level.is_none() && owners.is_none(),
        owners,
        limits: Limits::default(),
        known: KnownPages::default(),
        warnings: Vec::new(),
    };
    arguments.dump.write(&source, std::slice::from_ref(output), selection)
}
