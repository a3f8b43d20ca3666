//! A split set whose parts are streams: what is encrypted can be appended to, and not changed.
//!
//! The range of a part precedes its pages, since readers take the first record of a byte or the last, and what a machine that dies leaves
//! has to be a part. So each part has a share of the pages that does not change: a faster disk takes no more, and what a full one has no
//! room for is in no part. All wait for each other before their last records. If one of those cannot be written, that part is cut, and the
//! set reads as incomplete.

use std::ops::Range;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

use pagehaul_kdump::Layout;
use pagehaul_kdump::write::{FlattenedOutput, FlattenedWriter};
use pagehaul_output::{DumpWriter, FinishBound, Output, PageBatch, Recorded, WriteCosts, WriteError};
use pagehaul_run::{Outcome, Phase};

use super::report::{self, Total};
use super::scan::{self, PartOutput, Scanned};
use super::units::Units;
use super::{check, chunk};
use crate::batch::KeptPages;
use crate::error::{CaptureError, output_error};
use crate::job::Job;
use crate::options::{Format, Stream};
use crate::report::{CaptureReport, Clock, PartReport, outcome_at_end};
use crate::run::{SharedStream, finish_stream};
use crate::selection::Selection;
use crate::write::{PageWork, WriteStats, buffers, write_pages};

/// Batches in flight for one part at least, besides one for each of its threads.
const LEAST_BUFFERS: usize = 2;

/// Captures a dump into streams, whose caller ends them.
pub(crate) fn capture_streams(
    job: &Job<'_>,
    streams: &[Stream],
    clock: &mut Clock,
) -> Result<CaptureReport, CaptureError> {
    if job.options.format != Format::Flattened {
        return Err(CaptureError::Refused(format!(
            "streams of several parts are flattened; one in {} format is one stream",
            job.options.format.name()
        )));
    }
    let units = Units::new(job.selection().max_pfn());
    check(streams.len(), &units)?;
    let mut reports: Vec<PartReport> = streams.iter().map(|stream| report::new_part(&stream.name)).collect();
    let outputs = begin(job, streams, &mut reports)?;
    let layout = job.layout()?;
    let Scanned { files, units, tally } =
        scan::scan(job, outputs, units, (&job.header(), &layout), &mut reports, clock)?;
    job.progress.begin(Phase::Pack, layout.page_size().bytes_of(tally.pages_kept()));
    let selection = job.selection();
    let written = write_parts((job, &selection, layout), files, &units, clock);
    clock.lap(Phase::Pack);
    let total = conclude(job, written, &units, &mut reports)?;
    clock.lap(Phase::Finish);
    Ok(report::report(job, reports, &tally, total, clock))
}

/// A flattened stream and its name.
struct StreamOutput<'a> {
    stream: FlattenedOutput<SharedStream<'a>>,
    name: &'a Path,
}

/// Begins the streams, and goes on without those that fail.
fn begin<'a>(
    job: &Job<'_>,
    streams: &'a [Stream],
    reports: &mut [PartReport],
) -> Result<Vec<(usize, StreamOutput<'a>)>, CaptureError> {
    let mut outputs = Vec::new();
    let mut last = None;
    for (index, Stream { name, stream }) in streams.iter().enumerate() {
        match FlattenedOutput::new(SharedStream(stream), job.progress.bytes_written()) {
            Ok(stream) => outputs.push((index, StreamOutput { stream, name })),
            Err(error) => {
                let error = WriteError::from(error);
                reports[index].outcome = error.outcome(&name.display().to_string());
                last = Some(output_error(name, error));
            }
        }
    }
    match last.filter(|_| outputs.is_empty()) {
        Some(error) => Err(error),
        None => Ok(outputs),
    }
}

/// Whether the parts of a set are whole. Each says so once.
struct Verdicts {
    /// How many have not, and whether all others are.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Verdicts {
    fn new(parts: usize) -> Self {
        Self { state: Mutex::new((parts, true)), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, (usize, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, is_whole: bool) {
        let mut state = self.lock();
        state.0 = state.0.saturating_sub(1);
        state.1 &= is_whole;
        self.changed.notify_all();
    }

    /// Waits for all, and returns whether they are.
    fn wait(&self) -> bool {
        let waiting = |state: &mut (usize, bool)| state.0 > 0;
        self.changed.wait_while(self.lock(), waiting).unwrap_or_else(PoisonError::into_inner).1
    }
}

/// A part, which is not marked complete before all are whole.
struct Part<'a> {
    dump: FlattenedWriter<'a>,
    verdicts: &'a Verdicts,
    has_told: bool,
}

impl Part<'_> {
    fn tell(&mut self, is_whole: bool) {
        if !std::mem::replace(&mut self.has_told, true) {
            self.verdicts.tell(is_whole);
        }
    }
}

impl DumpWriter for Part<'_> {
    fn begin(&mut self) -> Result<(), WriteError> {
        self.dump.write_sub_header()?;
        self.dump.begin()
    }

    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError> {
        self.dump.write_batch(batch)
    }

    fn finish(&mut self, complete: bool) -> Result<(), WriteError> {
        self.dump.settle()?;
        self.tell(complete);
        self.dump.finish(self.verdicts.wait())
    }

    fn abandon(&mut self, until: Option<Instant>) -> Recorded {
        self.tell(false);
        self.dump.abandon(until)
    }

    fn save(&mut self) -> Result<(), WriteError> {
        self.dump.save()
    }

    fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        self.dump.size_with(batch)
    }

    fn finish_bound(&self) -> FinishBound {
        self.dump.finish_bound()
    }

    fn costs(&self) -> WriteCosts {
        self.dump.costs()
    }

    fn size(&self) -> u64 {
        self.dump.size()
    }
}

