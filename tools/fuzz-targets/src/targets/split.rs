//! Split sets whose parts are changed, missing, or repeated.

use std::sync::OnceLock;

use crate::MemoryFile;
use pagehaul_kdump::{KdumpFile, SplitSet};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SIZE, PhysMemory};
use pagehaul_synth::{Era, Machine};

fn parts() -> &'static [Vec<u8>] {
    static PARTS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PARTS.get_or_init(|| Machine::new(Era::V6_12).build().kdump().only(0x4000..0x4010).parts(3))
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((chosen, patches)) = data.split_first() else { return };
    // Up to four parts of the three, two bits for each.
    let mut files: Vec<Vec<u8>> =
        (0..4).filter_map(|place| parts().get(usize::from(chosen >> (2 * place) & 3))).cloned().collect();
    for patch in patches.chunks_exact(5) {
        let place = usize::from(patch[0]);
        let Some(count) = files.len().checked_sub(1) else { return };
        let file = &mut files[place.min(count)];
        // The headers twice as often as the rest.
        let at = u32::from_le_bytes([patch[1], patch[2], patch[3] & 0x3f, 0]) as usize;
        let at = if patch[3] & 0x80 == 0 { at % 8192 } else { at % file.len() };
        file[at] = patch[4];
    }
    let open = |bytes: &Vec<u8>| KdumpFile::open(Box::new(MemoryFile::new(bytes))).ok();
    let Ok(set) = SplitSet::new(files.iter().filter_map(open).collect()) else { return };
    let mut view = set.view();
    let mut page = [0; PAGE_SIZE];
    for pfn in 0x3ff8..0x4018 {
        let _ = view.copy_page(PhysAddr::of_4k_page(pfn), &mut page);
        let _ = set.mark_stored(PhysAddr::of_4k_page(pfn), &mut [0; 2]);
    }
    let _ = (set.faults(), set.is_incomplete());
}
