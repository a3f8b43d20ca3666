//! Struct pages per second that one thread classifies: `cargo run --release -p pagehaul-kernel --example scan_rate`.
//!
//! The struct pages are in memory already; on a vmcore, what it takes to bring them in comes on top.

#[path = "../tests/machine/mod.rs"]
mod machine;

use std::time::Instant;

use machine::{Layout, Machine};
use pagehaul_kernel::{Hints, Kernel, PageClass, PageScanner};
use pagehaul_memory::PhysMemory;

const SECTIONS: u64 = 32;
const PAGES: u64 = SECTIONS << 15;
/// Best of so many passes.
const PASSES: usize = 20;

/// How the pages of a machine are used.
type Fill = fn(&mut Machine);

fn main() {
    let fills: [(&str, Fill); 6] = [
        ("kernel pages", |_| {}),
        ("single pages of all classes, at random", mixed),
        ("anonymous pages", |machine| (0..PAGES).for_each(|pfn| machine.anon(pfn))),
        ("anonymous huge pages", |machine| {
            (0..PAGES).step_by(512).for_each(|pfn| {
                machine.anon(pfn);
                machine.compound(pfn, 9);
            })
        }),
        ("slab, order 3", |machine| {
            (0..PAGES).step_by(8).for_each(|pfn| {
                machine.slab(pfn);
                machine.compound(pfn, 3);
            })
        }),
        ("free blocks of 4 MiB", |machine| (0..PAGES).step_by(1024).for_each(|pfn| machine.free(pfn, 10))),
    ];
    println!("{PAGES} struct pages of 64 bytes; million per second");
    for (name, fill) in fills {
        let mut machine = Machine::new(Layout::v6_16(), SECTIONS);
        fill(&mut machine);
        machine.finish();
        println!("{name:40} {:8.0}", rate(&machine));
    }
}

fn mixed(machine: &mut Machine) {
    let mut state = 1u64;
    for pfn in 0..PAGES {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        match state >> 61 {
            0 | 1 => machine.anon(pfn),
            2 | 3 => machine.cache(pfn),
            4 => machine.slab(pfn),
            5 => machine.free(pfn, 0),
            _ => {}
        }
    }
}

fn rate(machine: &Machine) -> f64 {
    let kernel = Kernel::discover(machine, Hints::default()).expect("the machine is whole");
    let mut scanner = PageScanner::new(&kernel, machine.view());
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let seconds = (0..PASSES).map(|_| {
        let start = Instant::now();
        for block in 0..SECTIONS {
            scanner.scan(block, &mut classes).expect("the block exists");
        }
        start.elapsed().as_secs_f64()
    });
    PAGES as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e6
}
