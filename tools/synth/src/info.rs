//! VMCOREINFO of each era.

use crate::Era;
use crate::arm64::Arm64;
use crate::era::{NONE, OrderAt, PG_HUGETLB, PageType};
use crate::image_offset;
use crate::riscv64::{self, Riscv64};
use crate::setup::{Memmap, Setup};

/// Seconds since 1970 at which every synthetic machine crashed.
pub const CRASH_TIME: i64 = 1_750_000_000;

/// Byte offset of `name` in `struct uts_namespace`: a kref stood before it until 5.11 (9a56493f6942).
pub(crate) fn uts_name_offset(era: Era) -> u64 {
    if era < Era::V6_1 { 4 } else { 0 }
}

/// The text of the note.
pub(crate) fn vmcoreinfo(setup: &Setup) -> String {
    let mut lines = Lines(Vec::new());
    basics(setup, &mut lines);
    model(setup, &mut lines);
    page(setup, &mut lines);
    numbers(setup, &mut lines);
    arch(setup, &mut lines);
    lines.set("CRASHTIME", CRASH_TIME);
    for (key, value) in &setup.info_edits {
        match value {
            Some(value) => lines.set(key, value),
            None => lines.0.retain(|(name, _)| name != key),
        }
    }
    lines.0.iter().map(|(key, value)| format!("{key}={value}\n")).collect()
}

/// Keys and values in the order the kernel writes them.
struct Lines(Vec<(String, String)>);

impl Lines {
    fn set(&mut self, key: &str, value: impl ToString) {
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some(line) => line.1 = value.to_string(),
            None => self.0.push((key.into(), value.to_string())),
        }
    }

    fn symbol(&mut self, name: &str, address: u64) {
        self.set(&format!("SYMBOL({name})"), format!("{address:x}"));
    }

    fn offset(&mut self, field: &str, bytes: u64) {
        self.set(&format!("OFFSET({field})"), bytes);
    }

    fn number(&mut self, name: &str, value: i64) {
        self.set(&format!("NUMBER({name})"), value);
    }
}

fn basics(setup: &Setup, lines: &mut Lines) {
    let text = setup.text();
    lines.set("OSRELEASE", setup.era.release());
    if setup.era >= Era::V5_10 {
        // 44e8a5e9120b (5.9).
        lines.set("BUILD-ID", "2a".repeat(20));
    }
    lines.set("PAGESIZE", setup.page_bytes());
    lines.symbol("init_uts_ns", text + image_offset::UTS);
    lines.offset("uts_namespace.name", uts_name_offset(setup.era));
    lines.symbol("node_online_map", text + image_offset::DATA + 64);
    lines.symbol("swapper_pg_dir", text + setup.pgd());
    lines.symbol("_stext", text);
    if setup.era >= Era::V6_9 {
        lines.set("NUMBER(VMALLOC_START)", format!("{:#x}", setup.vmemmap().wrapping_sub(1 << 45)));
    } else {
        lines.symbol("vmap_area_list", text + image_offset::DATA + 128);
    }
}

fn model(setup: &Setup, lines: &mut Lines) {
    if setup.era >= Era::V6_9 && setup.memmap != Memmap::PerSection {
        lines.symbol("vmemmap", setup.vmemmap());
    }
    let place = if setup.roots_behind_pointer() { image_offset::DATA } else { image_offset::SECTIONS };
    let table = if setup.arm64.is_some() || setup.riscv64.is_some() {
        // What the pointer holds (a0b1280368d1, 4.16): an address of the linear map.
        setup.page_offset().wrapping_add(setup.load + place)
    } else {
        setup.text() + place
    };
    lines.symbol("mem_section", table);
    lines.set("LENGTH(mem_section)", setup.section_roots());
    lines.set("SIZE(mem_section)", setup.section_entry);
    lines.offset("mem_section.section_mem_map", 0);
    if setup.era >= Era::V5_10 {
        // 4f5aecdff25f (5.13, and 5.10 by its stable releases), 1d50e5d0c505 (5.8).
        lines.number("SECTION_SIZE_BITS", i64::from(setup.section_bits));
        lines.number("MAX_PHYSMEM_BITS", i64::from(setup.max_physmem_bits()));
    } else if setup.section_bits != 27 || setup.max_physmem_bits.is_some() {
        // Not what such a kernel exports, but then no such kernel has other values.
        lines.number("SECTION_SIZE_BITS", i64::from(setup.section_bits));
        lines.number("MAX_PHYSMEM_BITS", i64::from(setup.max_physmem_bits()));
    }
}

