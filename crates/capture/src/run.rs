//! A capture from its beginning to its end.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagehaul_elfcore::dump::ElfDump;
use pagehaul_kdump::write::{BitmapWriter, FlattenedOutput, FlattenedWriter, SingleFileWriter, StreamTarget};
use pagehaul_kdump::{Header, Layout};
use pagehaul_output::{
    ChunkWriter, DumpFileOptions, DumpWriter, Output, OutputFile, StoredBitmap, WriteError,
};

use crate::batch::{KeptPages, Pass};
use crate::discard::Discard;
use crate::error::CaptureError;
use crate::error::output_error;
use crate::job::Job;
use crate::limits::check_size;
use crate::options::{Format, KnownPages, Options, Stream, Target};
use crate::priority_bitmaps::PriorityBitmaps;
use crate::report::CaptureReport;
use crate::report::Clock;
use crate::scan::scan;
use crate::selection::{Selection, Tally};
use crate::split;
use crate::write::{PageWork, WriteStats, buffers, write_pages};
use pagehaul_run::{Phase, Progress};
use pagehaul_vmcore::Source;

/// Bytes per write of a temporary bitmap.
const BITMAP_CHUNK: usize = 256 << 10;

/// Captures a dump of `source`. A capture that ends early leaves a dump of the pages written, and its report says so. An
/// error means that no dump exists.
pub fn capture(
    source: &Source,
    target: &Target,
    options: &Options,
    progress: &Progress,
) -> Result<CaptureReport, CaptureError> {
    capture_with(source, target, options, &KnownPages::default(), progress)
}

/// As [`capture`], with what the caller knows of pages beforehand.
pub fn capture_with(
    source: &Source,
    target: &Target,
    options: &Options,
    known: &KnownPages,
    progress: &Progress,
) -> Result<CaptureReport, CaptureError> {
    let mut clock = Clock::start();
    if let (
        Target::Stdout | Target::Pipe { .. } | Target::Stream(_) | Target::Streams(_),
        Format::Kdump | Format::Elf,
    ) = (target, options.format)
    {
        return Err(CaptureError::Refused(format!(
            "a dump in {} format cannot be written to a pipe; use --format flattened, or name a file",
            options.format.name()
        )));
    }
    let mut job = Job::prepare(source, options, progress)?;
    job.exclude_free(known.free.as_deref());
    if matches!(options.format, Format::Kdump | Format::Flattened) {
        // Before anything is replaced.
        check_size(options.limits, &job.layout()?)?;
    }
    clock.lap(Phase::Prepare);
    let (path, overwrite) = match target {
        Target::File { path, overwrite } => (path.as_path(), *overwrite),
        Target::Parts { paths, overwrite } => return split::capture(&job, paths, *overwrite, &mut clock),
        Target::Streams(streams) => return split::capture_streams(&job, streams, &mut clock),
        Target::Discard => return discard(&job, &mut clock),
        Target::Pipe { name, pipe, buffered } => {
            job.buffered = *buffered;
            return match options.format {
                Format::FlattenedElf => elf_stream(&job, &**pipe, name, &mut clock),
                Format::Kdump | Format::Elf | Format::Flattened => stream(&job, &**pipe, name, &mut clock),
            };
        }
        Target::Stream(Stream { name, stream: out }) => {
            let out = SharedStream(out);
            return match options.format {
                Format::FlattenedElf => elf_stream(&job, out, name, &mut clock),
                Format::Kdump | Format::Elf | Format::Flattened => stream(&job, out, name, &mut clock),
            };
        }
        Target::Stdout => {
            let path = Path::new("standard output");
            let out = std::io::stdout().as_fd().try_clone_to_owned().map_err(|source| {
                CaptureError::Output { path: path.to_owned(), action: "write to", source }
            })?;
            let out = File::from(out);
            return match options.format {
                Format::FlattenedElf => elf_stream(&job, &out, path, &mut clock),
                Format::Kdump | Format::Elf | Format::Flattened => stream(&job, &out, path, &mut clock),
            };
        }
    };
    let sources = source.memory().files();
    let create = DumpFileOptions { overwrite, checksums: options.checksums, sources: &sources };
    let file = OutputFile::create(path, create, progress.bytes_written())?;
    let mut report = match options.format {
        Format::Kdump => kdump(&mut job, &known.first, file.clone(), &mut clock),
        Format::Elf => elf(&job, file.clone(), &mut clock),
        Format::Flattened => stream(&job, file.file(), path, &mut clock),
        Format::FlattenedElf => elf_stream(&job, file.file(), path, &mut clock),
    }
    // It holds nothing of use.
    .inspect_err(|_| file.discard())?;
    report.add_checksums(&file)?;
    Ok(report)
}

