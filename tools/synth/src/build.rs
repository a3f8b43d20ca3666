//! Builds a machine's memory from its description.

use std::collections::BTreeMap;

use crate::Era;
use crate::block::Block;
use crate::class::{Class, Kind};
use crate::content::{Content, PAGE};
use crate::image::Image;
use crate::image_offset;
use crate::info;
use crate::machine::Machine;
use crate::memmap::{Map, Mapped};
use crate::memory::Memory;
use crate::paging::Tables;
use crate::setup::{Setup, Sparse};
use crate::structs::Writer;

/// Of blocks above this order only the first page is stamped.
const LARGEST_STAMPED: u32 = 10;

/// Allocates memory after the kernel's image.
struct Bump {
    next: u64,
    end: u64,
}

impl Bump {
    fn take(&mut self, bytes: u64, alignment: u64) -> u64 {
        let start = self.next.next_multiple_of(alignment);
        self.next = start + bytes;
        assert!(self.next <= self.end, "the RAM around the kernel is too small to hold its struct pages");
        start
    }
}

impl Machine {
    /// Builds the machine's memory, as its crash left it.
    pub fn build(&self) -> Image {
        build(self)
    }
}

fn build(machine: &Machine) -> Image {
    let setup = &machine.setup;
    let ram = setup.ram();
    let mut memory = Memory::default();
    memory.set_pristine(setup.pristine());

    let static_bytes = if setup.roots_behind_pointer() { 0 } else { section_array_bytes(setup) };
    let image_bytes = (image_offset::SECTIONS + static_bytes).next_multiple_of(0x20_0000);
    let home = ram.iter().find(|range| (range.0..range.1).contains(&setup.load));
    let Some(&(_, home_end)) = home else {
        panic!("no RAM where the kernel is loaded, at {:#x}", setup.load)
    };
    let mut bump = Bump { next: setup.load + image_bytes, end: home_end };
    assert!(bump.next <= home_end, "the RAM around the kernel is too small to hold its image");
    for frame in 0..image_offset::PGD / PAGE as u64 {
        memory.set(setup.load / PAGE as u64 + frame, Content::Text);
    }
    let (shift, page) = (setup.page_shift(), setup.page_bytes());
    // Frames of 4 KiB that a page consists of.
    let frames = |pfn: u64| (pfn << (shift - 12))..((pfn + 1) << (shift - 12));

    let mut map = Map::lay(setup, &mut memory, |bytes, alignment| bump.take(bytes, alignment));
    let mut blocks = owned_by_kernel(setup, image_bytes);
    write_sections(setup, &map, &mut memory, &mut bump);
    write_data(setup, &mut memory);

    for block in machine.blocks.iter().filter(|block| block.kind == Kind::HugetlbOptimized) {
        let freed = map.optimize(setup, *block);
        blocks.extend(freed.into_iter().map(|pfn| Block { pfn, order: 0, kind: Kind::Buddy }));
    }
    let kernel = setup.load..bump.next;
    for block in &machine.blocks {
        let (start, end) = (block.pfn << shift, (block.pfn + (1 << block.order)) << shift);
        assert!(
            end <= kernel.start || start >= kernel.end,
            "PFN {:#x} belongs to the kernel, which has {kernel:#x?} to itself",
            block.pfn
        );
        let sections = setup.sections();
        assert!(
            (start >> setup.section_bits..=(end - 1) >> setup.section_bits)
                .all(|section| sections.binary_search(&section).is_ok()),
            "PFN {:#x} is in no section with RAM",
            block.pfn
        );
    }
    blocks.extend(&machine.blocks);

    let mut classes: BTreeMap<u64, Class> = BTreeMap::new();
    let pages = Mapped { setup, memory: &mut memory, map: &map };
    let mut writer = Writer { setup, pages };
    for block in &blocks {
        writer.block(*block);
        for pfn in block.pfn..block.pfn + (1 << block.order) {
            classes.insert(pfn, class_of(setup.era, block, pfn));
        }
    }
    for (&pfn, &bits) in &setup.page_flags {
        writer.flag(pfn, bits);
    }
    for &pfn in &machine.poisoned {
        writer.poison(pfn);
        classes.insert(pfn, Class::HwPoison);
    }
    for (pfn, links) in &machine.listed {
        writer.listed(*pfn, *links);
    }
    for (pfn, value) in &machine.privates {
        writer.private(*pfn, *value);
    }
    for block in &machine.blocks {
        // A stamped gigantic page would make a file of 1 GiB.
        let stamped = if block.order > LARGEST_STAMPED { 1 } else { 1 << block.order };
        for frame in (block.pfn..block.pfn + stamped).flat_map(frames) {
            memory.set(frame, Content::Stamp);
        }
    }
    for (&pfn, content) in &machine.contents {
        assert!(!kernel.contains(&(pfn << shift)), "PFN {pfn:#x} belongs to the kernel and cannot be filled");
        frames(pfn).for_each(|frame| memory.set(frame, content.clone()));
    }
    for (&frame, content) in &machine.frames {
        memory.set(frame, content.clone());
    }
    write_tables(machine, &map, &mut memory, &mut bump, image_bytes, &ram);

    let kernel_pfns = setup.load >> shift..bump.next.div_ceil(page);
    let vmcoreinfo = info::vmcoreinfo(setup);
    let notes = crate::notes::notes(setup, &vmcoreinfo);
    Image { setup: setup.clone(), memory, map, ram, classes, kernel_pfns, image_bytes, vmcoreinfo, notes }
}

