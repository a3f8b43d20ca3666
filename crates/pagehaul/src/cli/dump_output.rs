//! What `capture` and `convert` share: how a dump is written, and how its report is printed.

use std::cell::OnceCell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use pagehaul_capture::{
    CaptureError, CaptureReport, Codecs, Compression, Format, KnownPages, Limits, Options, OwnerFilter,
    Stream, Target, capture_with, estimate, kept_bytes, threads_that_fit,
};
use pagehaul_encryption::Recipients;
use pagehaul_kernel::DumpLevel;
use pagehaul_present::number;
use pagehaul_render::capture as summary;
use pagehaul_run::{Progress, memory};
use pagehaul_upload::encrypted::{self, Encrypted, Parts, Written};
use pagehaul_upload::{Means, Tries, UploadError, Uploading, is_remote};
use pagehaul_vmcore::Source;

use crate::cli::options::{Overwrite, Reporting, Threads};
use crate::cli::{completeness, encrypt_to};
use crate::printed::print;
use crate::{exit, run, signals, standard_output, usage};

/// How a dump is written.
#[derive(Debug, Args)]
pub(crate) struct DumpOutput {
    /// Codec: none, zlib, lzo, snappy or zstd, with an optional level (zstd:3, zstd:-5, zlib:6); or auto, adaptive
    /// compression: the strongest level that the output's bandwidth allows (bytes then differ between runs, pages do not)
    #[arg(short, long, value_name = "CODEC[:LEVEL]", default_value_t)]
    compress: Compression,
    /// Codecs that `--compress auto` may use, separated by commas [default: zlib, lzo, snappy, zstd]. crash reads zstd since
    /// 8.0.0 (2021)
    #[arg(long, value_name = "CODECS")]
    codecs: Option<Codecs>,
    #[command(flatten)]
    threads: Threads,
    /// Format of the dump [default: kdump, flattened for `-`]
    #[arg(short, long, value_enum)]
    format: Option<FormatArgument>,
    /// Encrypt the output (age) so that only the holder of the secret key reads it: a recipient (age1…), a public ed25519 key of
    /// SSH, or a file with one a line; may be repeated. A dump is written as a flattened stream, in order of PFN; of a split set,
    /// each part is. What --triage and --facts write is encrypted, too, and its name ends in .age
    #[arg(long, value_name = "RECIPIENT")]
    encrypt_to: Vec<String>,
    /// What these are: read once, so that what was checked is used.
    #[arg(skip)]
    recipients: OnceCell<Option<Recipients>>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Write checksums of the dump to OUTPUT.sums, for `verify`. Without it, --force removes those of the dump that it replaces
    #[arg(long)]
    checksums: bool,
    #[command(flatten)]
    reporting: Reporting,
    /// Print more about the kernel and the dump, how much of a source on a server was fetched, and what the sandbox of `convert` lacks
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArgument {
    /// kdump-compressed, version 6
    Kdump,
    /// ELF64, uncompressed, excluded pages as holes
    Elf,
    /// kdump-compressed as a stream, like makedumpfile -F
    Flattened,
}

impl FormatArgument {
    fn format(self) -> Format {
        match self {
            Self::Kdump => Format::Kdump,
            Self::Elf => Format::Elf,
            Self::Flattened => Format::Flattened,
        }
    }
}

/// Which pages are written.
#[derive(Debug, Clone)]
pub(crate) struct PageSelection {
    pub(crate) level: DumpLevel,
    /// Keep pages that every level excludes, too: a conversion loses nothing that its source holds.
    pub(crate) keep_all: bool,
    /// Which pages of user space are written, by their owner.
    pub(crate) owners: Option<Arc<OwnerFilter>>,
    pub(crate) limits: Limits,
    /// What is known of pages beforehand.
    pub(crate) known: KnownPages,
    /// Warnings for the report.
    pub(crate) warnings: Vec<String>,
}

/// How a checkpoint is written.
#[cfg(feature = "process")]
pub(crate) struct CheckpointOutput {
    pub(crate) level: i32,
    pub(crate) threads: usize,
    pub(crate) recipients: Option<Recipients>,
    pub(crate) overwrite: bool,
    pub(crate) reporting: Reporting,
}

impl DumpOutput {
    /// Refuses options that only dumps have.
    #[cfg(feature = "process")]
    pub(crate) fn of_checkpoint(&self) -> anyhow::Result<CheckpointOutput> {
        let for_dumps = [
            (self.format.is_some(), "--format"),
            (self.checksums, "--checksums"),
            (self.codecs.is_some(), "--codecs"),
        ];
        if let Some((_, option)) = for_dumps.iter().find(|(is_given, _)| *is_given) {
            return Err(usage::wrong(format!(
                "{option} is for dumps, and the source is a checkpoint of processes"
            )));
        }
        let level = match self.compress {
            Compression::Fixed(method) => pagehaul_codec::zstd_level(method),
            Compression::Auto(_) => None,
        };
        let Some(level) = level else {
            return Err(usage::wrong("checkpoints are compressed with zstd; use --compress zstd:LEVEL"));
        };
        let (threads, overwrite) = (self.threads.count(), self.overwrite.force);
        let recipients = self.recipients()?;
        Ok(CheckpointOutput { level, threads, recipients, overwrite, reporting: self.reporting })
    }

