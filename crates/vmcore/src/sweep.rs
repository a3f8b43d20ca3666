//! Reads every page once, on every CPU, and delivers them in order.

use std::convert::Infallible;
use std::iter::Enumerate;
use std::ops::{ControlFlow, Range};
use std::sync::{Mutex, PoisonError};

use pagehaul_machine::PhysAddr;
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
        if memory.mark_stored(PhysAddr::of_4k_page(self.pfns.start), &mut stored).is_err() {
            // Reading page by page finds the reason.
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
    view.copy_page(PhysAddr::of_4k_page(pfn), out)?;
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

/// Work of the pool: reads the next batch.
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
    each: impl FnMut(&Batch) -> ControlFlow<B>,
) -> Option<B> {
    let mut next = pfns.start;
    let pieces = memory.ranges().within(bytes_of(&pfns)).map(move |piece| {
        // A page that two pieces share comes once.
        let start = (piece.start >> PAGE_SHIFT).max(next);
        next = (((piece.end - 1) >> PAGE_SHIFT) + 1).min(pfns.end).max(start);
        start..next
    });
    sweep_runs(memory, pieces, threads, each)
}

/// Like [`sweep`], for `runs` of pages, ascending and disjoint.
pub(crate) fn sweep_runs<B>(
    memory: &dyn PhysMemory,
    runs: impl Iterator<Item = Range<u64>> + Send,
    threads: usize,
    mut each: impl FnMut(&Batch) -> ControlFlow<B>,
) -> Option<B> {
    let reading = Reading { memory, batches: Mutex::new(runs.flat_map(batches).enumerate()) };
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

/// Divides all memory into runs of pages, with their state if the source knows it without reading them. The work is
/// proportional to what the files hold: terabytes that are excluded, missing, or a hole of a sparse file are one run.
pub(crate) fn known_runs(
    memory: &dyn PhysMemory,
) -> impl Iterator<Item = (Range<u64>, Option<PageState>)> + '_ {
    let mut pieces = memory.ranges().pieces().iter();
    let mut here = 0..0u64;
    let mut next = 0;
    std::iter::from_fn(move || {
        loop {
            here.start = here.start.max(next << PAGE_SHIFT);
            if here.start >= here.end {
                let piece = pieces.next()?;
                here = piece.start..piece.end;
                continue;
            }
            let page = here.start >> PAGE_SHIFT;
            let (state, end) = memory.known_state(here.start);
            let end = end.clamp(here.start + 1, here.end);
            let whole = page << PAGE_SHIFT == here.start && end >> PAGE_SHIFT > page;
            next = match state {
                Some(_) if whole => end >> PAGE_SHIFT,
                // A page whose state is known only in part.
                Some(_) => page + 1,
                None => end.div_ceil(PAGE_SIZE as u64),
            };
            return Some((page..next, state.filter(|_| whole)));
        }
    })
}

fn bytes_of(pages: &Range<u64>) -> Range<u64> {
    PhysAddr::of_4k_page(pages.start).get()..PhysAddr::of_4k_page(pages.end).get()
}

/// Divides a run of pages into batches, which end on multiples of their size, wherever the first begins.
pub(crate) fn batches(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut start = run.start;
    std::iter::from_fn(move || {
        let end = ((start / BATCH as u64 + 1) * BATCH as u64).min(run.end);
        let batch = start..end;
        start = end;
        (!batch.is_empty()).then_some(batch)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pagehaul_physmem::MapPolicy;
    use pagehaul_synth::{Content, Era, Machine};

    use super::*;
    use crate::source::Source;

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

    #[test]
    fn known_runs_cover_every_page_once_and_are_right() {
        let image = Machine::new(Era::V6_12).populate(0x4000, 0x400, 3).fill(0x9f, Content::Stamp).build();
        let file = tempfile::NamedTempFile::new().unwrap();
        image.elf().write(file.path()).unwrap();
        let dump = tempfile::NamedTempFile::new().unwrap();
        image.kdump().level(31).mixed().write(dump.path()).unwrap();
        for path in [file.path(), dump.path()] {
            let source = Source::open(path, MapPolicy::default()).unwrap();
            let mut view = source.memory().view();
            let mut scratch = [0; PAGE_SIZE];
            let mut pages = Vec::new();
            let mut known = 0;
            for (run, state) in known_runs(source.memory()) {
                for pfn in run.clone().filter(|_| state.is_some()) {
                    known += 1;
                    match (view.page(PhysAddr::of_4k_page(pfn), &mut scratch), state) {
                        (Ok(page), Some(PageState::Present)) => assert_eq!(*page, [0; PAGE_SIZE], "{pfn:#x}"),
                        (Err(error), state) => assert_eq!(Some(error.state()), state, "PFN {pfn:#x}"),
                        (Ok(_), state) => panic!("PFN {pfn:#x} is {state:?}"),
                    }
                }
                pages.extend(run);
            }
            let expected = image.pfns();
            let differs = pages.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!((differs, pages.len()), (None, expected.len()), "{}", path.display());
            // The vmcore is a sparse file; the dump has no memory without pages for 16 MiB on end, or little.
            assert!(known > 0 || path == dump.path(), "{known} pages");
        }
    }
}
