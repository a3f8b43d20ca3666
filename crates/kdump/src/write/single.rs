//! A dump in one file. Pages may come in any order; the table of descriptors is in PFN order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pagehaul_output::{
    DumpWriter, FinishBound, Output, OutputError, OutputFile, PageBatch, Recorded, StoredBitmap, WriteBehind,
    WriteCosts, WriteError,
};

use super::rank::RankIndex;
use super::table::DescriptorTable;
use super::{MAX_PENDING, StartError, descriptor};
use crate::format::{Header, Layout, PageDesc, STATUS_OFFSET};

/// Bytes per write of page data.
const DATA_CHUNK: usize = 2 << 20;

/// Data between two writes of descriptors, each of which waits for the disk: what a killed capture or a power cut loses at most,
/// and 2 MiB for each chunk on its way.
const SAVED_BYTES: u64 = 32 << 20;
/// Syncs at the end of a dump that ended early: of the table, the new tables, the header that points to them, and all.
const SYNCS_AT_END: u64 = 4;
/// Time between two writes of descriptors.
const SAVED_TIME: Duration = Duration::from_secs(1);

/// Descriptors that may be written once the data up to `data_end` is.
struct Pending {
    data_end: u64,
    /// Rank and descriptor.
    descriptors: Vec<(u64, PageDesc)>,
    /// How often the table changes segments for them. Ranks ascend within a pass only, and a batch may end one pass and begin
    /// the next.
    segments: u64,
}

/// Writes the pages of a dump in one file, after its header and bitmaps.
pub struct SingleFileWriter<'a> {
    pub(super) output: &'a mut OutputFile,
    header: &'a Header<'a>,
    /// The header as it is written to a disk, where it comes after the table is zeroed.
    late_header: Option<Vec<u8>>,
    pub(super) layout: Layout,
    pub(super) bitmap2: StoredBitmap,
    /// Bitmaps that divide bitmap 2, for counting what an incomplete dump holds of each.
    pub(super) passes: Vec<StoredBitmap>,
    ranks: RankIndex,
    pub(super) table: DescriptorTable,
    data: WriteBehind,
    pending: VecDeque<Pending>,
    /// Descriptors in `pending`.
    pending_descriptors: usize,
    /// The segment of the last descriptor that was added.
    segment: u64,
    pages: u64,
    pub(super) zero_page: u64,
    /// End of the data whose descriptors are in the file.
    saved_end: u64,
    /// When descriptors were written the last time.
    saved: Instant,
    /// End of the file once its tables were moved behind the data.
    pub(super) relocated_end: Option<u64>,
}

impl<'a> SingleFileWriter<'a> {
    /// Starts after the bitmaps. `pages` pages are set in `bitmap2`, bitmap 2 of the file, and in one of `passes` each.
    pub fn new(
        output: &'a mut OutputFile,
        header: &'a Header<'a>,
        layout: Layout,
        bitmap2: StoredBitmap,
        passes: Vec<StoredBitmap>,
        pages: u64,
    ) -> Result<Self, StartError> {
        let zero_page = layout.zero_page_offset(pages)?;
        let late_header = if output.is_sparse() { None } else { Some(header.encode(&layout, true)?) };
        let failed = |action| {
            let path = output.path().to_owned();
            move |source| OutputError::Io { path, action, source }
        };
        let data = WriteBehind::new(output.clone(), zero_page, DATA_CHUNK);
        let ranks =
            RankIndex::new(bitmap2.clone(), layout.max_mapnr()).map_err(failed("read back the bitmap of"))?;
        Ok(Self {
            ranks,
            table: DescriptorTable::new(layout, pages),
            data,
            pending: VecDeque::new(),
            pending_descriptors: 0,
            segment: 0,
            pages: 0,
            relocated_end: None,
            output,
            header,
            late_header,
            layout,
            bitmap2,
            passes,
            zero_page,
            saved_end: zero_page,
            saved: Instant::now(),
        })
    }

