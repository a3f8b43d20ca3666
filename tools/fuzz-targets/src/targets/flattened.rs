//! The flattened format, and its index.

use crate::{MemoryFile, ServerFile};
use pagehaul_kdump::format::{FlatIndex, FlatRecord};
use pagehaul_kdump::write::{Rearranged, rearrange};
use pagehaul_kdump::{Flattened, KdumpFile};
use pagehaul_output::OutputFile;
use pagehaul_physmem::file::ReadAt;
use zerocopy::IntoBytes;

/// Runs the target.
pub fn run(data: &[u8]) {
    rearranged(data);
    indexed(data);
    let Ok(file) = Flattened::open(MemoryFile::new(data)) else { return };
    read(&file);
    if let Ok(dump) = KdumpFile::open_flattened(file) {
        let _ = dump.census();
    }
}

fn read(file: &Flattened) {
    let mut buf = [0; 600];
    for offset in [0, 4095, file.size() / 2, file.size().saturating_sub(10), file.size(), u64::MAX] {
        file.will_need(&[offset..offset.saturating_add(600)]);
        let count = file.read_at(offset, &mut buf).unwrap_or(0);
        assert!(count <= buf.len() && offset.saturating_add(count as u64) <= file.size().max(offset));
    }
}

/// A stream on a server, as it is and with an index of any headers that has the right checksum: the last bytes, as many as the first
/// byte says.
fn indexed(data: &[u8]) {
    if let (Ok(local), Ok(remote)) =
        (Flattened::open(MemoryFile::new(data)), Flattened::open(ServerFile(MemoryFile::new(data))))
    {
        read(&remote);
        // One that is sealed by chance or by a seed has its terminator, wherever its records lead.
        assert!(local.is_complete() <= remote.is_complete());
    }
    let Some((count, rest)) = data.split_first() else { return };
    let Some(at) = rest.len().checked_sub(usize::from(*count) * FlatRecord::SIZE) else { return };
    let (stream, headers) = rest.split_at(at);
    let whole = [stream, &[0xff; FlatRecord::SIZE], headers, FlatIndex::new(headers).as_bytes()].concat();
    if let Ok(file) = Flattened::open(ServerFile(MemoryFile::new(&whole))) {
        read(&file);
    }
}

/// One pass over the stream, as `makedumpfile -R` does it. What ends early is not taken for complete.
fn rearranged(data: &[u8]) {
    let Ok(mut file) = OutputFile::temporary(std::path::Path::new("/tmp/x")) else { return };
    let mut input = data;
    if let Ok(Rearranged::Complete) = rearrange(&mut input, &mut file) {
        let read = &data[..data.len() - input.len()];
        assert!(read.ends_with(&[0xff; 16]));
    }
}
