//! Dumps of machines with other words, byte orders and page sizes than x86_64.

mod common;

use std::collections::BTreeMap;

use pagehaul_elfcore::notes;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SIZE, PageState, PhysMemory, bits};
use pagehaul_synth::Foreign;

#[test]
fn every_layout_reads_page_by_page() {
    for machine in Foreign::ALL {
        let ram = [1..40, 0x100..0x180];
        let pages: BTreeMap<u64, Vec<u8>> =
            (0x100..0x170).step_by(3).chain([2, 39]).map(|pfn| (pfn, machine.page(pfn))).collect();
        let notes = machine.vmcoreinfo("OSRELEASE=6.1.0\n");
        let dump = common::open(machine.kdump(&ram, &pages, &notes)).unwrap();
        let arch = dump.platform();
        assert_eq!(
            (arch.machine, arch.wide, arch.big_endian, arch.page_size.bytes()),
            (machine.elf_machine, machine.wide, machine.big_endian, machine.page_size)
        );
        let (_, text) = notes::vmcoreinfo(dump.notes()).unwrap();
        assert_eq!(text, b"OSRELEASE=6.1.0\n");
        assert_eq!(
            (dump.info().nr_cpus, dump.info().crash_time, dump.info().dump_level),
            (3, 1_700_000_000, 31)
        );
        assert_eq!(dump.faults(), Vec::<String>::new());
        let mut view = dump.view();
        let mut scratch = [0; PAGE_SIZE];
        let per_page = (machine.page_size / PAGE_SIZE) as u64;
        let mut marked = vec![0; 0x180 * per_page as usize / 64];
        // From a page that is none of the larger ones' first.
        dump.mark_stored(PhysAddr::of_4k_page(3), &mut marked).unwrap();
        for small in 0..0x180 * per_page {
            let (pfn, part) = (small / per_page, (small % per_page) as usize * PAGE_SIZE);
            let state = match view.page(PhysAddr::of_4k_page(small), &mut scratch) {
                Ok(page) => {
                    assert_eq!(page[..], pages[&pfn][part..part + PAGE_SIZE], "{machine:?}: {pfn:#x}");
                    PageState::Present
                }
                Err(error) => error.state(),
            };
            let expected = match ram.iter().any(|range| range.contains(&pfn)) {
                _ if pages.contains_key(&pfn) => PageState::Present,
                true => PageState::Excluded,
                false => PageState::Absent,
            };
            assert_eq!(state, expected, "{machine:?}: {pfn:#x}");
            if let Some(at) = small.checked_sub(3) {
                assert_eq!(bits::get(&marked, at as usize), state == PageState::Present);
            }
        }
    }
}