/// Writes a kdump-compressed file. The set of kept pages is in its bitmap 2, their order in a temporary file.
fn kdump(
    job: &mut Job<'_>,
    first: &[Range<u64>],
    mut file: OutputFile,
    clock: &mut Clock,
) -> Result<CaptureReport, CaptureError> {
    let path = file.path().to_owned();
    let layout = job.layout()?;
    let header = job.header();
    let mut order = order(job, first, &file, &layout);
    let tally = write_bitmaps(job, (&mut file, &path), (&header, &layout), order.as_mut(), clock)?;
    let bitmap = StoredBitmap::new(file.reader(), layout.bitmap2_offset(), layout.bitmap_len());
    let passes = match order {
        Some(order) => order.finish(&tally)?,
        None => vec![Pass { priority: None, bitmap: bitmap.clone() }],
    };
    let pages = tally.pages_kept();
    // The bitmap is read back, even where it ends in a hole.
    file.set_size(layout.descriptors_offset()).map_err(|error| output_error(&path, error.into()))?;
    let bitmaps = passes.iter().map(|pass| pass.bitmap.clone()).collect();
    let mut dump = SingleFileWriter::new(&mut file, &header, layout, bitmap, bitmaps, pages)?;
    let selection = job.selection();
    let kept = KeptPages::Passes(passes);
    let stats = pack(job, &selection, (kept, pages), &mut dump, &path, clock)?;
    let size = dump.size();
    Ok(job.report(Some(&path), &tally, stats, size, clock))
}

/// Creates the bitmaps for ordering pages by priority. Returns `None` where pages are written in PFN order.
fn order(
    job: &mut Job<'_>,
    first: &[Range<u64>],
    file: &OutputFile,
    layout: &Layout,
) -> Option<PriorityBitmaps> {
    if !file.is_regular() {
        return None;
    }
    match PriorityBitmaps::new(file.path(), layout.bitmap_len()) {
        Ok(order) => {
            job.order_by_priority(first);
            Some(order)
        }
        Err(error) => {
            job.warning(format!("pages are written in PFN order, not by priority: {error}"));
            None
        }
    }
}

/// Writes a flattened stream. Pages are classified twice, because a stream cannot be read back.
fn stream(
    job: &Job<'_>,
    out: impl StreamTarget,
    path: &Path,
    clock: &mut Clock,
) -> Result<CaptureReport, CaptureError> {
    let mut stream = FlattenedOutput::new(out, job.progress.bytes_written())
        .map_err(|error| output_error(path, error.into()))?;
    let layout = job.layout()?;
    let header = job.header();
    let tally = write_bitmaps(job, (&mut stream, path), (&header, &layout), None, clock)?;
    let pages = tally.pages_kept();
    let mut dump = FlattenedWriter::new(&mut stream, &header, layout, pages)?;
    let selection = job.selection();
    let kept = KeptPages::Reclassified(Box::new(selection.selector()));
    let mut stats = pack(job, &selection, (kept, pages), &mut dump, path, clock)?;
    let size = finish_stream(stream, &mut stats, path);
    Ok(job.report(Some(path), &tally, stats, size, clock))
}

/// Writes an ELF file.
fn elf(job: &Job<'_>, file: OutputFile, clock: &mut Clock) -> Result<CaptureReport, CaptureError> {
    let path = file.path().to_owned();
    let (kept, tally) = temporary_bitmap(job, &path, clock)?;
    let (dump, stats) = pack_elf(job, file, (kept, &tally), &path, clock)?;
    let size = dump.size();
    Ok(job.report(Some(&path), &tally, stats, size, clock))
}

/// Writes an ELF file as a flattened stream.
fn elf_stream(
    job: &Job<'_>,
    out: impl StreamTarget,
    path: &Path,
    clock: &mut Clock,
) -> Result<CaptureReport, CaptureError> {
    let stream = FlattenedOutput::new(out, job.progress.bytes_written())
        .map_err(|error| output_error(path, error.into()))?;
    // A pipe has no directory.
    let (kept, tally) = temporary_bitmap(job, &std::env::temp_dir().join("dump"), clock)?;
    let (dump, mut stats) = pack_elf(job, stream, (kept, &tally), path, clock)?;
    let size = finish_stream(dump.into_output(), &mut stats, path);
    Ok(job.report(Some(path), &tally, stats, size, clock))
}

/// Packs pages and drops them.
fn discard(job: &Job<'_>, clock: &mut Clock) -> Result<CaptureReport, CaptureError> {
    let (bitmap, tally) = temporary_bitmap(job, &std::env::temp_dir().join("dump"), clock)?;
    let kept = KeptPages::Passes(vec![Pass { priority: None, bitmap }]);
    let (mut dump, path) = (Discard::default(), Path::new("nowhere"));
    let stats = pack(job, &job.selection(), (kept, tally.pages_kept()), &mut dump, path, clock)?;
    Ok(job.report(None, &tally, stats, dump.size(), clock))
}

