//! Any file as a source: its conversion to each format.

use crate::{in_file, write_and_read_back};
use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::Source;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&format, bytes)) = data.split_first() else { return };
    in_file(bytes, |path| {
        let Ok(source) = Source::open(path, MapPolicy::default()) else { return };
        write_and_read_back(&source, format, None);
    });
}
