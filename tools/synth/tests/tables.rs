//! Walks page tables and reads struct pages.

use pagehaul_synth::{Class, Era, Image, Machine, Memmap, Sparse};

fn word(image: &Image, paddr: u64) -> u64 {
    let mut bytes = [0; 8];
    image.read(paddr, &mut bytes);
    u64::from_le_bytes(bytes)
}

/// Translates a virtual address as the processor does.
fn walk(image: &Image, vaddr: u64, sme_mask: u64) -> Option<u64> {
    let (mut table, levels) = image.page_tables();
    for level in (0..levels).rev() {
        let shift = 12 + 9 * level;
        let entry = word(image, table + (vaddr >> shift & 511) * 8);
        if entry & 1 == 0 {
            return None;
        }
        assert_eq!(entry & sme_mask, sme_mask);
        let base = entry & !sme_mask & 0x000f_ffff_ffff_f000;
        if level == 0 || entry & 0x80 != 0 {
            return Some(base | vaddr & ((1 << shift) - 1));
        }
        table = base;
    }
    None
}

fn key<'a>(image: &'a Image, key: &str) -> Option<&'a str> {
    image.vmcoreinfo().lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
}

fn symbol(image: &Image, name: &str) -> u64 {
    u64::from_str_radix(key(image, &format!("SYMBOL({name})")).unwrap(), 16).unwrap()
}

#[test]
fn every_placement_translates() {
    for memmap in [Memmap::VmemmapLarge, Memmap::VmemmapSmall, Memmap::PerSection] {
        for (five_level, sme, size) in [(false, 0, 64), (true, 1 << 47, 56), (false, 1 << 47, 80)] {
            let mut machine = Machine::new(Era::V6_1);
            machine
                .memmap(memmap)
                .sme(sme)
                .struct_page(size)
                .kaslr(0x1c00_0000)
                .load_at(0x200_0000)
                .anon(0x5000);
            if five_level {
                machine.five_level();
            }
            let image = machine.build();
            for pfn in [1, 0x9f, 0x4000, 0x5000, 0x63ff, 0x9000, 0x9800] {
                let vaddr = image.struct_page_vaddr(pfn);
                assert_eq!(
                    walk(&image, vaddr, sme),
                    Some(image.struct_page_paddr(pfn)),
                    "{memmap:?} {pfn:#x}"
                );
                assert_eq!(walk(&image, image.page_offset() + (pfn << 12), sme), Some(pfn << 12));
            }
            let (text, load) = image.text();
            assert_eq!(walk(&image, text + 0x1234, sme), Some(load + 0x1234));
            assert_eq!(walk(&image, symbol(&image, "init_top_pgt"), sme), Some(image.page_tables().0));
            assert_eq!(walk(&image, 0x1000, sme), None);
        }
    }
}

/// Follows `mem_section` to the struct pages.
#[test]
fn sections_lead_to_struct_pages() {
    for era in Era::ALL {
        for sparse in [Sparse::Extreme, Sparse::Static] {
            for memmap in [Memmap::VmemmapLarge, Memmap::PerSection] {
                let image = Machine::new(era).sparse(sparse).memmap(memmap).stale_section(7).build();
                let mut array = walk(&image, symbol(&image, "mem_section"), 0).unwrap();
                if sparse == Sparse::Extreme && era >= Era::V4_15 {
                    array = walk(&image, word(&image, array), 0).unwrap();
                }
                if sparse == Sparse::Extreme {
                    array = walk(&image, word(&image, array), 0).unwrap();
                }
                let entry = word(&image, array + 16);
                let pfn = 0x9000_u64;
                assert_eq!(entry & 3, 3);
                assert_eq!((entry & !0x1f).wrapping_add(pfn * 64), image.struct_page_vaddr(pfn), "{era:?}");
                assert_eq!(word(&image, array + 5 * 16), 0);
                assert_eq!(word(&image, array + 7 * 16) & 1, 0);
                assert_ne!(word(&image, array + 7 * 16), 0);
            }
        }
    }
}

