//! Struct pages of arbitrary bytes: their census, as text and as a web page.

use crate::Simulation;
use pagehaul_census::{Heading, count};
use pagehaul_kernel::Kernel;
use pagehaul_physmem::PhysMemory;
use pagehaul_render::census::{html, text};
use pagehaul_synth::Era;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let memory = Simulation::new(Era::ALL[usize::from(choice) % Era::ALL.len()]).with_struct_pages(bytes);
    let kernel = Kernel::discover(&memory).expect("only struct pages were changed");
    let name = String::from_utf8_lossy(bytes.get(..16).unwrap_or(bytes)).into_owned();
    let heading = Heading { dump: name, release: None, crash_time: None };
    let census = count(&memory, &kernel, heading, 1).expect("its bitmaps can be read");
    assert_eq!(census.pages, memory.ranges().bytes() >> 12);
    let page = html(&census).expect("a census is JSON");
    assert!(page.len() < 4 << 20 && text(&census).len() < 1 << 20);
}
