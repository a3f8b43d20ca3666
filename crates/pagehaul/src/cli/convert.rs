//! `pagehaul convert`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use pagehaul_capture::{Codecs, Compression, Source};
use pagehaul_kernel::DumpLevel;
use pagehaul_physmem::MapPolicy;

use crate::cli::capture;
use crate::cli::{CaptureArguments, FormatArgument};

/// Make another dump of a saved one: other format, other codec, fewer pages; reassemble, unflatten, salvage
///
/// Every page that can be read is in the output, unless --dump-level says otherwise; what cannot be read is counted and
/// recorded as missing, and the output is then marked incomplete. The work is done as by `capture`.
///
/// Exit status: 0, nothing was lost; 1, there is no output; 2, the command line is wrong; 3, pages were lost, or the
/// output was left incomplete.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul convert dump.1 dump.2 dump.3 whole     the parts of a split set
  pagehaul convert dump.flat dump                 unflatten
  pagehaul convert -f elf dump vmcore             for gdb
  pagehaul convert -d 31 -c zstd:3 vmcore small   filter and recompress
  pagehaul convert damaged salvaged               what is left of a damaged or cut file")]
pub(crate) struct ConvertArguments {
    /// The dump, or the parts of a split set in any order; last, the file to write (`-`: a flattened stream)
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "OUTPUT"])]
    files: Vec<PathBuf>,
    /// Pages to leave out, as for `capture` [default: none]
    #[arg(short, long, value_name = "LEVEL")]
    dump_level: Option<DumpLevel>,
    /// none, zlib, lzo, snappy or zstd, and a level: zstd:3, zstd:-5, zlib:6. Or auto: as hard as the processors can while
    /// the disk keeps up; the bytes then differ from run to run, the pages do not
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value_t)]
    compress: Compression,
    /// The codecs that `--compress auto` may use, joined by commas [default: zlib, lzo, snappy, zstd]. crash knows zstd since
    /// 8.0.0 (2021)
    #[arg(long, value_name = "CODECS")]
    codecs: Option<Codecs>,
    /// Threads that read and compress [default: every CPU this process may use]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// How the output is laid out [default: kdump, flattened for `-`]
    #[arg(short, long, value_enum)]
    format: Option<FormatArgument>,
    /// Replace the output if it exists
    #[arg(long)]
    force: bool,
    /// Write the checksums of the output to OUTPUT.sums, for `verify`
    #[arg(long)]
    checksums: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    json: bool,
    /// Print errors only
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// Print more about what was found
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(arguments: ConvertArguments) -> anyhow::Result<ExitCode> {
    let Some((output, sources)) = arguments.files.split_last() else { bail!("name a source and an output") };
    let source = Source::open_all(sources, MapPolicy::default())?;
    let keep_all = arguments.dump_level.is_none();
    let as_capture = CaptureArguments {
        source: source.path().to_owned(),
        output: vec![output.clone()],
        dump_level: arguments.dump_level.unwrap_or(DumpLevel::NONE),
        compress: arguments.compress,
        codecs: arguments.codecs,
        threads: arguments.threads,
        format: arguments.format,
        dry_run: false,
        force: arguments.force,
        checksums: arguments.checksums,
        json: arguments.json,
        quiet: arguments.quiet,
        verbose: arguments.verbose,
        map_size: None,
        no_mmap: false,
        size_limit: None,
        time_limit: None,
    };
    let (report, code) = capture::take(&source, &as_capture, keep_all)?;
    if code != ExitCode::SUCCESS {
        return Ok(code);
    }
    let lost = report.unreadable_pages;
    if lost > 0 {
        tell!("pagehaul: {lost} pages could not be read and are lost; the output is marked incomplete");
    } else if source.is_incomplete() {
        tell!("pagehaul: the source is not whole, so the output is marked incomplete");
    }
    Ok(if lost > 0 || source.is_incomplete() { ExitCode::from(capture::INCOMPLETE) } else { code })
}
