//! The pages that a capture would keep, for programs that do something else with them.

use std::sync::{Mutex, PoisonError};

use pagehaul_machine::Pfn;
use pagehaul_run::Progress;
use pagehaul_vmcore::Source;

use crate::batch::{Batcher, KeptPages};
use crate::error::CaptureError;
use crate::job::Job;
use crate::options::Options;
use crate::scan::scan;

/// Fills a vector with the PFNs of the next batch, ascending, and returns whether there was one. Threads share it.
pub type NextPages<'a> = dyn Fn(&mut Vec<Pfn>) -> Result<bool, CaptureError> + Sync + 'a;

/// Calls `work` with what hands out the kept pages in the batches of a capture.
pub fn with_kept_pages<R>(
    source: &Source,
    options: &Options,
    progress: &Progress,
    work: impl FnOnce(&NextPages<'_>) -> R,
) -> Result<R, CaptureError> {
    let job = Job::prepare(source, options, progress)?;
    let selection = job.selection();
    let kept = KeptPages::Reclassified(Box::new(selection.selector()));
    let batcher = Mutex::new(Batcher::new(kept, &selection));
    Ok(work(&|pfns| batcher.lock().unwrap_or_else(PoisonError::into_inner).next(pfns)))
}

/// Returns how many bytes of memory a capture would keep.
pub fn kept_bytes(source: &Source, options: &Options, progress: &Progress) -> Result<u64, CaptureError> {
    let job = Job::prepare(source, options, progress)?;
    let selection = job.selection();
    let tally = scan(&selection, options.threads, progress, |_, _| Ok(()))?;
    Ok(selection.page_size.bytes_of(tally.pages_kept()))
}
