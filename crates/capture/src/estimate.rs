//! Estimates what a dump would hold and how large it would be, without writing one.

use pagehaul_kdump::PageDesc;
use pagehaul_run::{Phase, Progress};
use pagehaul_vmcore::Source;

use crate::adaptive::AdaptiveLevel;
use crate::batch::{Batcher, KeptPages, batch_pages};
use crate::error::CaptureError;
use crate::job::Job;
use crate::options::{Format, Options};
use crate::pack::{Batch, Packer};
use crate::report::CaptureReport;
use crate::report::Clock;
use crate::scan::scan;
use crate::write::WriteStats;
use pagehaul_run::Outcome;

/// Batches compressed to estimate the ratio: 64 MiB at most, spread evenly over the kept pages.
const SAMPLES: u64 = 64;

/// Classifies all pages, compresses a sample, and reports what a capture would write.
pub fn estimate(
    source: &Source,
    options: &Options,
    progress: &Progress,
) -> Result<CaptureReport, CaptureError> {
    let mut clock = Clock::start();
    let job = Job::prepare(source, options, progress)?;
    let selection = job.selection();
    clock.lap(Phase::Prepare);
    let page_size = selection.page_size;
    let tally = scan(&selection, options.threads, progress, |_, _| Ok(()))?;
    clock.lap(Phase::Scan);
    let pages = tally.pages_kept();
    progress.begin(Phase::Pack, page_size.bytes_of(pages));
    let kept = KeptPages::Reclassified(Box::new(selection.selector()));
    let mut batcher = Batcher::new(kept, &selection);
    // `auto` as for a fast disk.
    let level = AdaptiveLevel::new(job.compression().ladder());
    let mut packer = Packer::new(selection.memory, page_size, &level)?;
    let mut batch = Batch::new(page_size);
    let mut sample = WriteStats::new(Outcome::DryRun);
    let batches = pages.div_ceil(batch_pages(page_size) as u64);
    let step = batches.div_ceil(SAMPLES).max(1);
    while batcher.next(&mut batch.pfns)? {
        if progress.is_cancelled() {
            return Err(CaptureError::Stopped);
        }
        if batch.sequence.is_multiple_of(step) {
            packer.pack(&mut batch);
            sample.add(&batch);
        }
        batch.sequence += 1;
        progress.advance(Phase::Pack, page_size.bytes_of(batch.pfns.len() as u64));
    }
    clock.lap(Phase::Pack);
    let compressed: u64 = sample.packed.iter().map(|(_, pages)| pages).sum();
    let seen = sample.zero + sample.raw + compressed + sample.unreadable_pages;
    let scaled = |count: u64| (u128::from(count) * u128::from(pages) / u128::from(seen.max(1))) as u64;
    let stats = WriteStats {
        zero: scaled(sample.zero),
        raw: scaled(sample.raw),
        packed: sample.packed.iter().map(|&(method, pages)| (method, scaled(pages))).collect(),
        unreadable_pages: scaled(sample.unreadable_pages),
        stored_bytes: scaled(sample.stored_bytes),
        ..sample
    };
    let layout = job.layout()?;
    let size = match options.format {
        Format::Elf | Format::FlattenedElf => source.memory().notes().len() as u64 + stats.stored_bytes,
        Format::Kdump | Format::Flattened => {
            layout.descriptors_offset() + pages * PageDesc::SIZE as u64 + stats.stored_bytes
        }
    };
    Ok(job.report(None, &tally, stats, size, &clock))
}
