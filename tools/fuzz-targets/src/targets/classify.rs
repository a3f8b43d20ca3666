//! Struct pages of arbitrary bytes.

use crate::Simulation;
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_physmem::PhysMemory;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let memory = Simulation::of_any_architecture(choice).with_struct_pages(bytes);
    let kernel = Kernel::discover(&memory).expect("only struct pages were changed");
    let [block, other] = memory.blocks();
    let pages = kernel.pages_per_block();
    let mut classes = vec![PageClass::Absent; pages];
    let report = PageScanner::new(&kernel, memory.view()).scan(block, &mut classes).expect("it is one");
    assert_eq!(report.pages.iter().sum::<u64>(), pages as u64);

    // The order of blocks does not matter, nor what was scanned before.
    let mut again = vec![PageClass::Undecided; pages];
    let mut scanner = PageScanner::new(&kernel, memory.view());
    scanner.scan(other, &mut again).expect("it is one");
    assert_eq!(scanner.scan(block, &mut again).expect("it is one"), report);
    assert_eq!(again, classes);
}
