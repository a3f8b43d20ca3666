//! kdump-compressed files: headers, bitmaps, descriptors, pages.

use crate::MemoryFile;
use pagehaul_kdump::KdumpFile;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SIZE, PhysMemory};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(dump) = KdumpFile::open(Box::new(MemoryFile::new(data))) else { return };
    let _ = (dump.dump_level(), dump.is_incomplete(), dump.eraseinfo(), dump.kernel_mapping());
    let _ = dump.census();
    let pieces = dump.ranges().pieces();
    assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start));
    let mut view = dump.view();
    let mut scratch = [0; PAGE_SIZE];
    let mut bits = [0; 4];
    for piece in pieces.iter().take(32) {
        for pfn in [piece.start >> 12, (piece.end - 1) >> 12] {
            let _ = view.page(PhysAddr::of_4k_page(pfn), &mut scratch);
            let _ = dump.mark_stored(PhysAddr::of_4k_page(pfn), &mut bits);
        }
    }
}
