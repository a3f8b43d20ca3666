//! Times reading a dump, as `bench/peer/kdumpfile.c` does through libkdumpfile.
//!
//! ```sh
//! reading open  DUMP COUNT            # seconds to open, once per line
//! reading read  DUMP THREADS PFNS     # the pages listed in PFNS (64-bit words), in that order, each thread a share
//! reading sweep DUMP THREADS FROM TO  # all pages from PFN FROM up to TO, in order
//! ```
//!
//! `read` and `sweep` print seconds, how many pages were read, and the XOR of the pages' first words, rotated by their
//! place; with several threads, the XOR of what each found.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;
use std::time::Instant;

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE, PageState};
use pagehaul_vmcore::Source;
use pagehaul_vmcore::sweep::sweep;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["open", dump, count] => {
            for _ in 0..count.parse()? {
                let start = Instant::now();
                let source = open(dump)?;
                println!("{:.6}", start.elapsed().as_secs_f64());
                drop(source);
            }
        }
        ["read", dump, threads, pfns] => {
            let pfns = std::fs::read(pfns)?;
            let pfns: Vec<u64> = pfns.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            report(&open(dump)?, |source| read(source, threads.parse()?, &pfns))?;
        }
        ["sweep", dump, threads, from, to] => {
            let (threads, from, to) = (threads.parse()?, from.parse()?, to.parse()?);
            report(&open(dump)?, |source| {
                let mut seen = Seen::default();
                let none: Option<()> = sweep(source.memory(), from..to, threads, |batch| {
                    let present = batch.pages().filter(|(_, state, _)| *state == PageState::Present);
                    present.for_each(|(_, _, page)| seen.add(page));
                    ControlFlow::Continue(())
                });
                assert!(none.is_none());
                Ok(seen)
            })?;
        }
        _ => return Err("open DUMP COUNT, read DUMP THREADS PFNS, or sweep DUMP THREADS FROM TO".into()),
    }
    Ok(())
}

fn open(dump: &str) -> Result<Source, Box<dyn Error>> {
    Ok(Source::open(Path::new(dump), MapPolicy::default())?)
}

/// What was read, and a sum of it.
#[derive(Default)]
struct Seen {
    pages: u64,
    sum: u64,
}

impl Seen {
    fn add(&mut self, page: &[u8]) {
        let word = page.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        self.sum = self.sum.rotate_left(1) ^ word;
        self.pages += 1;
    }
}

fn report(
    source: &Source,
    run: impl FnOnce(&Source) -> Result<Seen, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let seen = run(source)?;
    println!("{:.6} {} {:016x}", start.elapsed().as_secs_f64(), seen.pages, seen.sum);
    Ok(())
}

fn read(source: &Source, threads: usize, pfns: &[u64]) -> Result<Seen, Box<dyn Error>> {
    let share = |pfns: &[u64]| {
        let mut view = source.memory().view();
        let mut scratch = [0; PAGE_SIZE];
        let mut seen = Seen::default();
        for pfn in pfns {
            if let Ok(page) = view.page(PhysAddr::of_4k_page(*pfn), &mut scratch) {
                seen.add(page);
            }
        }
        seen
    };
    let mut all = Seen::default();
    thread::scope(|scope| {
        let shares = pfns.chunks(pfns.len().div_ceil(threads).max(1));
        let running: Vec<_> = shares.map(|pfns| scope.spawn(|| share(pfns))).collect();
        for thread in running {
            let seen = thread.join().map_err(|_| "a thread ended badly")?;
            all.pages += seen.pages;
            all.sum ^= seen.sum;
        }
        Ok(all)
    })
}
