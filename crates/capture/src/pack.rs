//! Packing: reading and compressing a batch of pages.

use std::ops::Range;

use pagehaul_codec::{Compressor, is_zero};
use pagehaul_machine::{PageCount, PageSize, Pfn, PhysAddr};
use pagehaul_output::{PageBatch, StoredPage};
use pagehaul_physmem::{PageState, PhysMemory, View};

use crate::adaptive::AdaptiveLevel;
use crate::batch::batch_pages;
use crate::error::CaptureError;

/// Bytes requested from the source at once: pages that are read rather than mapped are still in the CPU cache when they are
/// packed.
const RUN_BYTES: usize = 128 << 10;

/// A batch of pages, with reused memory for their stored bytes.
pub(crate) struct Batch {
    page_size: PageSize,
    pub(crate) sequence: u64,
    pub(crate) pfns: Vec<Pfn>,
    pub(crate) stored: Vec<StoredPage>,
    data: Vec<u8>,
    used: usize,
    /// The first unreadable page, and why.
    pub(crate) failure: Option<(Pfn, String)>,
    /// Why its pages could not be determined.
    pub(crate) error: Option<CaptureError>,
}

impl Batch {
    pub(crate) fn new(page_size: PageSize) -> Self {
        let pages = batch_pages(page_size);
        Self {
            page_size,
            sequence: 0,
            pfns: Vec::with_capacity(pages),
            stored: Vec::with_capacity(pages),
            data: vec![0; pages * page_size.bytes()],
            used: 0,
            failure: None,
            error: None,
        }
    }

    /// The packed pages.
    pub(crate) fn pages(&self) -> PageBatch<'_> {
        let (pfns, pages, data) = (&self.pfns, &self.stored, &self.data[..self.used]);
        PageBatch { page_size: self.page_size, pfns, pages, data }
    }

    /// Bytes of memory of the packed pages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.page_size.bytes_of(self.stored.len() as u64)
    }

    /// Appends a page, whose bytes are at the end of the data.
    fn push(&mut self, stored: StoredPage) {
        self.used += stored.stored_bytes(self.page_size);
        self.stored.push(stored);
    }
}

/// The state of one packing thread.
pub(crate) struct Packer<'a> {
    memory: &'a dyn PhysMemory,
    page_size: PageSize,
    view: Box<dyn View + 'a>,
    /// Pages whose state the source knows without reading them, and that state; `None` if they have to be read.
    known: (Range<Pfn>, Option<PageState>),
    level: &'a AdaptiveLevel,
    /// One per method of the ladder. A context allocates its memory when it is first used.
    compressors: Vec<Compressor>,
    scratch: Vec<u8>,
}

