//! One capture, stage by stage, each next to its limit measured in the same run.
//!
//! A stage's limit is the least work that any implementation has to do, on as many threads. Stages and limits are measured in turn,
//! round after round, so that other load on the machine affects all; medians count.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pagehaul_capture::{CaptureReport, NextPages, Options, Target, capture, with_kept_pages};
use pagehaul_codec::{Compressor, Method};
use pagehaul_kernel::{DumpLevel, Kernel, PageScanner};
use pagehaul_machine::{PageSize, Pfn};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_physmem::{MapPolicy, MappedFile, PAGE_SIZE, PageBuf, View};
use pagehaul_run::Progress;
use pagehaul_vmcore::{Source, SourceKind};
use serde::{Deserialize, Serialize};

use crate::contents::Contents;
use crate::disk;
use crate::error::BenchError;
use crate::predict::{PLACE, Prediction, Rates, predict};
use crate::read::every_word;
use crate::threads::on_threads;

/// Bytes of the file that are read at a time, the capture's default.
const WINDOW: u64 = 4 << 20;

/// Parameters of the measurement.
#[derive(Debug, Clone)]
pub struct Config<'a> {
    pub source: &'a Path,
    /// The dump level.
    pub level: DumpLevel,
    /// How pages are compressed.
    pub method: Method,
    pub threads: usize,
    /// Directory of the disk that dumps go to.
    pub directory: &'a Path,
    /// Runs of each; the median counts.
    pub rounds: usize,
}

/// A stage of a capture.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stage {
    pub name: &'static str,
    /// Seconds that it takes.
    pub seconds: f64,
    /// Seconds that its limit takes; `None` where there is none.
    pub limit: Option<f64>,
    /// Name of the limit.
    pub limit_is: &'static str,
}

impl Stage {
    /// Returns its time over that of its limit.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.seconds / self.limit?.max(1e-9))
    }
}

/// The stage that takes most of the time of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Reading and classifying struct pages.
    Scan,
    /// Reading the kept pages.
    Read,
    /// Compressing them.
    Codec,
    /// Writing them.
    Disk,
}

/// Rates for a prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of one CPU.
    pub rates: Rates,
    /// Seconds before the scan.
    pub start: f64,
}

/// A capture, stage by stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Stages {
    pub source: String,
    /// The dump level.
    pub level: u8,
    /// Codec and level.
    pub codec: String,
    pub threads: usize,
    /// Bytes of physical memory.
    pub memory_bytes: u64,
    pub struct_page_bytes: u64,
    /// Pages kept.
    pub pages: u64,
    /// Bytes of the dump.
    pub output_bytes: u64,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// Seconds of a whole capture.
    pub seconds: f64,
    /// What takes most of them.
    pub bound: Bound,
    /// Rates for [`predict`].
    #[serde(flatten)]
    pub measured: Measured,
    /// Bytes per second that the disk takes.
    pub disk: f64,
    /// The prediction for this capture from these rates.
    pub predicted: f64,
}

/// The times of one round, in seconds; of threads, the mean.
struct Round {
    prepare: f64,
    struct_pages: f64,
    sequential: Option<f64>,
    reading: f64,
    codec: f64,
    /// Packed and discarded.
    dropped: CaptureReport,
    whole: CaptureReport,
    whole_seconds: f64,
    disk: f64,
}

