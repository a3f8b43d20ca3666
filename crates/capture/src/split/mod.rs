//! A dump in several files on several disks: the parts of a split set.
//!
//! Each file holds one range of PFNs. Where one ends and the next begins is not decided in advance: the parts grow towards
//! each other ([`plan`]), a unit of a few MiB at a time, packed by threads that serve them all ([`dispatch`]). A disk that
//! is full or fails ends its part at the last unit that is wholly in it, and the other parts take the rest.
//!
//! Of a set of [`streams`], each part has a share that is known before its first page.

mod dispatch;
mod packing;
mod plan;
mod report;
mod scan;
mod streams;
mod units;
mod writer;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::{self, Builder, ScopedJoinHandle};

use pagehaul_kdump::write::SplitPartWriter;
use pagehaul_machine::PageSize;
use pagehaul_output::checksums::Checksums;
use pagehaul_output::{DumpFileOptions, OutputError, OutputFile};
use pagehaul_physmem::file::ReadAt;

use crate::adaptive::{AdaptiveLevel, LevelController};
use crate::batch::batch_pages;
use crate::error::CaptureError;
use crate::job::Job;
use crate::limits::Deadline;
use crate::options::Format;
use crate::pack::Packer;
use crate::report::Clock;
use crate::report::{CaptureReport, PartReport};
use crate::write::buffers;
use dispatch::Dispatcher;
use packing::{SplitBatch, SplitPacking};
use pagehaul_pool::in_lanes;
use pagehaul_run::Outcome;
use pagehaul_run::Phase;
use plan::SplitPlan;
use scan::Scanned;
pub(crate) use streams::capture_streams;
use units::Units;
use writer::{PartWriter, Shared, Written};

/// Parts at most: the buffers of more would exceed the bound on memory.
const MAX_PARTS: usize = 16;
/// Bytes gathered for writes of page data, of all parts together and of one at most.
const DATA_CHUNKS: usize = 16 << 20;
const DATA_CHUNK: usize = 4 << 20;

/// Captures a dump into the files at `paths`.
pub(crate) fn capture(
    job: &Job<'_>,
    paths: &[PathBuf],
    overwrite: bool,
    clock: &mut Clock,
) -> Result<CaptureReport, CaptureError> {
    let units = Units::new(job.selection().max_pfn());
    if job.options.format != Format::Kdump {
        return Err(CaptureError::Refused(format!(
            "several outputs are parts of a dump in kdump format; one in {} format goes to one output",
            job.options.format.name()
        )));
    }
    check(paths.len(), &units)?;
    let mut reports: Vec<PartReport> = paths.iter().map(|path| report::new_part(path)).collect();
    let files = create(job, paths, overwrite, &mut reports)?;
    let discard = |_: &CaptureError| files.iter().for_each(|(_, file)| file.discard());
    let mut report = write(job, files.clone(), units, reports, clock).inspect_err(discard)?;
    if let (false, Outcome::DiskFull(why) | Outcome::WriteFailed(why) | Outcome::ReadFailed(why)) =
        (report.parts.iter().any(|part| part.exists), &report.outcome)
    {
        let full = matches!(report.outcome, Outcome::DiskFull(_));
        return Err(CaptureError::NoPart { why: why.clone(), full });
    }
    for (index, file) in &files {
        if report.parts[*index].exists {
            report.add_checksums(file)?;
        }
    }
    Ok(report)
}

/// Refuses more outputs than a set of parts can have.
fn check(outputs: usize, units: &Units) -> Result<(), CaptureError> {
    let refuse = |why: String| Err(CaptureError::Refused(why));
    if outputs > MAX_PARTS {
        return refuse(format!("{outputs} outputs are too many; a dump has at most {MAX_PARTS} parts"));
    }
    if units.len() < outputs {
        return refuse(format!(
            "this machine's memory is too small for {outputs} parts; name at most {} outputs",
            units.len()
        ));
    }
    Ok(())
}

/// Bytes gathered for writes of page data of each part.
fn chunk(parts: usize) -> usize {
    // A power of two, as there are at most MAX_PARTS files.
    (1 << (DATA_CHUNKS / parts.max(1)).ilog2()).min(DATA_CHUNK)
}

/// Creates the files. The capture goes on without those that cannot be created, as long as there is another.
fn create(
    job: &Job<'_>,
    paths: &[PathBuf],
    overwrite: bool,
    reports: &mut [PartReport],
) -> Result<Vec<(usize, OutputFile)>, CaptureError> {
    let sources = job.source.memory().files();
    let options = DumpFileOptions { overwrite, checksums: job.options.checksums, sources: &sources };
    // Before any existing file is replaced.
    for (index, path) in paths.iter().enumerate() {
        if let Err(refused @ OutputError::Refused(_)) = OutputFile::check(path, options) {
            return Err(refused.into());
        }
        let is_sums = |other: &PathBuf| options.checksums && Checksums::path_of(other) == *path;
        if paths[..index].contains(path) || paths.iter().any(is_sums) {
            return Err(refuse_twice(path));
        }
    }
    let mut files: Vec<(usize, OutputFile)> = Vec::new();
    let made = paths.iter().enumerate().try_for_each(|(index, path)| {
        if std::fs::metadata(path)
            .is_ok_and(|found| files.iter().any(|(_, other)| other.identity() == (found.dev(), found.ino())))
        {
            return Err(refuse_twice(path));
        }
        match OutputFile::create(path, options, job.progress.bytes_written()) {
            Ok(file) if !file.is_regular() => {
                return Err(CaptureError::Refused(format!(
                    "{} is a disk; parts have to be files: make a file system on it",
                    path.display()
                )));
            }
            Ok(file) => files.push((index, file)),
            Err(refused @ OutputError::Refused(_)) => return Err(refused.into()),
            Err(error) => reports[index].outcome = Outcome::WriteFailed(error.to_string()),
        }
        Ok(())
    });
    if let Err(error) = made {
        files.iter().for_each(|(_, file)| file.discard());
        return Err(error);
    }
    Ok(files)
}

