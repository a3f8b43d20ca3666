//! The flattened format.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pagehaul_fuzz::MemoryFile;
use pagehaul_kdump::Flattened;
use pagehaul_kdump::KdumpFile;
use pagehaul_kdump::write::{Rearranged, rearrange};
use pagehaul_output::OutputFile;
use pagehaul_physmem::file::ReadAt;

fuzz_target!(|data: &[u8]| {
    rearranged(data);
    let Ok(file) = Flattened::open(MemoryFile::new(data)) else { return };
    let mut buf = [0; 600];
    for offset in [0, 4095, file.size() / 2, file.size().saturating_sub(10), file.size(), u64::MAX] {
        let count = file.read_at(offset, &mut buf).unwrap_or(0);
        assert!(count <= buf.len() && offset.saturating_add(count as u64) <= file.size().max(offset));
    }
    if let Ok(dump) = KdumpFile::open_flattened(file) {
        let _ = dump.census();
    }
});

/// One pass over the stream, as `makedumpfile -R` does it. What ends early is not taken for complete.
fn rearranged(data: &[u8]) {
    let Ok(mut file) = OutputFile::temporary(std::path::Path::new("/tmp/x")) else { return };
    let mut input = data;
    if let Ok(Rearranged::Complete) = rearrange(&mut input, &mut file) {
        let read = &data[..data.len() - input.len()];
        assert!(read.ends_with(&[0xff; 16]));
    }
}
