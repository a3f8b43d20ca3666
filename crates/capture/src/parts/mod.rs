//! A dump in several files, each on a disk of its own: the parts of a split set.
//!
//! Each file holds one stretch of PFNs, as the format wants it. Where one ends and the next begins is not decided before:
//! the parts grow towards each other ([`share`]), a unit of some MiB at a time, packed by threads that serve them all
//! ([`pool`]). A disk that is full or fails ends its part at the last unit that is whole in it, and the others take the
//! rest.

mod pool;
mod report;
mod scan;
mod share;
mod units;
mod work;
mod writer;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use crossbeam_channel::unbounded;
use pagehaul_kdump::write::SplitPartWriter;
use pagehaul_output::{OutputError, OutputFile};
use pagehaul_physmem::PAGE_SIZE;
use pagehaul_physmem::file::ReadAt;

use crate::job::Job;
use crate::limits::Deadline;
use crate::pace::{Governor, Pace};
use crate::pack::Packer;
use crate::place::{Placed, buffers};
use crate::report::Clock;
use crate::{CaptureError, Ended, Format, Report};
use pagehaul_run::Phase;
use pool::Pool;
use report::Outcome;
use scan::Scanned;
use share::Share;
use units::Units;
use work::Worker;
use writer::{Pacer, Writer, Written};

/// More files than this would take more memory for their buffers than a capture may.
const MOST: usize = 16;
/// Bytes gathered for writes of page data, of all parts together, and of one.
const DATA_CHUNKS: usize = 16 << 20;
const DATA_CHUNK: usize = 4 << 20;

/// Takes a dump into the files at `paths`.
pub(crate) fn capture(
    job: &Job<'_>,
    paths: &[PathBuf],
    overwrite: bool,
    clock: &mut Clock,
) -> Result<Report, CaptureError> {
    let units = Units::new(job.selection().max_pfn());
    check(job, paths, &units)?;
    let mut outcomes: Vec<Outcome> = paths.iter().map(|path| Outcome::new(path)).collect();
    let files = create(job, paths, overwrite, &mut outcomes)?;
    let discard = |_: &CaptureError| files.iter().for_each(|(_, file)| file.discard());
    let report = write(job, files.clone(), units, outcomes, clock).inspect_err(discard)?;
    for (_, file) in files.iter().filter(|(index, _)| report.parts[*index].exists) {
        file.write_checksums().map_err(CaptureError::Checksums)?;
    }
    Ok(report)
}

/// Refuses what cannot be.
fn check(job: &Job<'_>, paths: &[PathBuf], units: &Units) -> Result<(), CaptureError> {
    let refuse = |why: String| Err(CaptureError::Refused(why));
    if job.options.format != Format::Kdump {
        return refuse(format!(
            "several outputs are parts of a dump in kdump format; one in {} format goes to one output",
            job.options.format.name()
        ));
    }
    if paths.len() > MOST {
        return refuse(format!("{} outputs are too many; a dump has at most {MOST} parts", paths.len()));
    }
    if units.len() < paths.len() {
        return refuse(format!(
            "this machine's memory is too small for {} parts; name at most {} outputs",
            paths.len(),
            units.len()
        ));
    }
    Ok(())
}

