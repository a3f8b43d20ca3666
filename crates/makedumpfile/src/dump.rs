//! Dumps: -d and the codecs, -F, -E, --split, --reassemble, --dry-run.

use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::thread;

use pagehaul_capture::{
    CaptureError, CaptureReport, Compression, Format, Limits, Options as CaptureOptions, Outcome, Stream,
    Target, capture, estimate, threads_that_fit,
};
use pagehaul_codec::{Codec, Method};
use pagehaul_encryption::Recipients;
use pagehaul_kdump::format::flags;
use pagehaul_kernel::DumpLevel;
use pagehaul_physmem::{Access, MapPolicy};
use pagehaul_render::capture::failure;
use pagehaul_run::Progress;
use pagehaul_sandbox::Sandbox;
use pagehaul_upload::encrypted::{self, Encrypted, Parts, Written};
use pagehaul_vmcore::Source;

use crate::done::Done;
use crate::error::Error;
use crate::host::Host;
use crate::messages::{COMMON, DEBUG, Messages, PROGRESS, REPORT};
use crate::options::Options;
use crate::{dmesg, progress, recipients, stats};

/// Writes a dump of `source`: to standard output without outputs, in parts with several.
pub(crate) fn dump(
    options: &Options,
    source: &Path,
    outputs: &[PathBuf],
    host: &dyn Host,
    messages: &mut Messages,
) -> Result<Done, Error> {
    if outputs.is_empty() && std::io::stdout().is_terminal() {
        let why = "-F writes the dump to standard output, which is a terminal; redirect it";
        return Err(Error::Refused(why.into()));
    }
    let recipients = recipients::of(source)?;
    if recipients.is_some() {
        recipients::check(options)?;
    }
    let source = open(options, source, messages)?;
    let levels = options.dump_levels().map_err(Error::Refused)?;
    let mut overwrite = options.overwrite;
    for (number, &level) in levels.iter().enumerate() {
        let target = target(outputs, overwrite);
        let settings = settings(options, level, method(options.codec).into());
        let made = match &recipients {
            None => watched(host, messages, |progress| capture(&source, &target, &settings, progress))
                .map(|report| Made::Whole(Box::new(report))),
            Some(recipients) => encrypt(&source, outputs, overwrite, settings, recipients, host, messages),
        };
        let full = match &made {
            Ok(Made::Whole(report)) => matches!(report.outcome, Outcome::DiskFull(_) | Outcome::SizeLimit),
            Ok(Made::Part(_)) => true,
            // Not even the tables fit. Those of another level can be smaller.
            Err(Error::Capture(error)) => error.is_full(),
            Err(_) => false,
        };
        // What went through a pipe cannot be taken back.
        if let Some(next) = levels.get(number + 1).filter(|_| full && !matches!(target, Target::Stdout)) {
            messages.alarm(&format!(
                "makedumpfile: the dump at level {} does not fit; trying level {}",
                level.bits(),
                next.bits()
            ));
            // What failed has left no file.
            overwrite |= made.is_ok();
            continue;
        }
        return Ok(match made? {
            Made::Whole(report) => finish(&source, &report, outputs, messages),
            Made::Part(sentence) => {
                incomplete(&sentence, source.path() == Path::new("/proc/vmcore"), messages);
                Done::Incomplete
            }
        });
    }
    Err(Error::Refused("-d names no dump level".into()))
}

/// What became of a dump.
enum Made {
    /// It was written, whatever its outcome.
    Whole(Box<CaptureReport>),
    /// The disk of an encrypted one is full or fails: why, and what is left.
    Part(String),
}

