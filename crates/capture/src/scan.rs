//! The scan: threads classify every struct page once; results are delivered in the order of the blocks.

use std::sync::atomic::{AtomicU64, Ordering};

use pagehaul_pool::{Ticket, Work, ordered};
use pagehaul_run::{Phase, Progress};

use crate::error::CaptureError;
use crate::selection::{BlockSelection, Selection, Selector, Tally};

/// Blocks in flight per thread.
const BUFFERS_PER_THREAD: usize = 4;

struct Scan<'a> {
    selection: &'a Selection<'a>,
    progress: &'a Progress,
    block_bytes: u64,
    blocks: u64,
    next: AtomicU64,
}

struct Block {
    index: u64,
    selection: BlockSelection,
    tally: Tally,
}

impl<'a> Work for Scan<'a> {
    type Buffer = Block;
    type Worker = Option<Selector<'a>>;
    type Error = CaptureError;

    fn next(&self, block: &mut Block) -> Option<Ticket> {
        block.index = self.next.fetch_add(1, Ordering::Relaxed);
        let more = block.index < self.blocks && !self.progress.is_cancelled();
        more.then(|| Ticket::number(block.index))
    }

    fn run(&self, selector: &mut Option<Selector<'a>>, block: &mut Block) -> Result<(), CaptureError> {
        let selector = selector.get_or_insert_with(|| self.selection.selector());
        block.tally = selector.select(block.index, &mut block.selection)?;
        self.progress.advance(Phase::Scan, self.block_bytes);
        Ok(())
    }
}

/// Scans all blocks with `threads` threads. Calls `collect` with the number of each block and its selection, in order.
pub(crate) fn scan(
    selection: &Selection<'_>,
    threads: usize,
    progress: &Progress,
    mut collect: impl FnMut(u64, &BlockSelection) -> Result<(), CaptureError>,
) -> Result<Tally, CaptureError> {
    let block_bytes = selection.page_size.bytes_of(selection.pages_per_block() as u64);
    let scan = Scan { selection, progress, block_bytes, blocks: selection.blocks(), next: AtomicU64::new(0) };
    progress.begin(Phase::Scan, scan.blocks * block_bytes);
    let block = || Block { index: 0, selection: selection.buffer(), tally: Tally::default() };
    let buffers = (0..threads.max(1) * BUFFERS_PER_THREAD).map(|_| block());
    ordered(&scan, "scan", threads, buffers, |blocks| {
        let mut total = Tally::default();
        let mut done = 0;
        while let Some(block) = blocks.recv() {
            let block = block?;
            total.add(&block.tally);
            collect(block.index, &block.selection)?;
            done += 1;
        }
        if done < scan.blocks { Err(CaptureError::Stopped) } else { Ok(total) }
    })
}