fn class_of(era: Era, block: &Block, pfn: u64) -> Class {
    match block.kind.class(era) {
        // Only the page with the mark has the class.
        Class::HwPoison | Class::Offline if pfn != block.pfn => Class::Kernel,
        class => class,
    }
}

fn owned_by_kernel(setup: &Setup, image_bytes: u64) -> Vec<Block> {
    let first = setup.load >> setup.page_shift();
    (first..first + (image_bytes >> setup.page_shift()).min(512))
        .map(|pfn| Block { pfn, order: 0, kind: Kind::Reserved })
        .collect()
}

fn section_array_bytes(setup: &Setup) -> u64 {
    match setup.sparse {
        Sparse::Extreme => setup.section_roots() * 8,
        Sparse::Static => setup.section_roots() * setup.section_entry,
    }
}

/// Writes `mem_section`.
fn write_sections(setup: &Setup, map: &Map, memory: &mut Memory, bump: &mut Bump) {
    let array = if setup.roots_behind_pointer() {
        let array = bump.take(section_array_bytes(setup), PAGE as u64);
        memory.write_u64(setup.load + image_offset::DATA, setup.page_offset().wrapping_add(array));
        array
    } else {
        setup.load + image_offset::SECTIONS
    };
    // PRESENT and HAS_MEM_MAP; ONLINE from 4.13 (2d070eab2e82); EARLY from 5.3 (326e1b8f83a4).
    let flags = match setup.era {
        era if era < Era::V4_15 => 0x3,
        era if era < Era::V5_10 => 0x7,
        _ => 0xf,
    };
    let mut roots: BTreeMap<u64, u64> = BTreeMap::new();
    let mut put = |section: u64, value: u64| {
        let entry = match setup.sparse {
            Sparse::Static => array + section * setup.section_entry,
            Sparse::Extreme => {
                let per_root = setup.sections_per_root();
                let root = *roots.entry(section / per_root).or_insert_with(|| {
                    let root = bump.take(setup.page_bytes(), setup.page_bytes());
                    memory.write_u64(array + section / per_root * 8, setup.page_offset().wrapping_add(root));
                    root
                });
                root + section % per_root * setup.section_entry
            }
        };
        memory.write_u64(entry, value);
        // The usage bitmap's address, which is not a memmap.
        memory.write_u64(entry + 8, setup.page_offset().wrapping_add(0x30_0000 + section * 32));
        if let Some(word) = setup.page_ext.get(&section) {
            memory.write_u64(entry + 16, *word);
        }
    };
    let limit = 1_u64 << (setup.max_physmem_bits() - setup.section_bits);
    let sections = setup.sections();
    assert!(sections.iter().all(|&section| section < limit), "there is RAM beyond MAX_PHYSMEM_BITS");
    for &section in &sections {
        put(section, map.encoded(setup, section) | flags);
    }
    for &section in &setup.stale_sections {
        assert!(!sections.contains(&section), "section {section} holds RAM and cannot be stale");
        put(section, setup.vmemmap() | (flags & !1));
    }
}