    /// Writes a dump of `source` to `outputs`, or estimates its size where there are none; prints the report.
    pub(crate) fn write(
        &self,
        source: &Source,
        outputs: &[PathBuf],
        selection: PageSelection,
    ) -> anyhow::Result<ExitCode> {
        if let Some(url) = outputs.iter().find(|output| is_remote(output)) {
            return self.upload(source, url, outputs.len(), selection);
        }
        if let ([first, ..], Some(recipients)) = (outputs, self.recipients()?) {
            return self.encrypt(source, first, outputs, &recipients, selection);
        }
        let target = if outputs.is_empty() { None } else { Some(self.target(outputs)?) };
        let options = self.options(&selection, self.format(target.as_ref()))?;
        let output_taken = matches!(target, Some(Target::Stdout));
        self.write_to(source, target, &options, selection, output_taken, |_| Ok(()))
    }

    /// Who can read the dump; none are named if it is not encrypted. Has to precede the sandbox.
    pub(crate) fn recipients(&self) -> anyhow::Result<Option<Recipients>> {
        if let Some(recipients) = self.recipients.get() {
            return Ok(recipients.clone());
        }
        let recipients = encrypt_to::recipients(&self.encrypt_to)?;
        Ok(self.recipients.get_or_init(|| recipients).clone())
    }

    /// Refuses an output that is one of the files of keys.
    pub(crate) fn spare_keys(&self, outputs: &[PathBuf], identity: Option<&Path>) -> anyhow::Result<()> {
        outputs.iter().try_for_each(|output| encrypt_to::spare_keys(&self.encrypt_to, identity, output))
    }

    /// Writes an encrypted dump of `source` to a file or to standard output, or its parts to several files.
    fn encrypt(
        &self,
        source: &Source,
        output: &Path,
        outputs: &[PathBuf],
        recipients: &Recipients,
        selection: PageSelection,
    ) -> anyhow::Result<ExitCode> {
        if self.checksums {
            return Err(usage::wrong("an encrypted dump has checksums of its own; leave out --checksums"));
        }
        let format = self.format.map_or(Format::Flattened, FormatArgument::format);
        if format != Format::Flattened {
            return Err(usage::wrong("an encrypted dump is a flattened stream; leave out --format"));
        }
        let options = self.options(&selection, format)?;
        let is_stdout = outputs.iter().any(|output| output == Path::new("-"));
        if is_stdout {
            self.check_stdout(outputs.len())?;
        }
        if outputs.len() > 1 {
            return self.encrypt_parts(source, outputs, recipients, &options, selection);
        }
        let write = |name: &Path, encrypting: Encrypted| {
            let stream = Stream { name: name.to_owned(), stream: encrypting.stream() };
            self.write_to(source, Some(Target::Stream(stream)), &options, selection, is_stdout, |report| {
                Ok(encrypting.finish(report.is_some())?)
            })
        };
        if is_stdout {
            let (file, name) = encrypted::stdout()?;
            return write(name, Encrypted::begin(file, name, recipients)?);
        }
        let sources = source.memory().files();
        let write = |encrypting| write(output, encrypting);
        match encrypted::create(output, self.overwrite.force, &sources, recipients, write)? {
            Written::Named(status) => {
                tell_plain_reports(output);
                Ok(status)
            }
            Written::Part { file, why } if why.is::<UploadError>() => {
                tell!("pagehaul: {why}; {} is an incomplete dump of what was written before", file.display());
                Ok(ExitCode::from(exit::INCOMPLETE))
            }
            Written::Part { why, .. } => Err(why),
        }
    }

