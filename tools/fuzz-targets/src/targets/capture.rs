//! Struct pages of arbitrary bytes: the dump captured of them, at any level and in any format.

use std::path::Path;

use crate::{Simulation, write_and_read_back};
use pagehaul_synth::Era;
use pagehaul_vmcore::Source;

/// Runs the target.
pub fn run(data: &[u8]) {
    let [era, level, format, bytes @ ..] = data else { return };
    let memory = Simulation::new(Era::ALL[usize::from(*era) % Era::ALL.len()]).with_struct_pages(bytes);
    let source = Source::simulated(Path::new("fuzzed"), Box::new(memory));
    let report = write_and_read_back(&source, *format, Some(level % 32));
    assert!(report.is_some_and(|report| report.outcome.is_success()), "only struct pages were changed");
}