/// Measures the stages of one capture.
pub fn measure(config: &Config<'_>, progress: &Progress) -> Result<Stages, BenchError> {
    let source = Source::open(config.source, MapPolicy::default())?;
    let kernel = Kernel::discover(source.memory())?;
    if kernel.page_size() != PageSize::KIB_4 {
        let what = format!("{} bytes", kernel.page_size().bytes());
        return Err(BenchError::Wrong(format!(
            "pages of {what} cannot be measured: only those of 4096 bytes"
        )));
    }
    // Not measured: brings the file into the page cache.
    let (struct_page_bytes, _) = struct_pages(&source, &kernel, config.threads)?;
    let rounds = (0..config.rounds.max(1)).map(|_| round(config, &source, &kernel, progress));
    let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
    let median = |of: &dyn Fn(&Round) -> f64| {
        let mut times: Vec<f64> = rounds.iter().map(of).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let (prepare, scan) = (median(&|round| round.prepare), median(&|round| round.dropped.seconds.scan));
    let (reading, codec) = (median(&|round| round.reading), median(&|round| round.codec));
    let (pack, disk) = (median(&|round| round.dropped.seconds.pack), median(&|round| round.disk));
    let sequential = rounds[0].sequential.map(|_| median(&|round| round.sequential.unwrap_or(0.0)));
    let stage = |name, seconds, limit, limit_is| Stage { name, seconds, limit, limit_is };
    let stages = vec![
        stage("prepare", prepare, None, ""),
        stage("scan", scan, Some(median(&|round| round.struct_pages)), "struct pages read once"),
        stage("read", reading, sequential, "as many bytes of the file in order"),
        stage("pack", pack, Some(codec), "the codec alone, on pages in the cache"),
        stage(
            "write",
            median(&|round| round.whole.seconds.pack + round.whole.seconds.finish),
            Some(pack.max(disk)),
            "packed without writing, or written without packing: the slower",
        ),
    ];
    let (bound, _) =
        [(Bound::Scan, scan), (Bound::Read, reading), (Bound::Codec, codec), (Bound::Disk, disk)]
            .into_iter()
            .fold((Bound::Scan, 0.0), |most, part| if part.1 > most.1 { part } else { most });
    let (report, threads) = (&rounds[0].whole, config.threads as f64);
    let kept = report.pages_kept as f64 * PAGE_SIZE as f64;
    let rates = Rates {
        level: report.level,
        scan: report.memory_bytes as f64 / PAGE_SIZE as f64 / (scan * threads).max(1e-9),
        pack: kept / (pack * threads).max(1e-9),
        place: PLACE,
        ratio: kept / report.stored_bytes.max(1) as f64,
        kept: kept / report.memory_bytes.max(1) as f64,
    };
    let rate = report.output_bytes as f64 / disk.max(1e-6);
    let Prediction { seconds, .. } =
        predict(&rates, PageSize::KIB_4, report.memory_bytes, config.threads as u32, (rate as u64).max(1));
    Ok(Stages {
        source: config.source.display().to_string(),
        level: report.level,
        codec: report.codec.clone(),
        threads: config.threads,
        memory_bytes: report.memory_bytes,
        struct_page_bytes,
        pages: report.pages_kept,
        output_bytes: report.output_bytes,
        stages,
        seconds: median(&|round| round.whole_seconds),
        bound,
        measured: Measured { rates, start: prepare },
        disk: rate,
        predicted: prepare + seconds,
    })
}

fn round(
    config: &Config<'_>,
    source: &Source,
    kernel: &Kernel,
    progress: &Progress,
) -> Result<Round, BenchError> {
    let options = Options::new(config.level, config.method.into(), config.threads);
    let start = Instant::now();
    black_box(Kernel::discover(source.memory())?.kernel_mapped_pages(source.memory()));
    let prepare = start.elapsed().as_secs_f64();
    let (_, struct_pages) = struct_pages(source, kernel, config.threads)?;
    let kept = with_kept_pages(source, &options, progress, |next| {
        on_threads(config.threads, || read_and_pack(source, config.method, next))
    })??;
    // Threads work at the same time.
    let mean = |of: fn(&Kept) -> f64| kept.iter().map(of).sum::<f64>() / config.threads as f64;
    let bytes = kept.iter().map(|kept| kept.contents.pages).sum::<u64>() * PAGE_SIZE as u64;
    let sequential = match source.kind() {
        SourceKind::Elf(_) => sequential(config.source, bytes, config.threads)?,
        _ => None,
    };
    let dropped = done(capture(source, &Target::Discard, &options, progress)?)?;
    let scratch = disk::temporary(config.directory)?;
    let target = Target::File { path: scratch.path().join("dump"), overwrite: false };
    let start = Instant::now();
    let whole = done(capture(source, &target, &options, progress)?)?;
    let whole_seconds = start.elapsed().as_secs_f64();
    // Frees the disk space for the next measurement.
    drop(scratch);
    Ok(Round {
        prepare,
        struct_pages,
        sequential,
        reading: mean(|kept| kept.reading),
        codec: mean(|kept| kept.contents.seconds),
        dropped,
        disk: disk::write(config.directory, whole.output_bytes, Duration::MAX)?.seconds,
        whole,
        whole_seconds,
    })
}

/// Fails if a capture ended early: its times are too short.
fn done(report: CaptureReport) -> Result<CaptureReport, BenchError> {
    match report.outcome.why() {
        Some(why) if !report.outcome.is_at_end() => {
            Err(BenchError::Wrong(format!("the capture ended early: {why}")))
        }
        _ => Ok(report),
    }
}

/// Reads all struct pages once. Returns their bytes and the seconds.
fn struct_pages(source: &Source, kernel: &Kernel, threads: usize) -> Result<(u64, f64), BenchError> {
    let memory = source.memory();
    let blocks = kernel.blocks(memory.ranges().end_pfn(kernel.page_size()));
    let next = AtomicU64::new(0);
    let start = Instant::now();
    let bytes = on_threads(threads, || {
        let mut scanner = PageScanner::new(kernel, memory.view());
        let (mut bytes, mut sum) = (0, 0);
        loop {
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                black_box(sum);
                return Ok(bytes);
            }
            scanner.read(block, &mut |window| {
                bytes += window.len() as u64;
                sum ^= every_word(window);
            });
        }
    })?;
    Ok((bytes.into_iter().sum(), start.elapsed().as_secs_f64()))
}