/// Writes `init_uts_ns` and `phys_base`.
fn write_data(setup: &Setup, memory: &mut Memory) {
    let names = setup.load + image_offset::UTS + info::uts_name_offset(setup.era);
    let fields = [
        "Linux",
        "synth",
        setup.era.release(),
        "#1 SMP PREEMPT_DYNAMIC synthetic",
        setup.machine(),
        "(none)",
    ];
    for (index, field) in fields.into_iter().enumerate() {
        memory.write(names + index as u64 * 65, field.as_bytes());
    }
    for (offset, bytes) in &setup.image_contents {
        memory.write(setup.load + offset, bytes);
    }
    // The variable phys_base, of which VMCOREINFO had only the address before 4.10.
    memory.write_u64(setup.load + image_offset::DATA + 8, setup.phys_base() as u64);
}

fn write_tables(
    machine: &Machine,
    map: &Map,
    memory: &mut Memory,
    bump: &mut Bump,
    image_bytes: u64,
    ram: &[(u64, u64)],
) {
    let setup = &machine.setup;
    let top = setup.load + setup.pgd();
    let page = setup.page_bytes();
    let mut allocate = || bump.take(page, page);
    let mut tables = Tables {
        memory,
        top,
        levels: setup.levels(),
        sme_mask: setup.sme_mask,
        arm64: setup.arm64,
        is_riscv64: setup.riscv64.is_some(),
        allocate: &mut allocate,
    };
    // The image is aligned to 2 MiB.
    let sizes = tables.sizes();
    let image_page = if sizes.contains(&0x20_0000) { 0x20_0000 } else { page };
    for offset in (0..image_bytes).step_by(image_page as usize) {
        tables.map(setup.text() + offset, setup.load + offset, image_page);
    }
    let mut mapped = 0;
    for &(start, end) in ram {
        let mut at = (start & !(page - 1)).max(mapped);
        let end = end.next_multiple_of(page);
        while at < end {
            let fits = |size: &u64| at.is_multiple_of(*size) && at + size <= end;
            let size = sizes.iter().copied().find(fits).unwrap_or(page);
            tables.map(setup.page_offset().wrapping_add(at), at, size);
            at += size;
        }
        mapped = end;
    }
    for (&chunk, &paddr) in &map.large {
        let base = chunk * 512;
        if map.small.range(base..base + 512).next().is_none() {
            tables.map(setup.vmemmap().wrapping_add(chunk << 21), paddr, 0x20_0000);
            continue;
        }
        // A kernel that frees vmemmap pages splits the large page first.
        for index in base..base + 512 {
            let frame = map.small.get(&index).copied().unwrap_or(paddr + ((index - base) << 12));
            tables.map(setup.vmemmap().wrapping_add(index << 12), frame, 0x1000);
        }
    }
    if map.large.is_empty() {
        for (&index, &frame) in &map.small {
            tables.map(setup.vmemmap().wrapping_add(index * page), frame, page);
        }
    }
    for &(vaddr, paddr, size) in &machine.mappings {
        tables.map(vaddr, paddr, size);
    }
}