/// The others wait no longer for a part that ended without a word.
impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.tell(false);
    }
}

/// What became of a part.
struct Written {
    units: Range<usize>,
    stats: WriteStats,
    bytes: u64,
}

/// Packs and writes all parts at the same time, each with its share of the threads.
fn write_parts(
    work: (&Job<'_>, &Selection<'_>, Layout),
    outputs: Vec<(usize, StreamOutput<'_>)>,
    units: &Units,
    clock: &Clock,
) -> Vec<(usize, Result<Written, CaptureError>)> {
    let shares = units.shares(outputs.len());
    let (verdicts, parts) = (Verdicts::new(outputs.len()), outputs.len());
    thread::scope(|scope| {
        let (mut writers, mut written) = (Vec::new(), Vec::new());
        for ((index, output), share) in outputs.into_iter().zip(shares) {
            let verdicts = &verdicts;
            let name = output.name;
            let write = move || write_part(work, output, (units, share), (verdicts, parts), clock.clone());
            match Builder::new().name("write".into()).spawn_scoped(scope, write) {
                Ok(writer) => writers.push((index, writer)),
                Err(source) => {
                    verdicts.tell(false);
                    let action = "create the thread that writes to";
                    written
                        .push((index, Err(CaptureError::Output { path: name.to_owned(), action, source })));
                }
            }
        }
        written.extend(writers.into_iter().map(|(index, writer)| {
            (index, writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        }));
        written
    })
}

fn write_part(
    (job, selection, layout): (&Job<'_>, &Selection<'_>, Layout),
    output: StreamOutput<'_>,
    (units, share): (&Units, Range<usize>),
    (verdicts, parts): (&Verdicts, usize),
    mut clock: Clock,
) -> Result<Written, CaptureError> {
    let StreamOutput { mut stream, name } = output;
    let (pfns, pages) = (units.pfns(&share), units.kept(share.clone()));
    let mut header = job.header();
    // A set of one part is an ordinary dump.
    header.split = Some(pfns.clone()).filter(|pfns| *pfns != (0..layout.max_mapnr()));
    let dump = FlattenedWriter::with_chunk(&mut stream, &header, layout, pages, chunk(parts));
    let dump = dump.inspect_err(|_| verdicts.tell(false))?;
    let mut part = Part { dump, verdicts, has_told: false };
    let threads = job.options.threads.div_ceil(parts);
    let work = PageWork {
        source: job.source,
        selection,
        kept: KeptPages::Part(Box::new(selection.selector()), pfns),
        pages,
        compression: job.compression(),
        threads,
        buffers: (buffers(job.options.threads) / parts).max(threads + LEAST_BUFFERS),
        is_part: true,
        limits: job.options.limits,
        buffered: job.buffered,
    };
    let written = write_pages(work, &mut part, &name.display().to_string(), job.progress, &mut clock);
    drop(part);
    let mut stats = written?;
    let bytes = finish_stream(stream, &mut stats, name);
    Ok(Written { units: share, stats, bytes })
}

/// Reports on all parts. Fails if none has a page.
fn conclude(
    job: &Job<'_>,
    written: Vec<(usize, Result<Written, CaptureError>)>,
    units: &Units,
    reports: &mut [PartReport],
) -> Result<Total, CaptureError> {
    let mut stats = WriteStats::new(Outcome::Complete);
    let (mut ended, mut failed) = (None, None);
    for (index, written) in written {
        let report = &mut reports[index];
        let Written { units: share, stats: of_part, bytes, .. } = match written {
            Ok(written) => written,
            Err(error) => {
                report.outcome = match error.is_full() {
                    true => Outcome::DiskFull(error.to_string()),
                    false => Outcome::WriteFailed(error.to_string()),
                };
                ended.get_or_insert(report.outcome.clone());
                failed.get_or_insert(error);
                continue;
            }
        };
        let pfns = units.pfns(&share);
        let outcome = match of_part.outcome.is_at_end() {
            true => Outcome::Complete,
            false => of_part.outcome.clone(),
        };
        if !outcome.is_success() {
            ended.get_or_insert(outcome.clone());
        }
        *report = PartReport {
            outcome,
            exists: true,
            start_pfn: pfns.start,
            end_pfn: pfns.end,
            pages: units.kept(share),
            pages_written: of_part.written,
            stored_bytes: of_part.stored_bytes,
            output_bytes: bytes,
            ..report.clone()
        };
        let pages = of_part.written;
        stats.add_all(of_part, pages);
    }
    match failed {
        Some(error) if reports.iter().all(|report| !report.exists) => return Err(error),
        _ => {}
    }
    stats.outcome = ended.unwrap_or_else(|| outcome_at_end(job.source, stats.unreadable_pages));
    Ok(Total::of(stats))
}

impl PartOutput for StreamOutput<'_> {
    fn path(&self) -> &Path {
        self.name
    }

    /// Its caller removes it.
    fn discard(&self) {}
}

impl Output for StreamOutput<'_> {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        self.stream.write(offset, bytes)
    }

    fn reserve(&mut self, offset: u64, length: u64) -> Result<(), WriteError> {
        self.stream.reserve(offset, length)
    }

    fn end(&self) -> u64 {
        self.stream.end()
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        self.stream.sync()
    }

    fn is_sparse(&self) -> bool {
        self.stream.is_sparse()
    }

    fn can_rewrite(&self) -> bool {
        self.stream.can_rewrite()
    }
}