    /// Writes an encrypted dump of `source` as the parts of a set.
    fn encrypt_parts(
        &self,
        source: &Source,
        outputs: &[PathBuf],
        recipients: &Recipients,
        options: &Options,
        mut selection: PageSelection,
    ) -> anyhow::Result<ExitCode> {
        let sources = source.memory().files();
        let parts = Parts::create::<anyhow::Error>(outputs, self.overwrite.force, &sources, recipients)?;
        selection
            .warnings
            .extend(parts.failures().iter().map(|failure| format!("{failure}; the set has no such part")));
        let streams = parts.streams().map(|(name, stream)| Stream { name, stream }).collect();
        let status =
            self.write_to(source, Some(Target::Streams(streams)), options, selection, false, |report| {
                let Some(report) = report else {
                    parts.discard();
                    return Ok(());
                };
                let exist: Vec<bool> = report.parts.iter().map(|part| part.exists).collect();
                for cut in parts.finish(&sources, |index| exist.get(index) == Some(&true))? {
                    report.cut_part(cut.index, &cut.why, cut.file.as_deref());
                }
                Ok(())
            })?;
        outputs.iter().take(1).for_each(|first| tell_plain_reports(first));
        Ok(status)
    }

    /// Uploads a dump of `source` while it is made. After a lost connection it is made again, from where the upload ended.
    fn upload(
        &self,
        source: &Source,
        url: &Path,
        outputs: usize,
        mut selection: PageSelection,
    ) -> anyhow::Result<ExitCode> {
        if outputs > 1 {
            return Err(usage::wrong("a dump that goes to another machine is one stream; name one URL"));
        }
        if self.checksums {
            return Err(usage::wrong("--checksums are for files; name a file"));
        }
        let means = means(self.recipients()?);
        let mut tries = Tries::new(&means.stop);
        let mut told = String::new();
        loop {
            let start = Instant::now();
            let ended = self.upload_once(source, url, selection.clone(), means.clone());
            let lost = ended.as_ref().err().and_then(|error| error.downcast_ref::<UploadError>());
            let Some(lost) = lost else { return ended };
            if !tries.another(lost) {
                return ended;
            }
            let why = lost.to_string();
            if told != why && !self.reporting.is_quiet() {
                tell!("pagehaul: {why}; trying again for {} s", tries.limit().as_secs());
                told = why;
            }
            selection.limits.time = selection.limits.time.map(|limit| limit.saturating_sub(start.elapsed()));
        }
    }

    fn upload_once(
        &self,
        source: &Source,
        url: &Path,
        selection: PageSelection,
        means: Means,
    ) -> anyhow::Result<ExitCode> {
        let format = self.format.map_or(Format::Flattened, FormatArgument::format);
        let mut options = self.options(&selection, format)?;
        let kept = || about(source, kept_bytes(source, &options, &Progress::default()));
        let most_bytes = || anyhow::Ok(most_bytes(source, kept()?));
        let uploading = Uploading::begin(url, most_bytes, means)?;
        if let Some(warning) = uploading.warning() {
            tell!("pagehaul: {warning}");
        }
        options.threads = threads_that_fit(self.threads.count(), uploading.memory());
        let target = pipe(url, &uploading);
        self.write_to(source, Some(target), &options, selection, false, |report| {
            let uploaded = uploading.finish(report.is_some())?;
            if uploaded.resumed > 0 && !self.reporting.is_quiet() {
                tell!("pagehaul: {} were there from an earlier upload", number::bytes(uploaded.resumed));
            }
            Ok(())
        })
    }

    /// Writes a dump to a target. `finish` completes it before the report is printed; it gets that, if there is a dump.
    /// `output_taken` is whether the dump goes to standard output.
    fn write_to(
        &self,
        source: &Source,
        target: Option<Target>,
        options: &Options,
        selection: PageSelection,
        output_taken: bool,
        finish: impl FnOnce(Option<&mut CaptureReport>) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        let (fit, wanted) = (options.threads, self.threads.count());
        if self.verbose && fit < wanted {
            tell!(
                "pagehaul: {fit} of {wanted} threads: there is not enough memory for more (MemAvailable in /proc/meminfo)"
            );
        }
        let (mut result, peak) = run::cancellable(self.reporting.is_quiet(), |progress| match &target {
            Some(target) => capture_with(source, target, options, &selection.known, progress),
            None => estimate(source, options, progress),
        })?;
        // The other end of a pipe reads until this one is closed.
        drop(target);
        // An upload that failed is why its pipe is broken.
        finish(result.as_mut().ok())?;
        let mut report = about(source, result)?;
        report.warnings.extend(selection.warnings);
        let manner = self.reporting.manner(output_taken);
        print(&report, Some(peak), manner, || summary::render(&report, peak, self.verbose));
        Ok(match summary::failure(&report) {
            None => ExitCode::SUCCESS,
            Some(sentence) => {
                tell!("pagehaul: {sentence}");
                ExitCode::from(exit::INCOMPLETE)
            }
        })
    }

