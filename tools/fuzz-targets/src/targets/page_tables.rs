//! Page tables of arbitrary entries, of any era of x86_64 and any layout of arm64 and riscv64: the first byte chooses the machine; then come
//! places in the kernel's memory, what an entry points to, and its flags. Every walk over them ends.

use crate::Simulation;
use pagehaul_kernel::{AddressSpace, Kernel, KernelLog, PageClass, PageScanner};
use pagehaul_physmem::PhysMemory;

/// Pages, from the top page table on, that entries may be in and point to.
const PAGES: u64 = 64;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((&choice, patches)) = data.split_first() else { return };
    let mut simulation = Simulation::of_any_architecture(choice);
    let (root, _) = simulation.image().page_tables();
    let page_bytes = simulation.image().page_size() as u64;
    for patch in patches.as_chunks::<6>().0 {
        let [page, low, high, target, flags, top] = *patch;
        let at = root
            + u64::from(page) % PAGES * page_bytes
            + u64::from(u16::from_le_bytes([low, high])) * 8 % page_bytes;
        let entry = root + u64::from(target) % PAGES * page_bytes | u64::from(flags) | u64::from(top) << 56;
        simulation = simulation.with_bytes(at, &entry.to_le_bytes());
    }
    let mut view = simulation.view();
    let space = AddressSpace::discover(&simulation).expect("VMCOREINFO is intact");
    let tables = space.translator();
    for patch in patches.as_chunks::<8>().0.iter().take(64) {
        let vaddr = u64::from_le_bytes(*patch);
        for vaddr in [vaddr, vaddr | 0xffff << 48] {
            if let Ok(extent) = tables.translate(view.as_mut(), vaddr) {
                assert!(extent.len >= 1 && extent.len <= 1 << 30);
            }
        }
    }
    let _ = KernelLog::read(&simulation);
    let Ok(kernel) = Kernel::discover(&simulation) else { return };
    let found = kernel.kernel_mapped_pages(&simulation);
    for runs in [&found.data, &found.text, &found.struct_pages] {
        assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
    }
    let [block, _] = simulation.blocks();
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let report = PageScanner::new(&kernel, simulation.view()).scan(block, &mut classes).expect("it is one");
    assert_eq!(report.pages.iter().sum::<u64>(), classes.len() as u64);
}