/// A stream that its caller has, too.
pub(crate) struct SharedStream<'a>(pub(crate) &'a Mutex<dyn Write + Send>);

impl SharedStream<'_> {
    fn stream(&self) -> MutexGuard<'_, dyn Write + Send + 'static> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for SharedStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream().write(bytes)
    }

    /// Records wait for the next sync.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl StreamTarget for SharedStream<'_> {
    fn position(&mut self) -> Option<u64> {
        None
    }

    fn return_to(&mut self, _position: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.stream().flush()
    }
}

/// Ends the stream, and returns its bytes.
pub(crate) fn finish_stream(
    stream: FlattenedOutput<impl StreamTarget>,
    stats: &mut WriteStats,
    path: &Path,
) -> u64 {
    let size = stream.end();
    if let Err(error) = stream.finish()
        && stats.outcome.is_at_end()
    {
        stats.outcome = WriteError::from(error).outcome(&path.display().to_string());
    }
    size
}

/// Scans, and stores the set of kept pages in a temporary file in the directory of `path`.
fn temporary_bitmap(
    job: &Job<'_>,
    path: &Path,
    clock: &mut Clock,
) -> Result<(StoredBitmap, Tally), CaptureError> {
    let mut temporary = OutputFile::temporary(path)?;
    let mut bits = ChunkWriter::new(0, BITMAP_CHUNK);
    let tally = scan(&job.selection(), job.options.threads, job.progress, |_, chosen| {
        bits.push_bits(&chosen.kept, u64::MAX, &mut temporary)
            .map_err(|error| output_error(temporary.path(), error))
    })?;
    bits.flush(&mut temporary).map_err(|error| output_error(temporary.path(), error))?;
    clock.lap(Phase::Scan);
    temporary.set_size(bits.end()).map_err(|error| output_error(temporary.path(), error.into()))?;
    Ok((StoredBitmap::new(temporary.reader(), 0, bits.end()), tally))
}

/// Writes the pages of `bitmap` to `output` in ELF format.
fn pack_elf<'a, S: Output>(
    job: &Job<'a>,
    output: S,
    (bitmap, tally): (StoredBitmap, &Tally),
    path: &Path,
    clock: &mut Clock,
) -> Result<(ElfDump<'a, S>, WriteStats), CaptureError> {
    let pages = tally.pages_kept();
    let segments = job.segments(bitmap.clone());
    let mut dump = ElfDump::new(output, segments, pages).map_err(|error| output_error(path, error))?;
    let kept = KeptPages::Passes(vec![Pass { priority: None, bitmap }]);
    let stats = pack(job, &job.selection(), (kept, pages), &mut dump, path, clock)?;
    Ok((dump, stats))
}

/// Packs the kept pages and writes them to `dump`.
fn pack<'a>(
    job: &Job<'_>,
    selection: &'a Selection<'a>,
    (kept, pages): (KeptPages<'a>, u64),
    dump: &mut dyn DumpWriter,
    path: &Path,
    clock: &mut Clock,
) -> Result<WriteStats, CaptureError> {
    let Options { threads, limits, .. } = *job.options;
    let (source, compression) = (job.source, job.compression());
    let buffered = job.buffered;
    let (buffers, is_part) = (buffers(threads), false);
    let work =
        PageWork { source, selection, kept, pages, compression, threads, buffers, is_part, limits, buffered };
    write_pages(work, dump, &path.display().to_string(), job.progress, clock)
}

/// Scans, and writes the header and both bitmaps.
fn write_bitmaps(
    job: &Job<'_>,
    (output, path): (&mut dyn Output, &Path),
    (header, layout): (&Header<'_>, &Layout),
    mut order: Option<&mut PriorityBitmaps>,
    clock: &mut Clock,
) -> Result<Tally, CaptureError> {
    let failed = |error| output_error(path, error);
    let selection = job.selection();
    let pages = selection.pages_per_block();
    let mut bitmaps = BitmapWriter::begin(&header.encode(layout, true)?, layout, output).map_err(failed)?;
    let mut exists = vec![0; pages / 64];
    let tally = scan(&selection, job.options.threads, job.progress, |block, chosen| {
        selection.mark_existing(block * pages as u64, &mut exists);
        bitmaps
            .push(&exists, &chosen.kept, output)
            .and_then(|()| order.as_mut().map_or(Ok(()), |order| order.push(chosen)))
            .map_err(failed)
    })?;
    bitmaps.finish(output).map_err(failed)?;
    clock.lap(Phase::Scan);
    Ok(tally)
}
