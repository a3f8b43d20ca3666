//! Reads every page once, on every CPU, and delivers them in order.

use std::convert::Infallible;
use std::iter::Enumerate;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PageBuf, PageState, PhysMemory, ReadError, View, bits};
use pagehaul_pool::{Ticket, Work, ordered};

/// Pages of a batch: 1 MiB.
pub const BATCH: usize = 256;

/// Consecutive pages, with their states.
pub struct Batch {
    pfns: Range<u64>,
    bytes: Vec<u8>,
    /// Which pages of `bytes` are known to be zeros. Most pages of a dump are excluded, and zeroing them would take longer
    /// than everything else about them.
    zeros: [bool; BATCH],
    states: Vec<PageState>,
    /// Pages that should be there but could not be read, by PFN, and why.
    pub failures: Vec<(u64, ReadError)>,
}

impl Batch {
    fn new() -> Self {
        Self {
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

    /// Iterates over the pages: PFN, state, and contents, which are zeros for pages without any.
    pub fn pages(&self) -> impl Iterator<Item = (u64, PageState, &[u8])> {
        self.pfns
            .clone()
            .zip(&self.states)
            .zip(self.bytes.chunks_exact(PAGE_SIZE))
            .map(|((pfn, state), bytes)| (pfn, *state, bytes))
    }

    /// The contents of all pages.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.states.len() * PAGE_SIZE]
    }

    fn fill(&mut self, memory: &dyn PhysMemory, view: &mut dyn View) {
        self.states.clear();
        self.failures.clear();
        let mut stored = [0; BATCH / 64];
        if memory.mark_stored(self.pfns.start, &mut stored).is_err() {
            // Reading each page gives the reason.
            stored.fill(!0);
        }
        let pages = self.bytes.as_chunks_mut().0.iter_mut().zip(&mut self.zeros);
        for (at, (pfn, (out, zeros))) in self.pfns.clone().zip(pages).enumerate() {
            let state = if bits::get(&stored, at) { None } else { excluded(view, pfn) };
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
    if view.take_fault() {
        let reason = "the file failed while it was read".into();
        return Err(ReadError::Damaged { paddr: pfn << PAGE_SHIFT, reason });
    }
    Ok(())
}

/// Returns the state of an excluded page, `None` for others.
fn excluded(view: &mut dyn View, pfn: u64) -> Option<PageState> {
    let state = view.window(pfn << PAGE_SHIFT, 1).err()?.state();
    (state == PageState::Excluded).then_some(state)
}

/// What workers do: read the next batch.
struct Reading<'a, I> {
    memory: &'a dyn PhysMemory,
    /// The pages of the batches, numbered.
    batches: Mutex<Enumerate<I>>,
}

impl<'a, I: Iterator<Item = Range<u64>> + Send> Work for Reading<'a, I> {
    type Buffer = Batch;
    type Worker = Option<Box<dyn View + 'a>>;
    type Error = Infallible;

    fn next(&self, batch: &mut Batch) -> Option<Ticket> {
        let (number, pfns) = self.batches.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        batch.pfns = pfns;
        Some(Ticket::number(number as u64))
    }

    fn run(&self, view: &mut Option<Box<dyn View + 'a>>, batch: &mut Batch) -> Result<(), Infallible> {
        batch.fill(self.memory, view.get_or_insert_with(|| self.memory.view()).as_mut());
        Ok(())
    }
}

/// Reads the pages of `pfns` that are memory with `threads` threads, and passes them to `each` in ascending order, until
/// it breaks. Takes 2 MiB of memory per thread.
pub fn sweep<B>(
    memory: &dyn PhysMemory,
    pfns: Range<u64>,
    threads: usize,
    mut each: impl FnMut(&Batch) -> ControlFlow<B>,
) -> Option<B> {
    let reading = Reading { memory, batches: Mutex::new(batches(memory, pfns).enumerate()) };
    let buffers = (0..2 * threads.max(1) + 1).map(|_| Batch::new());
    ordered(&reading, "read", threads.max(1), buffers, |results| {
        while let Some(Ok(batch)) = results.recv() {
            if let ControlFlow::Break(value) = each(batch) {
                return Some(value);
            }
        }
        None
    })
}

/// Divides the memory among `pfns` into batches. A page that two ranges share comes once.
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
        // Batches end on multiples of their size, wherever the first begins.
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
