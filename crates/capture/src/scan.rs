//! The scan: every struct page is looked at once, in parallel, and the result handed on in the order of the blocks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_channel::bounded;
use pagehaul_physmem::PAGE_SHIFT;
use pagehaul_run::{Phase, Progress};

use crate::CaptureError;
use crate::select::{Chosen, Selection, Tally};

/// Blocks a worker may be ahead of the collector.
const AHEAD: usize = 4;

struct Scanned {
    index: u64,
    chosen: Chosen,
    tally: Tally,
}

/// Scans all blocks with `threads` threads and gives what each block's pages came to to `collect`, in order.
pub(crate) fn scan<E: From<CaptureError>>(
    selection: &Selection<'_>,
    threads: usize,
    progress: &Progress,
    mut collect: impl FnMut(u64, &Chosen) -> Result<(), E>,
) -> Result<Tally, E> {
    let blocks = selection.blocks();
    let block_bytes = (selection.pages_per_block() as u64) << PAGE_SHIFT;
    let next = AtomicU64::new(0);
    let (done_tx, done_rx) = bounded::<Result<Scanned, CaptureError>>(threads * AHEAD);
    let (free_tx, free_rx) = bounded::<Chosen>(threads * AHEAD);
    for _ in 0..threads * AHEAD {
        // The channel has room for exactly these.
        let _ = free_tx.send(selection.buffer());
    }
    thread::scope(|scope| {
        for _ in 0..threads {
            let (done_tx, free_rx, next) = (done_tx.clone(), free_rx.clone(), &next);
            scope.spawn(move || {
                let mut selector = selection.selector();
                // A buffer first, the number after it: so the lowest number outstanding always has its buffer.
                while let Ok(mut chosen) = free_rx.recv() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= blocks || progress.is_cancelled() {
                        return;
                    }
                    let result = selector.select(index, &mut chosen);
                    progress.advance(Phase::Scan, block_bytes);
                    if done_tx.send(result.map(|tally| Scanned { index, chosen, tally })).is_err() {
                        return;
                    }
                }
            });
        }
        drop((done_tx, free_rx));
        let free_tx = free_tx;
        let mut total = Tally::default();
        let mut waiting = BTreeMap::new();
        let mut expected = 0;
        while let Ok(scanned) = done_rx.recv() {
            let scanned = scanned?;
            waiting.insert(scanned.index, scanned);
            while let Some(scanned) = waiting.remove(&expected) {
                total.add(&scanned.tally);
                collect(expected, &scanned.chosen)?;
                expected += 1;
                // Fails only when every worker is gone.
                let _ = free_tx.send(scanned.chosen);
            }
        }
        if expected < blocks {
            return Err(CaptureError::Stopped.into());
        }
        Ok(total)
    })
}
