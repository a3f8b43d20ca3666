//! Struct pages per second that one thread classifies, next to a plain sum over the same bytes in the same run:
//! `cargo run --release -p pagehaul-kernel --example scan_rate -- [VMCORE]`.
//!
//! The struct pages are in memory, but in no cache: there are 256 MiB of them. Those of a vmcore are copied to memory
//! before; what bringing them in from a file costs comes on top.

#[path = "../../tests/machine/mod.rs"]
mod machine;
mod resident;

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use machine::{KernelMemory, machine};
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_physmem::PhysMemory;
use pagehaul_physmem::file::PlainFile;
use pagehaul_synth::{Era, Machine};
use pagehaul_vmcore::ElfVmcore;

const SECTIONS: u64 = 128;
const PAGES: u64 = SECTIONS << 15;
/// Passes over everything; the median counts.
const PASSES: usize = 9;
/// The goal: so many million struct pages a second, or this share of what a sum over the same bytes does.
const GOAL_RATE: f64 = 100.0;
const GOAL_SHARE: f64 = 0.6;

/// How the pages of a machine are used.
type Fill = fn(&mut Machine);

fn main() -> Result<(), Box<dyn Error>> {
    let fills: [(&str, Fill); 6] = [
        ("kernel pages", |_| {}),
        ("single pages of all classes, at random", mixed),
        ("anonymous pages", |machine| {
            for pfn in 0..PAGES {
                machine.anon(pfn);
            }
        }),
        ("anonymous huge pages", |machine| {
            for pfn in (0..PAGES).step_by(512) {
                machine.anon_thp(pfn);
            }
        }),
        ("slab, order 3", |machine| {
            for pfn in (0..PAGES).step_by(8) {
                machine.slab(pfn, 3);
            }
        }),
        ("free blocks of 4 MiB", |machine| {
            for pfn in (0..PAGES).step_by(1024) {
                machine.buddy(pfn, 10);
            }
        }),
    ];
    println!(
        "million struct pages of 64 bytes per second, one thread; goal: {GOAL_RATE}, or {GOAL_SHARE} of a plain sum"
    );
    println!("{:40}{:>10}{:>10}{:>10}  goal", "pages", "scan", "sum", "share");
    for (name, fill) in fills {
        let mut machine = machine(Era::V6_16, SECTIONS);
        let mut memory = KernelMemory::of(&machine);
        fill(&mut machine);
        memory.put_struct_pages(&machine, PAGES);
        memory.finish();
        let memmap = || vec![&memory.memory[memory.index(memory.at(0))..memory.index(memory.at(PAGES))]];
        measure(name, &memory, memmap)?;
    }
    if let Some(path) = std::env::args().nth(1) {
        let vmcore = ElfVmcore::open(PlainFile::open(Path::new(&path))?, Default::default())?;
        let resident = resident::Resident::of(vmcore)?;
        measure(&path, &resident, || resident.chunks())?;
    }
    Ok(())
}

fn mixed(machine: &mut Machine) {
    let mut state = 1u64;
    for pfn in 0..PAGES {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match state >> 61 {
            0 | 1 => machine.anon(pfn),
            2 | 3 => machine.cache(pfn),
            4 => machine.slab(pfn, 0),
            5 => machine.buddy(pfn, 0),
            _ => machine,
        };
    }
}

/// Scans and sums in turn, and says how fast each was.
fn measure<'m>(
    name: &str,
    memory: &'m dyn PhysMemory,
    memmap: impl Fn() -> Vec<&'m [u8]>,
) -> Result<(), Box<dyn Error>> {
    let kernel = Kernel::discover(memory)?;
    let blocks = kernel.blocks(memory.ranges().end_pfn(kernel.page_size()));
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let memmap = memmap();
    let bytes: usize = memmap.iter().map(|chunk| chunk.len()).sum();
    let mut scans = Vec::new();
    let mut sums = Vec::new();
    for _ in 0..PASSES {
        let mut pages = 0;
        let seconds = time(|| {
            for block in 0..blocks {
                let report = scanner.scan(block, &mut classes).expect("the block exists");
                let absent = report.pages[PageClass::Absent as usize];
                pages += report.pages.iter().sum::<u64>() - absent;
            }
        });
        scans.push(pages as f64 / seconds / 1e6);
        let seconds = time(|| {
            let words = memmap.iter().flat_map(|chunk| chunk.as_chunks::<8>().0.chunks(512));
            // In pieces, so that the inner loop is one the compiler makes wide.
            let sum = |words: &[[u8; 8]]| {
                words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word)))
            };
            black_box(words.fold(0u64, |total, piece| total.wrapping_add(sum(piece))));
        });
        sums.push(bytes as f64 / 64.0 / seconds / 1e6);
    }
    let (scan, sum) = (median(scans), median(sums));
    let share = scan / sum;
    let met = if scan >= GOAL_RATE || share >= GOAL_SHARE { "met" } else { "MISSED" };
    println!("{name:40}{scan:>10.0}{sum:>10.0}{share:>10.2}  {met}");
    Ok(())
}

fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
