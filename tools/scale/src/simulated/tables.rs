//! The kernel's tables, computed a page at a time: page tables of the vmemmap, memory sections, `init_uts_ns`.

use pagehaul_physmem::PAGE_SIZE;

use super::layout::{MEM_SECTION, RELEASE, TOP_TABLE, UTS, image};
use super::{Simulated, memmap};

/// Virtual address of struct pages with 5-level page tables. A multiple of 2^48, so indices count from 0 below
/// the top.
pub(super) const VMEMMAP: u64 = 0xffd4_0000_0000_0000;

/// Physical addresses, all within the image's mapping and section 0, which belongs to the kernel.
const TABLE_4: u64 = 0x200_1000;
const TABLES_3: u64 = 0x200_2000;
const TABLES_2: u64 = 0x210_0000;
const TABLES_2_END: u64 = 0x280_0000;
const ROOT_LIST: u64 = 0x280_0000;
const ROOT_PAGES: u64 = 0x2a0_0000;
const ROOT_PAGES_END: u64 = 0x580_0000;

/// Sections that a root page describes.
const PER_ROOT: u64 = 256;
/// Entries of a table.
const ENTRIES: u64 = 512;
/// Present, writable, accessed, dirty; and for a leaf of level 2 besides.
const TABLE: u64 = 0x63;
const LEAF: u64 = 0xe3;
/// PRESENT, HAS_MEM_MAP, ONLINE, EARLY.
const SECTION_FLAGS: u64 = 0xf;

/// Copies page `pfn` to `page` if it is one of these tables.
pub(super) fn fill(machine: &Simulated, pfn: u64, page: &mut [u8; PAGE_SIZE]) -> bool {
    let paddr = pfn * PAGE_SIZE as u64;
    if !(MEM_SECTION..ROOT_PAGES_END).contains(&paddr) {
        return false;
    }
    let sections = machine.sections();
    let tables_2 = sections.div_ceil(ENTRIES);
    let mut words = |word: &dyn Fn(u64) -> u64| {
        for (index, place) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *place = word(index as u64).to_le_bytes();
        }
        true
    };
    // What comes after the number of this page among those from `first` on.
    let nth = |first: u64| (paddr - first) / PAGE_SIZE as u64 * ENTRIES;
    let entry = |exists: bool, table: u64| if exists { table | TABLE } else { 0 };
    match paddr {
        MEM_SECTION => words(&|index| if index == 0 { image(ROOT_LIST) } else { 0 }),
        UTS => {
            page.fill(0);
            let names = ["Linux", "simulated", RELEASE, "#1 SMP PREEMPT_DYNAMIC", "x86_64", "(none)"];
            for (place, name) in page.chunks_mut(65).zip(names) {
                place[..name.len()].copy_from_slice(name.as_bytes());
            }
            true
        }
        TOP_TABLE => words(&|index| entry(index == VMEMMAP >> 48 & 511, TABLE_4)),
        TABLE_4 => words(&|index| entry(index * ENTRIES < tables_2, TABLES_3 + index * PAGE_SIZE as u64)),
        TABLES_3..TABLES_2 => words(&|index| {
            let number = nth(TABLES_3) + index;
            entry(number < tables_2, TABLES_2 + number * PAGE_SIZE as u64)
        }),
        TABLES_2..TABLES_2_END => words(&|index| {
            let section = nth(TABLES_2) + index;
            if machine.has_section(section) { memmap::start(section) | LEAF } else { 0 }
        }),
        ROOT_LIST..ROOT_PAGES => words(&|index| {
            let root = nth(ROOT_LIST) + index;
            if root * PER_ROOT < sections { image(ROOT_PAGES + root * PAGE_SIZE as u64) } else { 0 }
        }),
        ROOT_PAGES..ROOT_PAGES_END => words(&|index| {
            let section = nth(ROOT_PAGES) / 2 + index / 2;
            // The map's address less that of the section's first page: in a vmemmap always its start.
            if index % 2 == 0 && machine.has_section(section) { VMEMMAP | SECTION_FLAGS } else { 0 }
        }),
        _ => false,
    }
}