#[test]
fn optimized_hugetlb_pages_leave_fake_heads_until_7_1() {
    let head_bit = 1_u64 << 6;
    for era in [Era::V6_12, Era::V7_1] {
        let image = Machine::new(era).hugetlb_vmemmap_optimized(0x4000, 9).build();
        let flags = |pfn| word(&image, walk(&image, image.struct_page_vaddr(pfn), 0).unwrap());
        let info = |pfn| word(&image, walk(&image, image.struct_page_vaddr(pfn) + 8, 0).unwrap());
        assert_ne!(flags(0x4000) & head_bit, 0);
        assert_eq!(flags(0x4040) & head_bit != 0, era < Era::V7_1);
        assert_eq!(flags(0x4080), flags(0x4040));
        for pfn in (0x4001..0x4200).filter(|pfn| pfn % 64 != 0) {
            let expected =
                if era < Era::V7_1 { image.struct_page_vaddr(0x4000) | 1 } else { (u64::MAX << 15) | 1 };
            assert_eq!(info(pfn), expected, "{era:?} {pfn:#x}");
        }
        // Seven or six vmemmap pages became free.
        let free = image.kernel_pfns().filter(|&pfn| image.class(pfn) == Class::Free).count();
        assert_eq!(free, if era < Era::V7_1 { 7 } else { 6 });
    }
}

#[test]
fn a_tebibyte_is_sparse() {
    let image = Machine::new(Era::V6_12)
        .ram(0x10_0000, 0x1_0000_0000)
        .ram(0x1_0000_0000, 0x100_0000_0000)
        .load_at(0x1_0000_0000)
        .anon_thp(0x100_0000)
        .build();
    assert_eq!(image.class(0x100_01ff), Class::User);
    assert_eq!(
        walk(&image, image.struct_page_vaddr(0x100_0000), 0),
        Some(image.struct_page_paddr(0x100_0000))
    );
}

#[test]
fn eras_export_their_keys() {
    let info = |era| Machine::new(era).build();
    assert_eq!(key(&info(Era::V4_4), "OFFSET(page._count)"), Some("28"));
    assert_eq!(key(&info(Era::V4_16), "OFFSET(page.compound_order)"), Some("41"));
    assert_eq!(key(&info(Era::V6_3), "OFFSET(folio._folio_order)"), Some("81"));
    assert_eq!(key(&info(Era::V6_9), "NUMBER(PAGE_HUGETLB_MAPCOUNT_VALUE)"), Some("-2049"));
    assert_eq!(key(&info(Era::V6_10), "NUMBER(PG_slab)"), None);
    assert_eq!(key(&info(Era::V6_12), "NUMBER(PAGE_BUDDY_MAPCOUNT_VALUE)"), Some("-268435456"));
    assert_eq!(key(&info(Era::V6_12), "NUMBER(PAGE_UNACCEPTED_MAPCOUNT_VALUE)"), None);
    assert_eq!(key(&info(Era::V7_1), "OFFSET(page.compound_info)"), Some("8"));
    let edited = Machine::new(Era::V6_1).info("NUMBER(PG_lru)", 77).without_info("PAGESIZE").build();
    assert_eq!(key(&edited, "NUMBER(PG_lru)"), Some("77"));
    assert_eq!(key(&edited, "PAGESIZE"), None);
}

#[test]
fn samplers_and_populations_fit() {
    for era in Era::ALL {
        let image = Machine::new(era).sampler(0x4000).populate(0x5000, 0x400, 7).build();
        for class in [Class::Cache, Class::CachePrivate, Class::User, Class::Free, Class::HwPoison] {
            assert!(image.pfns().iter().any(|&pfn| image.class(pfn) == class), "{era:?} {class:?}");
        }
        assert_eq!(image.expected(31).len(), image.expected(30).len());
        assert!(image.expected(31).len() < image.expected(8).len());
    }
}
