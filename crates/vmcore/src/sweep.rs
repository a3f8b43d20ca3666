//! Every page once, decompressed on every CPU, handed on in order.

use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crossbeam_channel::bounded;
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PageBuf, PageState, PhysMemory, ReadError, View, bits};

/// Pages of a batch: 1 MiB.
pub const BATCH: usize = 256;

/// Pages that follow each other, whatever became of them.
pub struct Batch {
    sequence: u64,
    pfns: Range<u64>,
    bytes: Vec<u8>,
    /// Which pages of `bytes` are zeros for sure. Most of a dump's pages are left out, and filling them takes longer than
    /// all else about them.
    zeros: [bool; BATCH],
    states: Vec<PageState>,
    /// Why pages could not be read that should be there, by PFN.
    pub failures: Vec<(u64, ReadError)>,
}

impl Batch {
    fn new() -> Self {
        Self {
            sequence: 0,
            pfns: 0..0,
            bytes: vec![0; BATCH * PAGE_SIZE],
            zeros: [true; BATCH],
            states: Vec::with_capacity(BATCH),
            failures: Vec::new(),
        }
    }

    /// The pages of the batch, of 4 KiB each.
    pub fn pfns(&self) -> Range<u64> {
        self.pfns.clone()
    }

    /// Each page with its state, and its contents where it has any: zeros where it hasn't.
    pub fn pages(&self) -> impl Iterator<Item = (u64, PageState, &[u8])> {
        self.pfns
            .clone()
            .zip(&self.states)
            .zip(self.bytes.chunks_exact(PAGE_SIZE))
            .map(|((pfn, state), bytes)| (pfn, *state, bytes))
    }

    /// The contents of all pages, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.states.len() * PAGE_SIZE]
    }

    fn fill(&mut self, memory: &dyn PhysMemory, view: &mut dyn View) {
        self.states.clear();
        self.failures.clear();
        let mut stored = [0; BATCH / 64];
        if memory.mark_stored(self.pfns.start, &mut stored).is_err() {
            // Each page says why.
            stored.fill(!0);
        }
        let pages = self.bytes.as_chunks_mut().0.iter_mut().zip(&mut self.zeros);
        for (at, (pfn, (out, zeros))) in self.pfns.clone().zip(pages).enumerate() {
            let state = if bits::get(&stored, at) { None } else { left_out(view, pfn) };
            let state = state.unwrap_or_else(|| {
                *zeros = false;
                match read(view, pfn, out) {
                    Ok(()) => PageState::Present,
                    Err(error) => {
                        let state = error.state();
                        if matches!(state, PageState::Missing | PageState::Damaged) {
                            self.failures.push((pfn, error));
                        }
                        state
                    }
                }
            });
            if state != PageState::Present && !*zeros {
                out.fill(0);
                *zeros = true;
            }
            self.states.push(state);
        }
    }
}

fn read(view: &mut dyn View, pfn: u64, out: &mut PageBuf) -> Result<(), ReadError> {
    view.copy_page(pfn, out)?;
    if view.intact() {
        Ok(())
    } else {
        let reason = "the file failed while it was read".into();
        Err(ReadError::Damaged { paddr: pfn << PAGE_SHIFT, reason })
    }
}

/// The state of a page that was left out on purpose; none if it was not.
fn left_out(view: &mut dyn View, pfn: u64) -> Option<PageState> {
    let state = view.window(pfn << PAGE_SHIFT, 1).err()?.state();
    (state == PageState::Excluded).then_some(state)
}