    fn options(&self, selection: &PageSelection, format: Format) -> anyhow::Result<Options> {
        let mut limits = selection.limits;
        if let Some(recipients) = self.recipients()? {
            limits.size = limits.size.map(|limit| recipients.room(limit));
        }
        Ok(Options {
            level: selection.level,
            owners: selection.owners.clone(),
            keep_all: selection.keep_all,
            checksums: self.checksums,
            compression: self.compression()?,
            threads: threads_that_fit(self.threads.count(), 0),
            format,
            limits,
        })
    }

    /// Whether standard error is to stay empty.
    pub(crate) fn is_quiet(&self) -> bool {
        self.reporting.is_quiet()
    }

    /// Whether outputs that exist may be replaced.
    pub(crate) fn may_overwrite(&self) -> bool {
        self.overwrite.force
    }

    fn target(&self, outputs: &[PathBuf]) -> anyhow::Result<Target> {
        if outputs.iter().any(|path| path == Path::new("-")) {
            self.check_stdout(outputs.len())?;
            return Ok(Target::Stdout);
        }
        let overwrite = self.overwrite.force;
        Ok(match outputs {
            [path] => Target::File { path: path.clone(), overwrite },
            paths => Target::Parts { paths: paths.to_vec(), overwrite },
        })
    }

    /// Refuses what a stream on standard output excludes.
    fn check_stdout(&self, outputs: usize) -> anyhow::Result<()> {
        let refusal = if outputs > 1 {
            "`-` writes the whole dump to standard output; parts have to be files"
        } else if self.reporting.is_json() {
            "--json and the dump cannot both go to standard output; name an output file"
        } else if self.checksums {
            "--checksums writes a file next to the output, and standard output has none; name an output file"
        } else if let Some(refusal) = standard_output::refusal() {
            refusal
        } else {
            return Ok(());
        };
        Err(usage::wrong(refusal))
    }

    fn format(&self, target: Option<&Target>) -> Format {
        let is_stream = matches!(target, Some(Target::Stdout));
        let default = if is_stream { Format::Flattened } else { Format::Kdump };
        self.format.map_or(default, FormatArgument::format)
    }

    fn compression(&self) -> anyhow::Result<Compression> {
        match (self.compress, self.codecs) {
            (Compression::Auto(_), Some(codecs)) => Ok(Compression::Auto(codecs)),
            (Compression::Fixed(_), Some(_)) => {
                Err(usage::wrong("--codecs lists what --compress auto may use; add -c auto"))
            }
            (compression, None) => Ok(compression),
        }
    }
}

/// Names the reports of an earlier dump next to an encrypted one, which everybody can read who reads the directory.
fn tell_plain_reports(output: &Path) {
    for suffix in [".triage", ".facts.json.zst"] {
        let mut path = output.as_os_str().to_owned();
        path.push(suffix);
        if Path::new(&path).exists() {
            tell!("pagehaul: {} is there from another dump, and not encrypted", Path::new(&path).display());
        }
    }
}

pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// The pipe of what goes elsewhere, as the target of a capture.
fn pipe(name: &Path, uploading: &Uploading) -> Target {
    Target::Pipe { name: name.to_owned(), pipe: uploading.pipe(), buffered: uploading.memory() }
}

/// What an upload may use: a quarter of the memory, since the rest is the capture's and the kernel's.
pub(crate) fn means(recipients: Option<Recipients>) -> Means {
    Means { memory: memory::available().unwrap_or(u64::MAX) / 4, stop: signals::stop(), recipients }
}

/// The most bytes that a dump with `kept` bytes of the memory of `source` can have: they do not compress, and have descriptors.
fn most_bytes(source: &Source, kept: u64) -> u64 {
    let bitmaps = source.memory().ranges().end() >> 14;
    kept + kept / 64 + bitmaps + (64 << 20)
}

/// Names the source in an error about it; one about the output names that.
fn about<T>(source: &Source, result: Result<T, CaptureError>) -> anyhow::Result<T> {
    result.map_err(|error| {
        let about_source = matches!(error, CaptureError::Kernel(_) | CaptureError::Layout(_));
        let error = anyhow::Error::from(error);
        match about_source {
            false => error,
            // What is missing of a file that was cut explains the error.
            true if source.lacks_pages() => error.context(completeness::warnings(source).join("; ")),
            true => error.context(source.path().display().to_string()),
        }
    })
}
