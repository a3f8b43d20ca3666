//! Dumps: -d and the codecs, -F, -E, --split, --reassemble, --dry-run.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::bail;
use pagehaul_capture::{
    CaptureError, CaptureReport, Compression, Format, Limits, Options as CaptureOptions, Outcome, Target,
    capture, estimate,
};
use pagehaul_codec::{Codec, Method};
use pagehaul_encryption::Recipients;
use pagehaul_kdump::format::flags;
use pagehaul_kernel::DumpLevel;
use pagehaul_physmem::{Access, MapPolicy};
use pagehaul_run::Progress;
use pagehaul_upload::Uploading;
use pagehaul_vmcore::Source;

use super::messages::{COMMON, DEBUG, Messages, PROGRESS, REPORT};
use super::options::Options;
use super::{Done, dmesg, progress, recipients, stats};
use crate::encrypted_file::{self, Written};
use crate::memory_use::threads_that_fit;
use crate::sandbox::{self, Sandbox};
use crate::{run, summary};

/// Writes a dump of `source`: to standard output without outputs, in parts with several.
pub(super) fn dump(
    options: &Options,
    source: &Path,
    outputs: &[PathBuf],
    messages: &mut Messages,
) -> anyhow::Result<Done> {
    if outputs.is_empty() && std::io::stdout().is_terminal() {
        bail!("-F writes the dump to standard output, which is a terminal; redirect it");
    }
    let recipients = recipients::of(source)?;
    if recipients.is_some() {
        recipients::check(options, outputs.len())?;
    }
    let source = open(options, source, messages)?;
    let levels = options.dump_levels().map_err(anyhow::Error::msg)?;
    let mut overwrite = options.overwrite;
    for (number, &level) in levels.iter().enumerate() {
        let target = target(outputs, overwrite);
        let settings = settings(options, level, method(options.codec).into());
        let made = match &recipients {
            None => {
                let report = watched(messages, |progress| capture(&source, &target, &settings, progress))?;
                Made::Whole(Box::new(report))
            }
            Some(recipients) => encrypted(&source, outputs, overwrite, settings, recipients, messages)?,
        };
        let full = match &made {
            Made::Whole(report) => matches!(report.outcome, Outcome::DiskFull(_) | Outcome::SizeLimit),
            Made::Part(_) => true,
        };
        // What went through a pipe cannot be taken back.
        if let Some(next) = levels.get(number + 1).filter(|_| full && !matches!(target, Target::Stdout)) {
            messages.alarm(&format!(
                "makedumpfile: the dump at level {} does not fit; trying level {}",
                level.bits(),
                next.bits()
            ));
            overwrite = true;
            continue;
        }
        return Ok(match made {
            Made::Whole(report) => finish(&source, &report, outputs, messages),
            Made::Part(sentence) => {
                incomplete(&sentence, source.path() == Path::new("/proc/vmcore"), messages);
                Done::Incomplete
            }
        });
    }
    bail!("-d names no dump level")
}

/// What became of a dump.
enum Made {
    /// It was written, whatever its outcome.
    Whole(Box<CaptureReport>),
    /// The disk of an encrypted one is full or fails: why, and what is left.
    Part(String),
}

/// Writes an encrypted dump: to standard output without outputs.
fn encrypted(
    source: &Source,
    outputs: &[PathBuf],
    overwrite: bool,
    mut settings: CaptureOptions,
    recipients: &Recipients,
    messages: &Messages,
) -> anyhow::Result<Made> {
    settings.format = Format::Flattened;
    settings.limits.size = settings.limits.size.map(|limit| recipients.room(limit));
    let write = |target: Target, encrypting: Uploading| {
        let report = watched(messages, |progress| capture(source, &target, &settings, progress));
        // Its other end reads until this one is closed.
        drop(target);
        // What could not be written is why the pipe is broken.
        encrypting.finish(report.is_ok())?;
        report
    };
    let Some(output) = outputs.first() else {
        let (file, name) = encrypted_file::stdout()?;
        let report = encrypted_file::through(file, name, recipients, write)?;
        return Ok(Made::Whole(Box::new(report)));
    };
    Ok(match encrypted_file::create(output, overwrite, &source.memory().files(), recipients, write)? {
        Written::Named(report) => Made::Whole(Box::new(report)),
        Written::Part { file, why } => {
            Made::Part(format!("{why}; {} is an incomplete dump of what was written before", file.display()))
        }
    })
}

/// Joins the parts of a split set. Pages are compressed as the first part says.
pub(super) fn reassemble(
    options: &Options,
    parts: &[PathBuf],
    output: &Path,
    messages: &mut Messages,
) -> anyhow::Result<Done> {
    sandbox::enter(Sandbox::reading(parts).writing([&output.to_owned()]))?;
    let source = Source::open_all(parts, MapPolicy::default())?;
    let status = source.dumps().first().map_or(0, |dump| dump.info().status);
    let target = Target::File { path: output.to_owned(), overwrite: options.overwrite };
    let settings = CaptureOptions {
        keep_all: true,
        ..settings(options, DumpLevel::NONE, method(codec_of(status)).into())
    };
    let report = watched(messages, |progress| capture(&source, &target, &settings, progress))?;
    Ok(finish(&source, &report, &[output.to_owned()], messages))
}