fn page(setup: &Setup, lines: &mut Lines) {
    let era = setup.era;
    let fields = era.fields();
    lines.set("SIZE(page)", setup.struct_page);
    for (name, size) in
        [("pglist_data", 171_968), ("zone", 1664), ("free_area", 104), ("list_head", 16), ("nodemask_t", 128)]
    {
        lines.set(&format!("SIZE({name})"), size);
    }
    lines.offset("page.flags", 0);
    // 0139aa7b7fa1 (4.7) renamed it.
    lines.offset(if era < Era::V4_10 { "page._count" } else { "page._refcount" }, fields.refcount);
    lines.offset("page.mapping", fields.mapping);
    lines.offset("page.lru", fields.lru);
    lines.offset("page._mapcount", fields.mapcount);
    lines.offset("page.private", fields.private);
    if let OrderAt::Fields { dtor, order, .. } = era.order_at() {
        if era < Era::V6_3 {
            lines.offset("page.compound_dtor", dtor);
            lines.offset("page.compound_order", order);
        } else {
            // 1c5509be58f6 (6.3): offsets from the head, of fields in the first tail.
            lines.offset("folio._folio_dtor", setup.struct_page + dtor);
            lines.offset("folio._folio_order", setup.struct_page + order);
        }
    }
    lines.offset(if era < Era::V7_1 { "page.compound_head" } else { "page.compound_info" }, fields.lru);
    for (name, offset) in [
        ("pglist_data.node_zones", 0),
        ("pglist_data.nr_zones", 171_104),
        ("pglist_data.node_start_pfn", 171_112),
        ("pglist_data.node_spanned_pages", 171_128),
        ("pglist_data.node_id", 171_136),
        ("zone.free_area", 192),
        ("zone.vm_stat", 1472),
        ("zone.spanned_pages", 120),
        ("free_area.free_list", 0),
        ("list_head.next", 0),
        ("list_head.prev", 8),
    ] {
        lines.offset(name, offset);
    }
    lines.set("LENGTH(zone.free_area)", 11);
    lines.symbol("log_buf", setup.text() + image_offset::DATA + 192);
    lines.set("LENGTH(free_area.free_list)", 6);
}

fn numbers(setup: &Setup, lines: &mut Lines) {
    let era = setup.era;
    let flags = era.flags();
    let mapcount = |kind| era.page_type(kind).map(|value| i64::from(value as i32));
    lines.number("NR_FREE_PAGES", 0);
    for (name, bit) in [
        ("PG_lru", flags.lru),
        ("PG_private", flags.private),
        ("PG_swapcache", flags.swapcache),
        ("PG_swapbacked", flags.swapbacked),
        ("PG_slab", flags.slab),
        ("PG_hwpoison", flags.hwpoison),
    ] {
        if bit != NONE {
            lines.number(name, i64::from(bit));
        }
    }
    lines.number("PG_head_mask", 1 << flags.head);
    let exported = [
        ("SLAB", PageType::Slab, true),
        ("BUDDY", PageType::Buddy, true),
        ("HUGETLB", PageType::Hugetlb, true),
        ("OFFLINE", PageType::Offline, true),
        ("UNACCEPTED", PageType::Unaccepted, era >= Era::V6_16),
    ];
    for (name, kind, is_exported) in exported {
        if let (Some(value), true) = (mapcount(kind), is_exported) {
            lines.number(&format!("PAGE_{name}_MAPCOUNT_VALUE"), value);
        }
    }
    if matches!(era.order_at(), OrderAt::Fields { .. }) {
        lines.number("HUGETLB_PAGE_DTOR", 2);
    } else if era < Era::V6_9 {
        // 9c5ccf2db04b (6.6) took the destructors away.
        lines.number("PG_hugetlb", i64::from(PG_HUGETLB));
    }
}

