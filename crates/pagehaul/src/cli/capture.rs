//! `pagehaul capture`.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::thread;

use pagehaul_capture::{
    CaptureError, Compression, Format, Limits, Options, Report, Source, Target, capture, estimate,
};
use pagehaul_physmem::{Access, MapPolicy};

use crate::cli::{CaptureArguments, FormatArgument};
use crate::printed::{Manner, print};
use crate::{run, summary, usage};

/// Exit status of a capture that left an incomplete dump.
pub(crate) const INCOMPLETE: u8 = 3;

fn map_policy(arguments: &CaptureArguments) -> MapPolicy {
    let default = MapPolicy::default();
    match arguments.map_size {
        Some(window) => MapPolicy { window, access: Access::Map },
        None if arguments.no_mmap => MapPolicy { access: Access::Read, ..default },
        None => default,
    }
}

pub(crate) fn run(arguments: &CaptureArguments) -> anyhow::Result<ExitCode> {
    let source = Source::open(&arguments.source, map_policy(arguments))?;
    Ok(take(&source, arguments, false)?.1)
}

/// Takes the dump that `arguments` ask for of `source`; with `keep_all`, of every page it holds.
pub(crate) fn take(
    source: &Source,
    arguments: &CaptureArguments,
    keep_all: bool,
) -> anyhow::Result<(Report, ExitCode)> {
    let (target, format) = destination(arguments)?;
    let options = Options {
        level: arguments.dump_level,
        keep_all,
        checksums: arguments.checksums,
        compression: compression(arguments)?,
        threads: threads(arguments),
        format,
        limits: Limits { time: arguments.time_limit, size: arguments.size_limit },
    };
    let (result, peak) = run::cancellable(arguments.quiet, |progress| match &target {
        Some(target) => capture(source, target, &options, progress),
        None => estimate(source, &options, progress),
    })?;
    let report = result.map_err(|error| {
        // What is wrong with the output names it; what is wrong with the source may not.
        let of_source = matches!(error, CaptureError::Kernel(_) | CaptureError::Layout(_));
        let error = anyhow::Error::from(error);
        if of_source { error.context(source.path().display().to_string()) } else { error }
    })?;
    let to_stdout = target == Some(Target::Stdout);
    let manner = Manner { json: arguments.json, quiet: arguments.quiet, output_taken: to_stdout };
    print(&report, Some(peak), manner, || summary::render(&report, peak, arguments.verbose));
    let code = match summary::failure(&report) {
        None => ExitCode::SUCCESS,
        Some(sentence) => {
            tell!("pagehaul: {sentence}");
            ExitCode::from(INCOMPLETE)
        }
    };
    Ok((report, code))
}

/// Where the dump goes and in which format; nowhere for a dry run.
fn destination(arguments: &CaptureArguments) -> anyhow::Result<(Option<Target>, Format)> {
    let to_stdout = arguments.output.iter().any(|path| path == Path::new("-"));
    let format = match arguments.format {
        Some(FormatArgument::Kdump) => Format::Kdump,
        Some(FormatArgument::Elf) => Format::Elf,
        Some(FormatArgument::Flattened) => Format::Flattened,
        None if to_stdout => Format::Flattened,
        None => Format::Kdump,
    };
    if arguments.dry_run {
        return Ok((None, format));
    }
    if to_stdout && arguments.json {
        return Err(usage::wrong(
            "--json and the dump cannot both go to standard output; name an output file",
        ));
    }
    let overwrite = arguments.force;
    if to_stdout && io::stdout().is_terminal() {
        return Err(usage::wrong(
            "a terminal is no place for a dump; redirect standard output, or name a file",
        ));
    }
    if to_stdout && arguments.checksums {
        return Err(usage::wrong(
            "--checksums go to a file beside the output, and standard output has none; name a file",
        ));
    }
    let target = match &*arguments.output {
        [_] if to_stdout => Target::Stdout,
        _ if to_stdout => {
            return Err(usage::wrong(
                "`-` writes all of the dump to standard output; parts have to be files",
            ));
        }
        [path] => Target::File { path: path.clone(), overwrite },
        [] => return Err(usage::wrong("name an output file, or ask for --dry-run")),
        paths => Target::Parts { paths: paths.to_vec(), overwrite },
    };
    Ok((Some(target), format))
}

/// How pages are compressed.
fn compression(arguments: &CaptureArguments) -> anyhow::Result<Compression> {
    match (arguments.compress, arguments.codecs) {
        (Compression::Auto(_), Some(codecs)) => Ok(Compression::Auto(codecs)),
        (Compression::Fixed(_), Some(_)) => {
            Err(usage::wrong("--codecs says what --compress auto may use; add -c auto"))
        }
        (compression, None) => Ok(compression),
    }
}

fn threads(arguments: &CaptureArguments) -> usize {
    match arguments.threads {
        Some(threads) => threads.into(),
        None => every_cpu(),
    }
}

/// How many CPUs this process may use.
pub(crate) fn every_cpu() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}