/// Classifies pages, and prints the report if the message level has it.
pub(super) fn dry_run(options: &Options, source: &Path, messages: &mut Messages) -> anyhow::Result<Done> {
    let source = open(options, source, messages)?;
    let levels = options.dump_levels().map_err(anyhow::Error::msg)?;
    let level = levels.first().copied().unwrap_or(DumpLevel::NONE);
    let settings = settings(options, level, method(options.codec).into());
    let report = watched(messages, |progress| estimate(&source, &settings, progress))?;
    messages.say(REPORT, &stats::render(&report));
    Ok(Done::Complete)
}

fn open(options: &Options, path: &Path, messages: &mut Messages) -> anyhow::Result<Source> {
    let access = if options.no_mmap { Access::Read } else { MapPolicy::default().access };
    let source = Source::open(path, MapPolicy { access, ..MapPolicy::default() })?;
    if messages.shows(DEBUG) {
        dmesg::describe(&source, messages);
    }
    Ok(source)
}

fn target(outputs: &[PathBuf], overwrite: bool) -> Target {
    match outputs {
        [] => Target::Stdout,
        [path] => Target::File { path: path.clone(), overwrite },
        paths => Target::Parts { paths: paths.to_vec(), overwrite },
    }
}

fn settings(options: &Options, level: DumpLevel, compression: Compression) -> CaptureOptions {
    let format = match (options.elf, options.flattened) {
        (true, true) => Format::FlattenedElf,
        (true, false) => Format::Elf,
        (false, true) => Format::Flattened,
        (false, false) => Format::Kdump,
    };
    let limits = Limits { time: None, size: options.size_limit };
    CaptureOptions { format, limits, ..CaptureOptions::new(level, compression, threads(options.threads)) }
}

/// Threads to use: --num-threads is a ceiling, since scripts pass the number of CPUs of another kernel. 0 means none
/// besides the main one in makedumpfile.
fn threads(wanted: Option<i64>) -> usize {
    let cpus = thread::available_parallelism().map_or(1, Into::into);
    threads_that_fit(wanted.map_or(cpus, |wanted| usize::try_from(wanted).unwrap_or(0).clamp(1, cpus)), 0)
}

/// How pages are compressed with the option of this codec, or with none.
pub(super) fn method(codec: Option<Codec>) -> Method {
    codec.map_or(Method::NONE, Method::default_of)
}

/// The codec that the status word of a dump names.
fn codec_of(status: u32) -> Option<Codec> {
    let codecs = [
        (flags::ZLIB, Codec::Zlib),
        (flags::LZO, Codec::Lzo),
        (flags::SNAPPY, Codec::Snappy),
        (flags::ZSTD, Codec::Zstd),
    ];
    codecs.into_iter().find(|(flag, _)| status & flag != 0).map(|(_, codec)| codec)
}

/// Runs `work` with its progress shown if the message level has it.
fn watched(
    messages: &Messages,
    work: impl FnOnce(&Progress) -> Result<CaptureReport, CaptureError>,
) -> anyhow::Result<CaptureReport> {
    let shows = messages.shows(PROGRESS);
    let watch = |progress: &Progress, end: &std::sync::mpsc::Receiver<()>| {
        if shows {
            progress::show(progress, end);
        }
    };
    Ok(run::cancellable_with(watch, work)?.0?)
}

/// Prints how a capture ended.
fn finish(source: &Source, report: &CaptureReport, outputs: &[PathBuf], messages: &mut Messages) -> Done {
    messages.say(REPORT, &stats::render(report));
    for warning in &report.warnings {
        messages.say(COMMON, &format!("makedumpfile: {warning}"));
    }
    let names: Vec<String> = outputs.iter().map(|path| path.display().to_string()).collect();
    match names.as_slice() {
        [] => messages.say(COMMON, "\nThe dumpfile is saved to STDOUT."),
        [name] => messages.say(COMMON, &format!("\nThe dumpfile is saved to {name}.")),
        [first @ .., last] => {
            let first = first.join(", ");
            messages.say(COMMON, &format!("\nThe dumpfiles are saved to {first}, and {last}."));
        }
    }
    let Some(sentence) = summary::failure(report) else { return Done::Complete };
    incomplete(&sentence, source.path() == Path::new("/proc/vmcore"), messages);
    Done::Incomplete
}

/// Says loudly that a dump is incomplete: scripts lose the exit status in a pipe, and message levels hide errors. In a
/// capture kernel the kernel log has it too.
pub(super) fn incomplete(sentence: &str, in_capture_kernel: bool, messages: &mut Messages) {
    messages.alarm(&format!(
        "\nmakedumpfile: INCOMPLETE DUMP: {sentence}\nThis is an incomplete dumpfile, but might analyzable."
    ));
    if in_capture_kernel {
        let mut options = std::fs::OpenOptions::new();
        options.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let log = options.open("/dev/kmsg");
        // The console has the message already. 3 is KERN_ERR, which `quiet` shows.
        let _ = log.and_then(|mut log| {
            log.write_all(format!("<3>pagehaul: INCOMPLETE DUMP: {sentence}\n").as_bytes())
        });
    }
}
