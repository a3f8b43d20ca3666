//! Finds dumps that were truncated after they were complete: an interrupted copy has no mark.

use super::KdumpFile;
use super::check::read;
use crate::format::PageDesc;
use crate::format::encoding::Encoding;

/// Descriptors of a small dump, which are all read: 1.5 MiB.
const SMALL: u64 = 1 << 16;
/// Descriptors read at once: 96 KiB.
const BATCH: u64 = 4096;
/// Batches at the end that may hold nothing but pages of zeros, which share their data: 1 GiB of memory.
const MAX_ZEROS: u64 = 64;
/// Places of a larger dump at which descriptors are read: each is a request to a server.
const PLACES: u64 = 16;

impl KdumpFile {
    /// Returns whether the file ends before the data of its last page, by a sample of its descriptors: the last ones that are no pages of
    /// zeros, and others evenly spread. makedumpfile writes pages in the order of their descriptors, so that the last ones are enough. In
    /// a dump of more than 256 MiB that is written by importance, a small loss may go unseen; [`census`](Self::census) reads all
    /// descriptors.
    ///
    /// A dump that its writer did not finish is [incomplete](Self::is_incomplete).
    pub fn is_truncated(&self) -> bool {
        let count = self.sections.count;
        if self.data_start() > self.file.size() {
            return true;
        }
        let is_outside = |desc: &PageDesc| matches!(self.encoding(desc), Encoding::Truncated);
        let batch = |first: u64| read(self, first, BATCH.min(count - first)).unwrap_or_default();
        if count <= SMALL {
            return (0..count).step_by(BATCH as usize).any(|first| batch(first).iter().any(is_outside));
        }
        let last = count - BATCH;
        if (0..PLACES).any(|at| batch(last * at / (PLACES - 1)).iter().any(is_outside)) {
            return true;
        }
        let zeros = batch(last).last().map(|desc| desc.offset);
        for first in (0..=last).rev().step_by(BATCH as usize).take(MAX_ZEROS as usize) {
            let descs = batch(first);
            if descs.iter().any(is_outside) {
                return true;
            }
            if descs.iter().any(|desc| Some(desc.offset) != zeros) {
                break;
            }
        }
        false
    }
}