/// The work of one thread on kept pages.
struct Kept {
    contents: Contents,
    /// Seconds that reading took.
    reading: f64,
}

/// Reads batches of kept pages, and then compresses each.
fn read_and_pack(source: &Source, method: Method, next: &NextPages<'_>) -> Result<Kept, BenchError> {
    let mut compressor = Compressor::new(method)?;
    let mut view = source.memory().view();
    let mut kept = Kept { contents: Contents::default(), reading: 0.0 };
    let (mut pfns, mut batch) = (Vec::new(), Vec::new());
    while next(&mut pfns)? {
        batch.clear();
        let mut rest = &pfns[..];
        while let Some(&first) = rest.first() {
            let run =
                rest.iter().zip(first.number()..).take_while(|(pfn, next)| pfn.number() == *next).count();
            let read = read_run(view.as_mut(), first, run, &mut batch, &mut kept.reading);
            rest = rest.get(read..).unwrap_or_default();
        }
        kept.contents.pack(&mut compressor, PageSize::KIB_4, batch.as_flattened());
    }
    Ok(kept)
}

/// Reads up to `run` pages from `first`, and returns how many are done: at least one.
fn read_run(
    view: &mut dyn View,
    first: Pfn,
    run: usize,
    batch: &mut Vec<PageBuf>,
    seconds: &mut f64,
) -> usize {
    let start_of_run = first.start(PageSize::KIB_4);
    let start = Instant::now();
    if let Ok(window) = view.window(start_of_run.get(), run * PAGE_SIZE)
        && let (pages @ [_, ..], _) = window.as_chunks()
    {
        black_box(every_word(pages.as_flattened()));
        *seconds += start.elapsed().as_secs_f64();
        batch.extend_from_slice(pages);
        return pages.len();
    }
    // Unreadable pages are not packed.
    let mut page = [0; PAGE_SIZE];
    if view.copy_page(start_of_run, &mut page).is_ok() {
        *seconds += start.elapsed().as_secs_f64();
        batch.push(page);
    }
    1
}

/// Seconds to read `bytes` of a file in order on all threads, each a part of it. `None` if the file is shorter.
fn sequential(path: &Path, bytes: u64, threads: usize) -> Result<Option<f64>, BenchError> {
    let size = PlainFile::open(path)?.size();
    if bytes > size {
        return Ok(None);
    }
    let (part, next) = (bytes.div_ceil(threads as u64), AtomicU64::new(0));
    let start = Instant::now();
    on_threads(threads, || {
        let file = MappedFile::new(PlainFile::open(path)?, MapPolicy::default());
        let mut window = file.window();
        let mut sum = 0;
        loop {
            let mut at = next.fetch_add(part, Ordering::Relaxed);
            let end = at.saturating_add(part).min(bytes);
            if at >= end {
                black_box(sum);
                return Ok(());
            }
            while at < end {
                let len = WINDOW.min(end - at) as usize;
                let failed = |source| BenchError::Io { path: path.to_owned(), action: "read", source };
                let read = window.bytes(at, len).map_err(failed)?;
                if read.is_empty() {
                    break;
                }
                sum ^= every_word(read);
                at += read.len() as u64;
            }
        }
    })?;
    Ok(Some(start.elapsed().as_secs_f64()))
}
