//! What counting pages costs, by how it is done: one shared atomic for each page, or sums of one's own, published once a block
//! of pages, which is how the scan counts. `cargo run --release -p pagehaul-kernel --example counters [THREADS…]`
//!
//! The lesson is that of purge_vmap_node, which subtracted from one shared atomic for each of 600,000 areas: Linux commit
//! 409faf8c97d5 ("mm: vmalloc: optimize vmap_lazy_nr arithmetic when purging each vmap_area").

#[path = "../tests/machine/mod.rs"]
mod machine;

use std::error::Error;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use machine::{KernelMemory, machine};
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::Era;

const SECTIONS: u64 = 64;
const PAGES: u64 = SECTIONS << 15;
/// Rounds of every way in turn; the median counts.
const ROUNDS: usize = 9;

/// Counters as the pipeline has them: pages of each class, and bytes done for the progress line.
#[derive(Default)]
struct Counters {
    pages: [AtomicU64; PageClass::COUNT],
    done: AtomicU64,
}

impl Counters {
    fn add(&self, class: usize, pages: u64) {
        self.pages[class].fetch_add(pages, Ordering::Relaxed);
        self.done.fetch_add(pages << 12, Ordering::Relaxed);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Way {
    None,
    SharedPerPage,
    SumPerBlock,
}

const WAYS: [(Way, &str); 3] = [
    (Way::None, "not counted"),
    (Way::SharedPerPage, "shared atomics for each page"),
    (Way::SumPerBlock, "a sum per block, then shared atomics"),
];

fn main() -> Result<(), Box<dyn Error>> {
    let asked: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let threads = if asked.is_empty() { vec![1, 2, 4] } else { asked };
    let mut machine = machine(Era::V6_16, SECTIONS);
    let mut memory = KernelMemory::of(&machine);
    let mut state = 1u64;
    for pfn in 0..PAGES {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match state >> 61 {
            0 | 1 => machine.anon(pfn),
            2 | 3 => machine.cache(pfn),
            4 => machine.slab(pfn, 0),
            5 => machine.buddy(pfn, 0),
            _ => &mut machine,
        };
    }
    memory.put_struct_pages(&machine, PAGES);
    memory.finish();
    let kernel = Kernel::discover(&memory)?;
    println!("ns of wall time per page and thread, {PAGES} pages for each thread, median of {ROUNDS} rounds");
    println!("{:40}{:>10}{:>12}{:>12}", "counted by", "threads", "ns/page", "counting");
    for threads in threads {
        let mut rounds = vec![Vec::new(); WAYS.len()];
        for _ in 0..ROUNDS {
            for (&(way, _), all) in WAYS.iter().zip(&mut rounds) {
                all.push(round(&kernel, &memory, threads, way)?);
            }
        }
        let medians: Vec<f64> = rounds.into_iter().map(median).collect();
        for ((_, name), ns) in WAYS.iter().zip(&medians) {
            println!("{name:40}{threads:>10}{ns:>12.2}{:>12.2}", ns - medians[0]);
        }
    }
    Ok(())
}

/// Every thread scans all blocks, beginning at another one. Nanoseconds per page of one thread.
fn round(kernel: &Kernel, memory: &dyn PhysMemory, threads: usize, way: Way) -> Result<f64, Box<dyn Error>> {
    let blocks = kernel.blocks(memory.ranges().end_pfn(kernel.page_size()));
    let counters = Counters::default();
    let barrier = Barrier::new(threads + 1);
    let pages_per_block = kernel.pages_per_block();
    let seconds = std::thread::scope(|scope| {
        for thread in 0..threads as u64 {
            let (counters, barrier) = (&counters, &barrier);
            scope.spawn(move || {
                let mut scanner = PageScanner::new(kernel, memory.view());
                let mut classes = vec![PageClass::Absent; pages_per_block];
                barrier.wait();
                for block in 0..blocks {
                    let block = (block + thread * blocks / threads as u64) % blocks;
                    scanner.scan(block, &mut classes).expect("the block exists");
                    count(&classes, counters, way);
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let start = Instant::now();
        barrier.wait();
        start.elapsed().as_secs_f64()
    });
    let pages = blocks * pages_per_block as u64;
    let counted: u64 = counters.pages.iter().map(|pages| pages.load(Ordering::Relaxed)).sum();
    if way != Way::None && counted != pages * threads as u64 {
        return Err(format!("{counted} pages counted of {}", pages * threads as u64).into());
    }
    Ok(seconds * 1e9 / pages as f64)
}

fn count(classes: &[PageClass], counters: &Counters, way: Way) {
    match way {
        Way::None => {}
        Way::SharedPerPage => classes.iter().for_each(|&class| counters.add(class as usize, 1)),
        Way::SumPerBlock => {
            let mut sums = [0_u64; PageClass::COUNT];
            classes.iter().for_each(|&class| sums[class as usize] += 1);
            for (class, &pages) in sums.iter().enumerate().filter(|&(_, &pages)| pages > 0) {
                counters.add(class, pages);
            }
        }
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
