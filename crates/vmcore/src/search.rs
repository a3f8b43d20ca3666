//! Searches all memory for some bytes, on every CPU.

use std::convert::Infallible;
use std::iter::Enumerate;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use memchr::memmem::Finder;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SIZE, PhysMemory, ReadError, View};
use pagehaul_pool::{Ticket, Work, ordered};

use crate::sweep::{batches, known_runs};

/// Where the bytes are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Physical addresses, ascending.
    pub at: Vec<u64>,
    /// Whether there were more, of which the addresses are not here.
    pub more: bool,
}

/// Searches memory for `bytes`, and returns up to `most` places. Not found are those that two pages have a part of whose contents the
/// source does not hold one behind the other. Memory that cannot be read is skipped.
pub fn search(memory: &dyn PhysMemory, bytes: &[u8], most: usize, threads: usize) -> Found {
    let unknown = known_runs(memory).filter(|(_, state)| state.is_none()).flat_map(|(run, _)| batches(run));
    let searching =
        Searching { memory, finder: Finder::new(bytes), most, runs: Mutex::new(unknown.enumerate()) };
    let threads = threads.max(1);
    let buffers = (0..4 * threads + 1).map(|_| Run::default());
    ordered(&searching, "search", threads, buffers, |results| {
        let mut found = Found::default();
        while let Some(Ok(run)) = results.recv() {
            let room = most - found.at.len();
            found.more |= run.found.more || run.found.at.len() > room;
            found.at.extend(run.found.at.iter().take(room));
            if found.at.len() == most {
                break;
            }
        }
        found
    })
}

/// Work of the pool: the next MiB of memory.
struct Searching<'a, I> {
    memory: &'a dyn PhysMemory,
    finder: Finder<'a>,
    most: usize,
    runs: Mutex<Enumerate<I>>,
}

#[derive(Default)]
struct Run {
    pfns: Range<u64>,
    found: Found,
}

impl<'a, I: Iterator<Item = Range<u64>> + Send> Work for Searching<'a, I> {
    type Buffer = Run;
    type Worker = Option<Box<dyn View + 'a>>;
    type Error = Infallible;

    fn next(&self, run: &mut Run) -> Option<Ticket> {
        let (number, pfns) = self.runs.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        run.pfns = pfns;
        Some(Ticket::number(number as u64))
    }

    fn run(&self, view: &mut Option<Box<dyn View + 'a>>, run: &mut Run) -> Result<(), Infallible> {
        let view = view.get_or_insert_with(|| self.memory.view()).as_mut();
        run.found.at.clear();
        run.found.more = false;
        let [mut at, end] = [run.pfns.start, run.pfns.end].map(|pfn| PhysAddr::of_4k_page(pfn).get());
        while at < end {
            at = match view.window(at, (end - at) as usize) {
                Ok(window) => {
                    for offset in self.finder.find_iter(window) {
                        if run.found.at.len() == self.most {
                            run.found.more = true;
                            break;
                        }
                        run.found.at.push(at + offset as u64);
                    }
                    at + window.len().max(1) as u64
                }
                Err(ReadError::NotPresent { .. } | ReadError::NotInDump { .. }) => {
                    view.end_of_hole(at).max(at + 1)
                }
                Err(_) => (at / PAGE_SIZE as u64 + 1) * PAGE_SIZE as u64,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::MapPolicy;
    use pagehaul_synth::{Era, Machine};

    use super::*;
    use crate::source::Source;

    #[test]
    fn all_places_are_found_in_order_up_to_the_limit() {
        let image = Machine::new(Era::V6_12).populate(0x4000, 0x400, 3).build();
        let (file, dump) = (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
        image.elf().write(file.path()).unwrap();
        image.kdump().level(0).write(dump.path()).unwrap();
        // Bytes of the image as it is built, so that there is something to find.
        let wanted: Vec<u8> = image.page(0x4000)[..16].to_vec();
        let places = |pfn: u64| {
            let page = image.page(pfn);
            let found = memchr::memmem::find_iter(&page, &wanted);
            found.map(|at| pfn * PAGE_SIZE as u64 + at as u64).collect::<Vec<_>>()
        };
        for (path, pfns) in [(file.path(), image.pfns()), (dump.path(), image.kdump().level(0).pfns())] {
            let expected: Vec<u64> = pfns.into_iter().flat_map(places).collect();
            assert!(expected.len() > 1);
            let source = Source::open(path, MapPolicy::default()).unwrap();
            for threads in [1, 3] {
                let found = search(source.memory(), &wanted, 1 << 20, threads);
                assert_eq!(found, Found { at: expected.clone(), more: false }, "{}", path.display());
            }
            let first = search(source.memory(), &wanted, 1, 2);
            assert_eq!(first.at, expected[..1]);
        }
    }
}
