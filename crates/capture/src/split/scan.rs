//! One scan writes the bitmaps of all parts.

use std::path::Path;

use pagehaul_kdump::write::BitmapWriter;
use pagehaul_kdump::{Header, Layout};
use pagehaul_output::{Output, OutputFile, WriteError};

use super::units::Units;
use crate::error::CaptureError;
use crate::error::output_error;
use crate::job::Job;
use crate::report::Clock;
use crate::report::PartReport;
use crate::scan;
use crate::selection::Tally;
use pagehaul_run::Phase;

/// What a part is written to.
pub(super) trait PartOutput: Output {
    fn path(&self) -> &Path;

    /// Removes what holds nothing of use.
    fn discard(&self);
}

impl PartOutput for OutputFile {
    fn path(&self) -> &Path {
        self.path()
    }

    fn discard(&self) {
        self.discard();
    }
}

/// The result of the scan.
pub(super) struct Scanned<O> {
    /// The outputs whose bitmaps are written.
    pub(super) files: Vec<(usize, O)>,
    pub(super) units: Units,
    pub(super) tally: Tally,
}

/// The files whose bitmaps are being written.
struct Files<'a, O> {
    files: Vec<(usize, O, BitmapWriter)>,
    reports: &'a mut [PartReport],
    last: Option<CaptureError>,
}

impl<O: PartOutput> Files<'_, O> {
    /// Applies `act` to every file, and goes on without those where it fails.
    fn each(
        &mut self,
        mut act: impl FnMut(&mut O, &mut BitmapWriter) -> Result<(), WriteError>,
    ) -> Result<(), CaptureError> {
        self.files.retain_mut(|(index, file, bitmaps)| match act(file, bitmaps) {
            Ok(()) => true,
            Err(error) => {
                self.reports[*index].outcome = error.outcome(&file.path().display().to_string());
                file.discard();
                self.last = Some(output_error(file.path(), error));
                false
            }
        });
        match self.last.take_if(|_| self.files.is_empty()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Scans, and writes headers and bitmaps.
pub(super) fn scan<O: PartOutput>(
    job: &Job<'_>,
    outputs: Vec<(usize, O)>,
    mut units: Units,
    (header, layout): (&Header<'_>, &Layout),
    reports: &mut [PartReport],
    clock: &mut Clock,
) -> Result<Scanned<O>, CaptureError> {
    let selection = job.selection();
    let pages = selection.pages_per_block();
    let encoded = header.encode(layout, true)?;
    let mut files = Files { files: Vec::new(), reports, last: None };
    for (index, mut output) in outputs {
        match BitmapWriter::begin_part(&encoded, layout, &mut output) {
            Ok(bitmaps) => files.files.push((index, output, bitmaps)),
            Err(error) => {
                files.reports[index].outcome = error.outcome(&output.path().display().to_string());
                output.discard();
                files.last = Some(output_error(output.path(), error));
            }
        }
    }
    files.each(|_, _| Ok(()))?;
    let mut exists = vec![0; pages / 64];
    let tally = scan::scan(&selection, job.options.threads, job.progress, |index, block| {
        let first = index * pages as u64;
        selection.mark_existing(first, &mut exists);
        units.count(first, &block.kept);
        files.each(|file, bitmaps| bitmaps.push(&exists, &block.kept, file))
    })?;
    units.sum_up();
    files.each(|file, bitmaps| {
        bitmaps.finish(file)?;
        // The bitmap is read back, even where it ends in a hole.
        Ok(Output::set_size(file, layout.descriptors_offset())?)
    })?;
    clock.lap(Phase::Scan);
    let files = files.files.into_iter().map(|(index, file, _)| (index, file)).collect();
    Ok(Scanned { files, units, tally })
}