    /// Writes the descriptors whose pages' data is in the file.
    fn write_pending(&mut self) -> Result<(), WriteError> {
        let flushed = self.data.flushed();
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.data_end <= flushed) {
            self.pending_descriptors -= pending.descriptors.len();
            for (rank, descriptor) in &pending.descriptors {
                self.table.set(*rank, descriptor, self.output)?;
            }
        }
        Ok(())
    }

    /// Writes gathered descriptors from time to time: this program may be killed, and the machine may lose power.
    fn save(&mut self) -> Result<(), WriteError> {
        let is_time = self.saved.elapsed() >= SAVED_TIME;
        if is_time || self.data.flushed() - self.saved_end >= SAVED_BYTES {
            self.table.flush(self.output)?;
            self.saved = Instant::now();
            self.saved_end = self.data.flushed();
        }
        Ok(())
    }

    /// File offset of the end of the page data that is in the file.
    pub(super) fn data_end(&self) -> u64 {
        self.data.flushed()
    }

    /// Pages that were added.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }
}

impl DumpWriter for SingleFileWriter<'_> {
    // Reserves the table, so that a disk that fills up later has room for the descriptors of the pages it holds.
    fn begin(&mut self) -> Result<(), WriteError> {
        let table = self.layout.descriptors_offset();
        self.output.reserve(table, self.zero_page - table)?;
        if let Some(header) = self.late_header.take() {
            self.output.sync()?;
            self.output.write(0, &header)?;
            self.output.sync()?;
        }
        self.data.push(&vec![0; self.layout.page_size().bytes()])
    }

    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError> {
        let base = self.data.end();
        let mut descriptors = Vec::with_capacity(batch.len());
        let mut segments = 0;
        for (&pfn, (page, range)) in batch.pfns.iter().zip(batch.stored()) {
            let rank = self.ranks.rank(pfn.number())?;
            let segment = DescriptorTable::segment_of(rank);
            segments += u64::from(segment != self.segment);
            self.segment = segment;
            descriptors
                .push((rank, descriptor(page, batch.page_size, base + range.start as u64, self.zero_page)));
        }
        self.data.push(batch.data)?;
        self.pages += descriptors.len() as u64;
        self.pending_descriptors += descriptors.len();
        self.pending.push_back(Pending { data_end: self.data.end(), descriptors, segments });
        if self.pending_descriptors > MAX_PENDING {
            self.data.flush()?;
        }
        self.write_pending()?;
        self.save()
    }

    fn write_until(&mut self, until: Instant) -> Result<bool, WriteError> {
        self.data.flush_until(until)
    }

    fn finish(&mut self, complete: bool) -> Result<(), WriteError> {
        self.data.flush()?;
        self.write_pending()?;
        self.table.flush(self.output)?;
        self.output.sync()?;
        self.output.write(STATUS_OFFSET, &self.header.status(!complete))?;
        self.output.sync()
    }

    fn abandon(&mut self, until: Option<Instant>) -> Recorded {
        let _ = self.output.write(STATUS_OFFSET, &self.header.status(true));
        let _ = match until {
            Some(until) => self.data.flush_until(until).map(drop),
            None => self.data.flush(),
        };
        let _ = self.write_pending();
        let _ = self.table.flush(self.output);
        let recorded = self.relocate_tables();
        let _ = self.output.sync();
        recorded
    }

    fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        let pages = self.pages + batch.len() as u64;
        // The first tables become a hole.
        let freed = if self.output.is_regular() { self.zero_page - self.layout.bitmap1_offset() } else { 0 };
        self.data.end() + batch.data.len() as u64 + self.relocated_table_bytes(pages) - freed
    }

    fn finish_bound(&self) -> FinishBound {
        let in_progress = (self.data.end() - self.data.flushed()).min(DATA_CHUNK as u64);
        // Pages are counted by priority from the bitmaps of all passes.
        let counted = self.passes.len() as u64 * self.layout.bitmap_len();
        // Each segment of the table that is left is synced and written, and the new tables are synced four times in all.
        let segments: u64 = self.pending.iter().map(|pending| pending.segments).sum();
        FinishBound {
            bytes: self.relocated_table_bytes(self.pages) + counted + in_progress,
            syncs: segments + SYNCS_AT_END,
        }
    }

    fn costs(&self) -> WriteCosts {
        self.output.costs()
    }

    fn is_writing(&mut self) -> bool {
        self.data.is_busy()
    }

    fn size(&self) -> u64 {
        self.relocated_end.unwrap_or_else(|| self.data.end())
    }
}