/// Keys of arch/arm64/kernel/vmcore_info.c.
fn arm64(setup: &Setup, layout: Arm64, lines: &mut Lines) {
    lines.number("VA_BITS", i64::from(layout.va_bits));
    lines.set("NUMBER(kimage_voffset)", format!("{:#x}", setup.text().wrapping_sub(setup.load)));
    lines.set("NUMBER(PHYS_OFFSET)", format!("{:#x}", setup.phys_base()));
    // bbdbc11804ff (5.9).
    lines.set("NUMBER(TCR_EL1_T1SZ)", format!("{:#x}", 64 - layout.used_bits));
    lines.set("KERNELOFFSET", format!("{:x}", setup.kaslr.unwrap_or(0)));
    lines.set("NUMBER(KERNELPACMASK)", "0x0");
    if setup.era >= Era::V6_1 {
        lines.set("NUMBER(VMEMMAP_START)", format!("{:#x}", layout.vmemmap_start(setup.era)));
    }
}

/// Keys of arch/riscv/kernel/vmcore_info.c.
fn riscv64(setup: &Setup, layout: Riscv64, lines: &mut Lines) {
    lines.number("VA_BITS", i64::from(layout.va_bits()));
    lines.number("phys_ram_base", setup.phys_base());
    let offset = riscv64::LINK_ADDRESS.wrapping_sub(setup.load).wrapping_add(setup.kaslr.unwrap_or(0));
    for (name, address) in [
        ("PAGE_OFFSET", layout.linear_map()),
        ("VMALLOC_START", layout.vmalloc_start()),
        ("VMALLOC_END", layout.linear_map()),
        ("VMEMMAP_START", layout.vmemmap()),
        ("VMEMMAP_END", layout.vmalloc_start()),
        ("MODULES_VADDR", riscv64::LINK_ADDRESS - (2 << 30) + (32 << 20)),
        ("MODULES_END", riscv64::LINK_ADDRESS),
        ("KERNEL_LINK_ADDR", riscv64::LINK_ADDRESS),
        ("va_kernel_pa_offset", offset),
    ] {
        lines.set(&format!("NUMBER({name})"), format!("{address:#x}"));
    }
}

fn arch(setup: &Setup, lines: &mut Lines) {
    if let Some(layout) = setup.riscv64 {
        return riscv64(setup, layout, lines);
    }
    if let Some(layout) = setup.arm64 {
        return arm64(setup, layout, lines);
    }
    let text = setup.text();
    let era = setup.era;
    if era < Era::V4_10 {
        // Before 401721ecd1dc: the address of the variable, whose value only memory holds.
        lines.symbol("phys_base", text + image_offset::DATA + 8);
    } else {
        lines.number("phys_base", setup.phys_base());
    }
    // 65ade2f872b4 (4.13).
    lines.symbol(if era < Era::V4_15 { "init_level4_pgt" } else { "init_top_pgt" }, text + setup.pgd());
    if era >= Era::V5_10 || setup.five_level {
        // ed7588d5dc6f (4.18).
        lines.number("pgtable_l5_enabled", i64::from(setup.five_level));
    }
    lines.symbol("node_data", text + image_offset::DATA + 256);
    lines.set("LENGTH(node_data)", 1024);
    lines.set("KERNELOFFSET", format!("{:x}", setup.kaslr.unwrap_or(0)));
    if era >= Era::V4_10 {
        lines.number("KERNEL_IMAGE_SIZE", 1 << 30);
    }
    if era >= Era::V5_10 || setup.sme_mask != 0 {
        // 5.1 ("x86/kdump: Export the SME mask to vmcoreinfo").
        lines.number("sme_mask", setup.sme_mask as i64);
    }
}