/// Makes the files. One that cannot be made is left out, as long as there is another.
fn create(
    job: &Job<'_>,
    paths: &[PathBuf],
    overwrite: bool,
    outcomes: &mut [Outcome],
) -> Result<Vec<(usize, OutputFile)>, CaptureError> {
    let sources = job.source.memory().files();
    // Before any file that exists is emptied.
    for path in paths {
        if let Err(refused @ OutputError::Refused(_)) = OutputFile::check(path, overwrite, &sources) {
            return Err(refused.into());
        }
    }
    let mut files: Vec<(usize, OutputFile)> = Vec::new();
    let made = paths.iter().enumerate().try_for_each(|(index, path)| {
        match OutputFile::create(path, overwrite, &sources, job.progress.bytes_written()) {
            Ok(file) if files.iter().any(|(_, other)| other.identity() == file.identity()) => {
                return Err(refuse_twice(path));
            }
            Ok(file) if !file.is_regular() => {
                return Err(CaptureError::Refused(format!(
                    "{} is a disk; parts have to be files: make a file system on it",
                    path.display()
                )));
            }
            Ok(mut file) => {
                if job.options.checksums {
                    file.enable_checksums();
                }
                files.push((index, file));
            }
            Err(OutputError::Refused(_)) if paths[..index].contains(path) => return Err(refuse_twice(path)),
            Err(refused @ OutputError::Refused(_)) => return Err(refused.into()),
            Err(error) => outcomes[index].failed(Ended::WriteFailed(error.to_string())),
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
    CaptureError::Refused(format!("{} is named twice; each part needs a file of its own", path.display()))
}

/// Scans, packs and writes.
fn write(
    job: &Job<'_>,
    files: Vec<(usize, OutputFile)>,
    units: Units,
    mut outcomes: Vec<Outcome>,
    clock: &mut Clock,
) -> Result<Report, CaptureError> {
    let pace = Pace::new(job.compression().ladder());
    // Here rather than in the threads, so that a codec that cannot be set up costs nothing.
    Packer::new(job.source.memory(), &pace)?;
    let layout = job.layout()?;
    let mut header = job.header();
    header.split = Some(0..layout.max_mapnr());
    let Scanned { files, units, tally } =
        scan::scan(job, files, units, (&header, &layout), &mut outcomes, clock)?;
    let pages = tally.pages_kept();
    job.progress.begin(Phase::Pack, pages * PAGE_SIZE as u64);
    // A power of two, as there are at most MOST files.
    let chunk = (1 << (DATA_CHUNKS / files.len().max(1)).ilog2()).min(DATA_CHUNK);
    let parts = files
        .into_iter()
        .map(|(index, sink)| Ok((index, SplitPartWriter::new(sink, header.clone(), layout, pages, chunk)?)))
        .collect::<Result<Vec<_>, CaptureError>>()?;
    let pool = Pool::new(Share::new(units, parts.len()), buffers(job.options.threads), job.progress);
    let written = pack(job, parts, &pool, &pace, clock);
    clock.lap(Phase::Pack);
    job.progress.begin(Phase::Finish, 0);
    let stopped = pool.stopped();
    let placed = report::conclude(written, pool.into_share(), stopped, &mut outcomes);
    clock.lap(Phase::Finish);
    Ok(report::report(job, outcomes, &tally, placed, clock))
}

/// Runs the packing threads, and a writer for each part.
fn pack<'a>(
    job: &'a Job<'a>,
    parts: Vec<(usize, SplitPartWriter<'a>)>,
    pool: &Pool<'a>,
    pace: &Pace,
    clock: &Clock,
) -> Vec<(usize, Written<'a>)> {
    let selection = job.selection();
    let governor = Mutex::new(Governor::new(pace, job.options.threads));
    let count = parts.len() as u32;
    let deadline = Deadline::new(job.options.limits, clock, job.progress);
    let bitmaps: Vec<_> = parts.iter().map(|(_, part)| part.bitmap2()).collect();
    thread::scope(|scope| {
        let mut outboxes = Vec::new();
        let mut writers = Vec::new();
        for (part, (index, file)) in parts.into_iter().enumerate() {
            // No more is in it than there are batches.
            let (outbox, inbox) = unbounded();
            outboxes.push(outbox);
            let pacer = Pacer { governor: &governor, parts: count };
            let writer = Writer {
                part,
                file,
                pool,
                inbox,
                deadline: &deadline,
                pacer,
                progress: job.progress,
                over: false,
                units: VecDeque::new(),
                placed: Placed::nothing(Ended::Complete),
            };
            writers.push((index, scope.spawn(move || writer.run())));
        }
        for _ in 0..job.options.threads {
            let worker = Worker { pool, outboxes: outboxes.clone(), bitmaps: &bitmaps };
            let memory = selection.memory;
            scope.spawn(move || worker.run(memory, pace));
        }
        drop(outboxes);
        writers
            .into_iter()
            // A panic goes on as one.
            .map(|(index, writer)| {
                (index, writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
            .collect()
    })
}
