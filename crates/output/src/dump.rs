//! The interface between the policy that selects pages and the formats that store them.

use std::ops::Range;
use std::time::Instant;

use pagehaul_codec::Method;
use pagehaul_machine::{PageSize, Pfn};

use crate::error::WriteError;
use crate::write_meter::WriteCosts;

/// How one page is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredPage {
    /// All zeros: no bytes of its own.
    Zero,
    /// Uncompressed.
    Raw,
    /// Compressed with this codec and level to this many bytes.
    Compressed(Method, u16),
    /// The source could not deliver it; nothing is stored.
    Unreadable,
}

impl StoredPage {
    /// Bytes that a page of `size` takes in [`PageBatch::data`].
    pub fn stored_bytes(self, size: PageSize) -> usize {
        match self {
            Self::Zero | Self::Unreadable => 0,
            Self::Raw => size.bytes(),
            Self::Compressed(_, bytes) => bytes.into(),
        }
    }
}

/// Pages ready to be written.
#[derive(Debug, Clone, Copy)]
pub struct PageBatch<'a> {
    pub page_size: PageSize,
    /// The PFN of each page, ascending.
    pub pfns: &'a [Pfn],
    /// How each page is stored.
    pub pages: &'a [StoredPage],
    /// The stored bytes of all pages, one after the other.
    pub data: &'a [u8],
}

impl<'a> PageBatch<'a> {
    /// Iterates over the pages and their ranges in [`data`](Self::data).
    pub fn stored(self) -> impl Iterator<Item = (StoredPage, Range<usize>)> + 'a {
        let mut at = 0;
        self.pages.iter().map(move |&page| {
            let start = at;
            at += page.stored_bytes(self.page_size);
            (page, start..at)
        })
    }

    /// The number of pages.
    pub fn len(self) -> usize {
        self.pages.len()
    }

    /// Returns whether the batch has no pages.
    pub fn is_empty(self) -> bool {
        self.pages.is_empty()
    }
}

/// A dump whose pages are being written. The file is marked incomplete until [`finish`](Self::finish) has put
/// everything on the disk.
pub trait DumpWriter {
    /// Writes what precedes the pages.
    fn begin(&mut self) -> Result<(), WriteError>;

    /// Adds the next batch.
    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError>;

    /// Waits for the pages in flight to a disk. Those that are not in the file at `until` are dropped: returns whether there
    /// were none. A format that keeps none in flight has nothing to wait for.
    fn write_until(&mut self, _until: Instant) -> Result<bool, WriteError> {
        Ok(true)
    }

    /// Writes what is left, waits for the disk, and clears the incomplete mark if the dump is `complete`.
    fn finish(&mut self, complete: bool) -> Result<(), WriteError>;

    /// Ends the dump early, after an error or a limit: records the pages that were written, and leaves the incomplete
    /// mark, or restores it if [`finish`](Self::finish) failed after clearing it. Further errors only reduce the number
    /// of pages. Pages in flight to a disk may be dropped once it is `until`.
    fn abandon(&mut self, until: Option<Instant>) -> Recorded;

    /// Puts what was written on the disk, in a format that does not do so by itself from time to time.
    fn save(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    /// Bytes of disk the dump would take, were it to end after `batch`.
    fn size_with(&self, batch: PageBatch<'_>) -> u64;

    /// Returns what has to be written, were the dump to end now.
    fn finish_bound(&self) -> FinishBound;

    /// Returns what writing costs at present, where it is measured.
    fn costs(&self) -> WriteCosts;

    /// Returns whether the disk is busy although no batch is being added.
    fn is_writing(&mut self) -> bool {
        false
    }

    /// Bytes of the file.
    fn size(&self) -> u64;
}

/// What the end of a dump writes, at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FinishBound {
    /// Bytes of tables that are written, or read again to be written, and of data that cannot be dropped any more.
    pub bytes: u64,
    /// Times that the disk is synced.
    pub syncs: u64,
}

/// The pages that an incomplete dump holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// All pages but unreadable ones.
    pub pages: u64,
    /// The pages of each pass, where the format knows them.
    pub per_pass: Option<Vec<u64>>,
}

impl Recorded {
    /// Counts `pages` pages of unknown passes.
    pub fn pages(pages: u64) -> Self {
        Self { pages, per_pass: None }
    }
}
