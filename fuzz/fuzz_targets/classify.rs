//! Struct pages of arbitrary bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_fuzz::Simulation;
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::Era;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let memory = Simulation::new(Era::ALL[usize::from(choice) % Era::ALL.len()]).with_struct_pages(bytes);
    let kernel = Kernel::discover(&memory).expect("only struct pages were changed");
    let pages = kernel.pages_per_block();
    let mut classes = vec![PageClass::Absent; pages];
    let report = PageScanner::new(&kernel, memory.view()).scan(0, &mut classes).expect("block 0 is one");
    assert_eq!(report.pages.iter().sum::<u64>(), pages as u64);

    // The order of blocks does not matter, nor what was scanned before.
    let mut again = vec![PageClass::Undecided; pages];
    let mut scanner = PageScanner::new(&kernel, memory.view());
    scanner.scan(1, &mut again).expect("block 1 is one");
    assert_eq!(scanner.scan(0, &mut again).expect("block 0 is one"), report);
    assert_eq!(again, classes);
});
