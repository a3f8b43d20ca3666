//! VMCOREINFO of the simulated kernel, and registers of its CPUs.

use super::memmap::{BUDDY, HUGETLB, OFFLINE, SLAB, UNACCEPTED, flag};
use super::tables::{MEM_SECTION, TOP_TABLE, UTS, image};

pub(crate) const RELEASE: &str = "7.1.0-simulated";

/// The PT_NOTE of the machine.
pub(super) fn notes() -> Vec<u8> {
    let number = |bit: u64| bit.trailing_zeros();
    let text = format!(
        "OSRELEASE={RELEASE}\nPAGESIZE=4096\nSYMBOL(init_uts_ns)={:x}\nOFFSET(uts_namespace.name)=0\n\
         SYMBOL(init_top_pgt)={:x}\nNUMBER(pgtable_l5_enabled)=1\nNUMBER(phys_base)=0\nNUMBER(KERNEL_IMAGE_SIZE)={}\n\
         NUMBER(sme_mask)=0\nSYMBOL(mem_section)={:x}\nLENGTH(mem_section)={}\nSIZE(mem_section)=16\n\
         OFFSET(mem_section.section_mem_map)=0\nNUMBER(SECTION_SIZE_BITS)=27\nNUMBER(MAX_PHYSMEM_BITS)=52\n\
         SIZE(page)=64\nOFFSET(page.flags)=0\nOFFSET(page._refcount)=52\nOFFSET(page.mapping)=24\nOFFSET(page.lru)=8\n\
         OFFSET(page._mapcount)=48\nOFFSET(page.private)=40\nOFFSET(page.compound_info)=8\nLENGTH(zone.free_area)=11\n\
         NUMBER(PG_lru)={}\nNUMBER(PG_private)={}\nNUMBER(PG_swapcache)={}\nNUMBER(PG_swapbacked)={}\nNUMBER(PG_hwpoison)={}\n\
         NUMBER(PG_head_mask)={}\nNUMBER(PAGE_BUDDY_MAPCOUNT_VALUE)={}\nNUMBER(PAGE_SLAB_MAPCOUNT_VALUE)={}\n\
         NUMBER(PAGE_HUGETLB_MAPCOUNT_VALUE)={}\nNUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)={}\n\
         NUMBER(PAGE_UNACCEPTED_MAPCOUNT_VALUE)={}\nCRASHTIME=1750000000\n",
        image(UTS),
        image(TOP_TABLE),
        1u64 << 30,
        image(MEM_SECTION),
        super::tables::ROOTS,
        number(flag::LRU),
        number(flag::PRIVATE),
        number(flag::SWAPCACHE),
        number(flag::SWAPBACKED),
        number(flag::HWPOISON),
        flag::HEAD,
        BUDDY as i32,
        SLAB as i32,
        HUGETLB as i32,
        OFFLINE as i32,
        UNACCEPTED as i32,
    );
    let mut notes = Vec::new();
    // Two CPUs' registers, all zeros.
    for _ in 0..2 {
        push_note(&mut notes, b"CORE\0", 1, &[0; 336]);
    }
    push_note(&mut notes, b"VMCOREINFO\0", 0, text.as_bytes());
    notes
}

fn push_note(notes: &mut Vec<u8>, name: &[u8], kind: u32, desc: &[u8]) {
    for word in [name.len() as u32, desc.len() as u32, kind] {
        notes.extend(word.to_le_bytes());
    }
    for part in [name, desc] {
        notes.extend(part);
        notes.resize(notes.len().next_multiple_of(4), 0);
    }
}