/// Reads the pages of `pfns` that are memory with `threads` threads, and gives them to `each` in ascending order, until
/// it says to stop. Takes 2 MiB of memory per thread.
pub fn sweep<B>(
    memory: &dyn PhysMemory,
    pfns: Range<u64>,
    threads: usize,
    mut each: impl FnMut(&Batch) -> ControlFlow<B>,
) -> Option<B> {
    let threads = threads.max(1);
    let work = Mutex::new(batches(memory, pfns).enumerate());
    let buffers = 2 * threads + 1;
    let (free_tx, free_rx) = bounded::<Batch>(buffers);
    let (done_tx, done_rx) = bounded::<Batch>(buffers);
    for _ in 0..buffers {
        // There is room for exactly these.
        let _ = free_tx.send(Batch::new());
    }
    thread::scope(|scope| {
        for _ in 0..threads {
            let (free, done, work) = (free_rx.clone(), done_tx.clone(), &work);
            scope.spawn(move || {
                let mut view = memory.view();
                // A buffer first, the batch after it: so the lowest batch outstanding always has its buffer.
                while let Ok(mut batch) = free.recv() {
                    let next = work.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((sequence, pfns)) = next else { return };
                    batch.sequence = sequence as u64;
                    batch.pfns = pfns;
                    batch.fill(memory, view.as_mut());
                    if done.send(batch).is_err() {
                        return;
                    }
                }
            });
        }
        drop((free_rx, done_tx));
        // Moved in, so that they are gone on every way out and no thread waits for them.
        let (free_tx, done_rx) = (free_tx, done_rx);
        let mut waiting = BTreeMap::new();
        let mut expected = 0;
        while let Ok(batch) = done_rx.recv() {
            waiting.insert(batch.sequence, batch);
            while let Some(batch) = waiting.remove(&expected) {
                if let ControlFlow::Break(value) = each(&batch) {
                    return Some(value);
                }
                expected += 1;
                // Fails only when every thread is gone.
                let _ = free_tx.send(batch);
            }
        }
        None
    })
}

/// The memory among `pfns`, in batches. A page that two ranges share comes once.
fn batches(memory: &dyn PhysMemory, pfns: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
    let mut next = pfns.start;
    let bytes = pfns.start.saturating_mul(1 << PAGE_SHIFT)..pfns.end.saturating_mul(1 << PAGE_SHIFT);
    let mut pieces = memory.ranges().within(bytes);
    let mut here = 0..0u64;
    std::iter::from_fn(move || {
        while here.is_empty() {
            let piece = pieces.next()?;
            let start = (piece.start >> PAGE_SHIFT).max(next);
            here = start..(((piece.end - 1) >> PAGE_SHIFT) + 1).min(pfns.end).max(start);
        }
        // Batches end on round numbers, so that they do not depend on where the first begins.
        let end = ((here.start / BATCH as u64 + 1) * BATCH as u64).min(here.end);
        let batch = here.start..end;
        here.start = end;
        next = end;
        Some(batch)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pagehaul_physmem::MapPolicy;
    use pagehaul_synth::{Content, Era, Machine};

    use super::*;
    use crate::Source;

    #[test]
    fn every_page_comes_once_and_in_order() {
        let image = Machine::new(Era::V6_12).populate(0x4000, 0x400, 3).fill(0x9f, Content::Stamp).build();
        let file = tempfile::NamedTempFile::new().unwrap();
        image.kdump().level(31).mixed().write(file.path()).unwrap();
        let source = Source::open(file.path(), MapPolicy::default()).unwrap();
        let kept = image.expected(31);
        for threads in [1, 3] {
            let mut states = BTreeMap::new();
            let mut last = None;
            let none: Option<()> = sweep(source.memory(), 0..u64::MAX, threads, |batch| {
                for (pfn, state, bytes) in batch.pages() {
                    assert!(last.replace(pfn) < Some(pfn), "PFN {pfn:#x} after {last:?}");
                    let expected = if kept.contains(&pfn) { image.page(pfn) } else { [0; PAGE_SIZE] };
                    assert!(bytes == expected, "PFN {pfn:#x}");
                    *states.entry(state).or_insert(0u64) += 1;
                }
                ControlFlow::Continue(())
            });
            assert_eq!(none, None);
            let (present, all) = (kept.len() as u64, image.pfns().len() as u64);
            assert_eq!(states[&PageState::Present], present);
            assert_eq!(states[&PageState::Excluded], all - present);
            let stopped =
                sweep(source.memory(), 0x4000..0x4100, threads, |batch| ControlFlow::Break(batch.pfns()));
            assert_eq!(stopped, Some(0x4000..0x4100));
        }
    }
}