impl<'a> Packer<'a> {
    /// Returns the packer of a thread, creating it the first time.
    pub(crate) fn get_or_insert<'p>(
        packer: &'p mut Option<Self>,
        (memory, page_size): (&'a dyn PhysMemory, PageSize),
        level: &'a AdaptiveLevel,
    ) -> Result<&'p mut Self, CaptureError> {
        Ok(match packer {
            Some(packer) => packer,
            None => packer.insert(Self::new(memory, page_size, level)?),
        })
    }

    pub(crate) fn new(
        memory: &'a dyn PhysMemory,
        page_size: PageSize,
        level: &'a AdaptiveLevel,
    ) -> Result<Self, CaptureError> {
        Ok(Self {
            memory,
            page_size,
            view: memory.view(),
            known: (Pfn::default()..Pfn::default(), None),
            level,
            compressors: level
                .ladder()
                .iter()
                .map(|&method| Compressor::new(method))
                .collect::<Result<_, _>>()?,
            scratch: vec![0; page_size.bytes()],
        })
    }

    /// Packs the pages whose PFNs are in `batch`.
    pub(crate) fn pack(&mut self, batch: &mut Batch) {
        batch.used = 0;
        batch.stored.clear();
        batch.failure = None;
        let rung = self.level.rung(batch.sequence);
        while let Some(&pfn) = batch.pfns.get(batch.stored.len()) {
            let before = batch.stored.len();
            if let Some(state) = self.known_state(pfn) {
                self.store_known(pfn, state, rung, batch);
                continue;
            }
            let run = run_length(&batch.pfns[before..], RUN_BYTES >> self.page_size.shift());
            let regions = self.level.regions();
            let rung = if regions.is_some_and(|regions| regions.resists(pfn)) { 0 } else { rung };
            if !self.pack_run(pfn, run, rung, batch) {
                for page in 0..run as u64 {
                    self.pack_page(pfn + PageCount::new(page), rung, batch);
                }
            }
            if let Some(regions) = regions {
                let stored = &batch.stored[before..];
                let raw = stored.iter().filter(|&&stored| stored == StoredPage::Raw).count();
                regions.saw(pfn, stored.len(), raw);
            }
        }
    }

    /// Returns the state of a page if the source knows it without reading the page.
    fn known_state(&mut self, pfn: Pfn) -> Option<PageState> {
        if !self.known.0.contains(&pfn) {
            let (state, end) = self.memory.known_state(pfn.start(self.page_size).get());
            let (end, next) = (PhysAddr::new(end), pfn + PageCount::new(1));
            // Of the last page, only a part may be in that state.
            self.known = match state {
                Some(_) if end.pfn(self.page_size) > pfn => (pfn..end.pfn(self.page_size), state),
                Some(_) => (pfn..next, None),
                None => (pfn..end.next_pfn(self.page_size).max(next), None),
            };
        }
        self.known.1
    }

    /// Stores the pages of the batch from `pfn` that are in a known state: terabytes of holes cost no reading.
    fn store_known(&mut self, pfn: Pfn, state: PageState, rung: usize, batch: &mut Batch) {
        let left = batch.pfns.iter().skip(batch.stored.len());
        let known = batch.stored.len() + left.take_while(|pfn| self.known.0.contains(pfn)).count();
        let stored = if state == PageState::Present { StoredPage::Zero } else { StoredPage::Unreadable };
        if stored == StoredPage::Unreadable && batch.failure.is_none() {
            // For the reason.
            self.pack_page(pfn, rung, batch);
        }
        batch.stored.resize(known, stored);
    }

    /// Packs the `run` pages from `pfn`, as many as one window holds whole. Returns false, with nothing packed, if it holds
    /// none or a byte could not be read.
    fn pack_run(&mut self, pfn: Pfn, run: usize, rung: usize, batch: &mut Batch) -> bool {
        let (stored_before, used_before) = (batch.stored.len(), batch.used);
        let (start, bytes) = (pfn.start(self.page_size).get(), self.page_size.bytes());
        let Ok(window) = self.view.window(start, run * bytes) else { return false };
        let pages = window.chunks_exact(bytes);
        let packed = pages.len() > 0;
        for page in pages {
            let stored = store(&mut self.compressors[rung], page, &mut batch.data[batch.used..]);
            batch.push(stored);
        }
        if self.view.take_fault() {
            batch.stored.truncate(stored_before);
            batch.used = used_before;
            return false;
        }
        packed
    }

    /// Packs a single page, which may span windows or follow an unreadable one.
    fn pack_page(&mut self, pfn: Pfn, rung: usize, batch: &mut Batch) {
        let stored = match self.view.block(pfn.start(self.page_size).get(), &mut self.scratch) {
            Ok(page) => store(&mut self.compressors[rung], page, &mut batch.data[batch.used..]),
            Err(error) => {
                batch.failure.get_or_insert_with(|| (pfn, error.to_string()));
                StoredPage::Unreadable
            }
        };
        let stored = if self.view.take_fault() {
            let reason =
                "its bytes could not be read from the mapped source (I/O error, or the file was truncated)";
            batch.failure.get_or_insert_with(|| (pfn, reason.into()));
            StoredPage::Unreadable
        } else {
            stored
        };
        batch.push(stored);
    }
}

/// Returns how many of `pfns` are consecutive from the first, at most `most`.
fn run_length(pfns: &[Pfn], most: usize) -> usize {
    let first = pfns.first().copied().unwrap_or_default().number();
    pfns.iter().take(most).zip(first..).take_while(|(pfn, next)| pfn.number() == *next).count()
}

fn store(compressor: &mut Compressor, page: &[u8], out: &mut [u8]) -> StoredPage {
    if is_zero(page) {
        return StoredPage::Zero;
    }
    let out = &mut out[..page.len()];
    match compressor.compress(page, out) {
        Some(size) => StoredPage::Compressed(compressor.method(), size as u16),
        None => {
            out.copy_from_slice(page);
            StoredPage::Raw
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    use pagehaul_codec::Decompressor;
    use pagehaul_physmem::{MapPolicy, PAGE_SIZE};
    use pagehaul_synth::{Era, Machine};
    use pagehaul_vmcore::Source;

    #[test]
    fn batches_between_two_rungs_are_of_either_codec() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmcore");
        let mut machine = Machine::new(Era::V6_12);
        machine.populate(0x5000, 0x1000, 7);
        let image = machine.build();
        image.elf().write(&path).unwrap();
        let source = Source::open(&path, MapPolicy::default()).unwrap();
        let level = AdaptiveLevel::new(vec!["lzo".parse().unwrap(), "zstd:1".parse().unwrap()]);
        level.stand_at(0.5);
        let mut packer = Packer::new(source.memory(), PageSize::KIB_4, &level).unwrap();
        let mut batch = Batch::new(PageSize::KIB_4);
        let (mut decompressor, mut page) = (Decompressor::new(), [0; PAGE_SIZE]);
        const PAGES: u64 = 256;
        let mut methods = HashSet::new();
        for sequence in 0..16 {
            batch.sequence = sequence;
            let first = 0x5000 + sequence * PAGES;
            batch.pfns = (first..first + PAGES).map(Pfn::new).collect();
            packer.pack(&mut batch);
            let pages = batch.pages();
            for (pfn, (stored, place)) in pages.pfns.iter().zip(pages.stored()) {
                if let StoredPage::Compressed(method, _) = stored {
                    decompressor.decompress(method.codec(), &pages.data[place], &mut page).unwrap();
                    assert!(page[..] == image.page(pfn.number()), "PFN {pfn:#x}");
                    methods.insert(method);
                }
            }
        }
        assert_eq!(methods.len(), 2);
    }
}