/// Writes an encrypted dump: to standard output without outputs, in parts with several.
fn encrypt(
    source: &Source,
    outputs: &[PathBuf],
    overwrite: bool,
    mut settings: CaptureOptions,
    recipients: &Recipients,
    host: &dyn Host,
    messages: &Messages,
) -> Result<Made, Error> {
    settings.format = Format::Flattened;
    settings.limits.size = settings.limits.size.map(|limit| recipients.room(limit));
    let sources = source.memory().files();
    if outputs.len() > 1 {
        let parts = Parts::create::<Error>(outputs, overwrite, &sources, recipients)?;
        let streams = parts.streams().map(|(name, stream)| Stream { name, stream }).collect();
        let target = Target::Streams(streams);
        let made = watched(host, messages, |progress| capture(source, &target, &settings, progress));
        let mut report = match made {
            Ok(report) => report,
            Err(error) => {
                parts.discard();
                return Err(error);
            }
        };
        let failures = parts.failures().iter();
        report.warnings.extend(failures.map(|failure| format!("{failure}; the set has no such part")));
        let exist: Vec<bool> = report.parts.iter().map(|part| part.exists).collect();
        for cut in parts.finish(&sources, |index| exist.get(index) == Some(&true))? {
            report.cut_part(cut.index, &cut.why, cut.file.as_deref());
        }
        return Ok(Made::Whole(Box::new(report)));
    }
    let write = |name: &Path, encrypting: Encrypted| {
        let target = Target::Stream(Stream { name: name.to_owned(), stream: encrypting.stream() });
        let report = watched(host, messages, |progress| capture(source, &target, &settings, progress));
        // What could not be written is why it ended.
        encrypting.finish(report.is_ok())?;
        report
    };
    let Some(output) = outputs.first() else {
        let (file, name) =
            encrypted::stdout().map_err(Error::system("cannot write to standard output".into()))?;
        let report = write(name, Encrypted::begin(file, name, recipients)?)?;
        return Ok(Made::Whole(Box::new(report)));
    };
    let write = |encrypting| write(output, encrypting);
    match encrypted::create(output, overwrite, &sources, recipients, write)? {
        Written::Named(report) => Ok(Made::Whole(Box::new(report))),
        Written::Part { file, why: Error::Upload(why) } => {
            let file = file.display();
            Ok(Made::Part(format!("{why}; {file} is an incomplete dump of what was written before")))
        }
        Written::Part { why, .. } => Err(why),
    }
}

/// Joins the parts of a split set. Pages are compressed as the first part says.
pub(crate) fn reassemble(
    options: &Options,
    parts: &[PathBuf],
    output: &Path,
    host: &dyn Host,
    messages: &mut Messages,
) -> Result<Done, Error> {
    // The keys of encrypted parts, if the variable for it names who reads them.
    pagehaul_encryption::hold(None, parts)?;
    Sandbox::reading(parts).writing([&output.to_owned()]).enter()?;
    let source = Source::open_all(parts, MapPolicy::default())?;
    let status = source.dumps().first().map_or(0, |dump| dump.info().status);
    let target = Target::File { path: output.to_owned(), overwrite: options.overwrite };
    let settings = CaptureOptions {
        keep_all: true,
        ..settings(options, DumpLevel::NONE, method(codec_of(status)).into())
    };
    let report = watched(host, messages, |progress| capture(&source, &target, &settings, progress))?;
    Ok(finish(&source, &report, &[output.to_owned()], messages))
}

/// Classifies pages, and prints the report if the message level has it.
pub(crate) fn dry_run(
    options: &Options,
    source: &Path,
    host: &dyn Host,
    messages: &mut Messages,
) -> Result<Done, Error> {
    let source = open(options, source, messages)?;
    let levels = options.dump_levels().map_err(Error::Refused)?;
    let level = levels.first().copied().unwrap_or(DumpLevel::NONE);
    let settings = settings(options, level, method(options.codec).into());
    let report = watched(host, messages, |progress| estimate(&source, &settings, progress))?;
    messages.say(REPORT, &stats::render(&report));
    Ok(Done::Complete)
}

fn open(options: &Options, path: &Path, messages: &mut Messages) -> Result<Source, Error> {
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
pub(crate) fn method(codec: Option<Codec>) -> Method {
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
    host: &dyn Host,
    messages: &Messages,
    work: impl Fn(&Progress) -> Result<CaptureReport, CaptureError>,
) -> Result<CaptureReport, Error> {
    let shows = messages.shows(PROGRESS);
    let show = |progress: &Progress, end: &Receiver<()>| {
        if shows {
            progress::show(progress, end);
        }
    };
    let mut made = Err(CaptureError::Stopped);
    host.run(&show, &mut |progress| made = work(progress))?;
    Ok(made?)
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
    let Some(sentence) = failure(report) else { return Done::Complete };
    incomplete(&sentence, source.path() == Path::new("/proc/vmcore"), messages);
    Done::Incomplete
}

/// Says loudly that a dump is incomplete: scripts lose the exit status in a pipe, and message levels hide errors. In a
/// capture kernel the kernel log has it too.
pub(crate) fn incomplete(sentence: &str, in_capture_kernel: bool, messages: &mut Messages) {
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