fn refuse_twice(path: &Path) -> CaptureError {
    CaptureError::Refused(format!("{} is named twice; each part needs its own file", path.display()))
}

/// Scans, packs and writes.
fn write(
    job: &Job<'_>,
    files: Vec<(usize, OutputFile)>,
    units: Units,
    mut reports: Vec<PartReport>,
    clock: &mut Clock,
) -> Result<CaptureReport, CaptureError> {
    let level = AdaptiveLevel::new(job.compression().ladder());
    let layout = job.layout()?;
    let page_size = layout.page_size();
    // Fails here rather than in the threads if a codec cannot be set up.
    Packer::new(job.source.memory(), page_size, &level)?;
    let mut header = job.header();
    header.split = Some(0..layout.max_mapnr());
    let Scanned { files, units, tally } =
        scan::scan(job, files, units, (&header, &layout), &mut reports, clock)?;
    let pages = tally.pages_kept();
    job.progress.begin(Phase::Pack, page_size.bytes_of(pages));
    let chunk = chunk(files.len());
    let path = files.first().map(|(_, file)| file.path().to_owned()).unwrap_or_default();
    let parts = files
        .into_iter()
        .map(|(index, output)| {
            Ok((index, SplitPartWriter::new(output, header.clone(), layout, pages, chunk)?))
        })
        .collect::<Result<Vec<_>, CaptureError>>()?;
    let plan = SplitPlan::new(units, parts.len());
    let dispatcher =
        Dispatcher::new(plan, batch_pages(page_size), buffers(job.options.threads), job.progress);
    let written = write_parts((job, page_size), parts, &dispatcher, &level, clock).map_err(|source| {
        CaptureError::Output { path, action: "create the threads that write to", source }
    })?;
    clock.lap(Phase::Pack);
    job.progress.begin(Phase::Finish, 0);
    let stopped = dispatcher.stopped();
    let total = report::conclude(job.source, written, dispatcher.into_plan(), stopped, &mut reports);
    clock.lap(Phase::Finish);
    Ok(report::report(job, reports, &tally, total, clock))
}

/// Runs the workers, and a writer for each part.
fn write_parts<'a>(
    (job, page_size): (&'a Job<'a>, PageSize),
    parts: Vec<(usize, SplitPartWriter<'a>)>,
    dispatcher: &Dispatcher<'a>,
    level: &AdaptiveLevel,
    clock: &Clock,
) -> io::Result<Vec<(usize, Written<'a>)>> {
    let threads = job.options.threads;
    let packing = SplitPacking {
        dispatcher,
        memory: (job.source.memory(), page_size),
        level,
        bitmaps: parts.iter().map(|(_, part)| part.bitmap2()).collect(),
        unit_words: dispatcher.with_plan(|plan| plan.units().pages() as usize / 64),
    };
    let shared = Shared {
        dispatcher,
        progress: job.progress,
        controller: Mutex::new(LevelController::new(level, threads)),
        parts: parts.len() as u32,
    };
    let batches = (0..buffers(threads)).map(|_| SplitBatch::new(page_size));
    in_lanes(&packing, "pack", threads, batches, parts.len(), |lanes, workers| {
        if workers == 0 {
            dispatcher.stop(Outcome::ReadFailed("no thread can be created".into()));
        }
        thread::scope(|scope| {
            let shared = &shared;
            let mut writers = Vec::new();
            let mut failure = None;
            for ((part, (index, file)), lane) in parts.into_iter().enumerate().zip(lanes) {
                let deadline = Deadline::new(job.options.limits, 0, clock);
                let writer = PartWriter::new(part, file, deadline, shared);
                match Builder::new().name("write".into()).spawn_scoped(scope, move || writer.run(lane)) {
                    Ok(writer) => writers.push((index, writer)),
                    Err(error) => {
                        // Ends the workers and the other writers.
                        dispatcher.stop(Outcome::WriteFailed("no thread can be created".into()));
                        failure = Some(error);
                        break;
                    }
                }
            }
            let join = |writer: ScopedJoinHandle<'_, Written<'a>>| {
                writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let written = writers.into_iter().map(|(index, writer)| (index, join(writer))).collect();
            failure.map_or(Ok(written), Err)
        })
    })
}
