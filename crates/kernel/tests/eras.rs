//! Every era × every use of a page × every memory model, on machines made to order.

use pagehaul_kernel::{DumpLevel, Kernel, PageClass, PageScanner};
use pagehaul_machine::Pfn;
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{MapPolicy, PhysMemory};
use pagehaul_synth::{Arm64, Class, Elf, Era, Image, Machine, Memmap, Riscv64, SAMPLER_PAGES, Sparse};
use pagehaul_vmcore::ElfVmcore;

const SAMPLER: u64 = 0x4000;

fn open(elf: &Elf) -> ElfVmcore {
    let file = tempfile::NamedTempFile::new().unwrap();
    elf.write(file.path()).unwrap();
    // The file stays open, and that is enough.
    ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap()
}

/// What synth calls it.
fn plain(class: PageClass) -> Class {
    match class {
        PageClass::Cache => Class::Cache,
        PageClass::CachePrivate => Class::CachePrivate,
        PageClass::Anon | PageClass::HugeTlb => Class::User,
        PageClass::Free | PageClass::Unaccepted => Class::Free,
        PageClass::HwPoison => Class::HwPoison,
        PageClass::Offline => Class::Offline,
        _ => Class::Kernel,
    }
}

/// The class of every page, and no inconsistency on the way.
fn scan(elf: &Elf, what: &str) -> Vec<PageClass> {
    let memory = open(elf);
    let kernel = Kernel::discover(&memory).unwrap_or_else(|e| panic!("{what}: {e}"));
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let max_pfn = memory.ranges().end().div_ceil(kernel.page_size().bytes() as u64);
    let mut classes =
        vec![PageClass::Absent; kernel.blocks(Pfn::new(max_pfn)) as usize * kernel.pages_per_block()];
    for (block, out) in classes.chunks_mut(kernel.pages_per_block()).enumerate() {
        let report = scanner.scan(block as u64, out).unwrap();
        assert_eq!(report.inconsistency, None, "{what}, block {block}");
    }
    classes
}

fn check(image: &Image, elf: &Elf, what: &str) {
    let classes = scan(elf, what);
    // Unaccepted memory comes in blocks of order 10.
    let unconfirmed = |pfn: u64| !image.vmcoreinfo().contains("UNACCEPTED") && pfn.is_multiple_of(1 << 10);
    let mut wrong = Vec::new();
    for pfn in image.pfns() {
        let found = classes[pfn as usize];
        assert!(found != PageClass::Undecided || unconfirmed(pfn), "{what}, PFN {pfn:#x}");
        if plain(found) != image.class(pfn) {
            wrong.push(format!("{pfn:#x} is {:?}, taken for {found:?}", image.class(pfn)));
        }
    }
    assert!(wrong.is_empty(), "{what}: {} pages, first: {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
}

fn sampled(era: Era) -> Machine {
    let mut machine = Machine::new(era);
    machine.sampler(SAMPLER).populate(0x5000, 0x800, era as u64).hugetlb(0x5a00, 9);
    machine
}

#[test]
fn every_era_knows_every_use() {
    const { assert!(SAMPLER + SAMPLER_PAGES <= 0x5000) };
    for era in Era::ALL {
        let image = sampled(era).build();
        check(&image, &image.elf(), &format!("{era:?}"));
        // 4.4 tells phys_base in a segment only, which QEMU does not write.
        if era > Era::V4_4 {
            check(&image, &image.qemu_elf(), &format!("{era:?}, QEMU"));
        }
    }
}

/// Every layout of addresses with the eras that have it, with and without KASLR.
#[test]
fn arm64_of_every_layout() {
    for (layout, first) in [
        (Arm64::V39, Era::V5_10),
        (Arm64::V48, Era::V5_10),
        (Arm64::V52, Era::V6_9),
        (Arm64::V52_ON_48, Era::V6_9),
    ] {
        for era in Era::ALL.into_iter().filter(|era| *era >= first) {
            let mut machine = Machine::arm64(era, layout);
            machine.sampler(0x4_4000).populate(0x4_5000, 0x800, era as u64).hugetlb(0x4_5800, 4);
            let image = machine.build();
            check(&image, &image.elf(), &format!("{layout:?} {era:?}"));
            check(&image, &image.qemu_elf(), &format!("{layout:?} {era:?}, QEMU"));
        }
        let mut machine = Machine::arm64(first, layout);
        machine.kaslr(0x1a00_0000).memmap(Memmap::VmemmapSmall).section_entry(32).sampler(0x4_4000);
        let image = machine.build();
        check(&image, &image.elf(), &format!("{layout:?}, KASLR"));
    }
}

#[test]
fn riscv64_of_every_width() {
    for layout in Riscv64::ALL {
        for era in Era::ALL.into_iter().filter(|era| *era >= Era::V6_6) {
            let mut machine = Machine::riscv64(era, layout);
            machine.sampler(0x8_4000).populate(0x8_5000, 0x800, era as u64).hugetlb(0x8_5800, 4);
            let image = machine.build();
            check(&image, &image.elf(), &format!("{layout:?} {era:?}"));
            check(&image, &image.qemu_elf(), &format!("{layout:?} {era:?}, QEMU"));
        }
    }
}

/// Pages of 16 and 64 KiB, with the eras that have each layout.
#[test]
fn arm64_with_large_pages() {
    for layout in Arm64::LARGE_PAGES {
        let first = if layout.va_bits > 48 && layout.page_shift < 16 { Era::V6_9 } else { Era::V5_10 };
        let pfn = |paddr: u64| paddr >> layout.page_shift;
        let huge: &[u32] = if layout.page_shift == 14 { &[7, 11] } else { &[5] };
        // How struct pages are read does not depend on their size: three eras do.
        for era in [first, Era::V6_12, Era::V7_1] {
            let mut machine = Machine::arm64(era, layout);
            machine.sampler(pfn(0x4400_0000)).populate(pfn(0x4900_0000), pfn(0x80_0000), era as u64);
            for (index, order) in huge.iter().enumerate() {
                machine.hugetlb(pfn(0x4a00_0000 + 0x200_0000 * index as u64), *order);
            }
            let image = machine.build();
            check(&image, &image.elf(), &format!("{layout:?} {era:?}"));
            check(&image, &image.qemu_elf(), &format!("{layout:?} {era:?}, QEMU"));
        }
        let mut machine = Machine::arm64(first, layout);
        machine.kaslr(0x1a00_0000).memmap(Memmap::PerSection).section_entry(32).sampler(pfn(0x4400_0000));
        let image = machine.build();
        check(&image, &image.elf(), &format!("{layout:?}, KASLR"));
    }
}

/// Compound pages over several sections: 1 GiB with pages of 16 KiB, 16 GiB with pages of 64 KiB.
#[test]
fn arm64_with_compound_pages_over_sections() {
    for (layout, order) in [(Arm64::K16_V52, 16), (Arm64::K64_V52, 18)] {
        let huge = 1 << (layout.page_shift + order);
        let mut machine = Machine::arm64(Era::V6_12, layout);
        machine.ram(0x4000_0000, 0x4800_0000).ram(huge * 4, huge * 5).ram(0x20_0000_0000, 0x20_0800_0000);
        machine.hugetlb((huge * 4) >> layout.page_shift, order).buddy(0x20_0000_0000 >> layout.page_shift, 8);
        let image = machine.build();
        check(&image, &image.elf(), &format!("{layout:?}"));
    }
}

/// RAM of 1 GiB blocks and in far places, with as little in between as the sections between them.
#[test]
fn arm64_with_huge_holes() {
    for layout in [Arm64::V48, Arm64::V52] {
        let mut machine = Machine::arm64(Era::V6_12, layout);
        machine.ram(0x4000_0000, 0x8000_0000).ram(0x20_0000_0000, 0x20_0800_0000);
        machine.hugetlb(0x6_0000, 13).anon_thp(0x200_0200).buddy(0x200_0400, 10);
        let image = machine.build();
        check(&image, &image.elf(), &format!("{layout:?}"));
    }
    // RAM far above the sections that x86_64 has RAM in.
    let mut machine = Machine::arm64(Era::V6_12, Arm64::V52);
    let start = 0x1000_0000_0000;
    machine.ram(start, start + 0x400_0000).load_at(start + 0x20_0000).anon((start >> 12) + 0x3000);
    let image = machine.build();
    let memory = open(&image.elf());
    let kernel = Kernel::discover(&memory).unwrap();
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let block = (start >> 12) / kernel.pages_per_block() as u64;
    let report = PageScanner::new(&kernel, memory.view()).scan(block, &mut classes).unwrap();
    assert_eq!(report.inconsistency, None);
    assert_eq!((report.pages[PageClass::Anon as usize], classes[0x3000]), (1, PageClass::Anon));
    assert!(!kernel.kernel_mapped_pages(&memory).struct_pages.is_empty());
}

#[test]
fn every_memory_model() {
    for era in Era::ALL {
        for sparse in [Sparse::Extreme, Sparse::Static] {
            for memmap in [Memmap::VmemmapLarge, Memmap::VmemmapSmall, Memmap::PerSection] {
                let mut machine = Machine::new(era);
                machine.sparse(sparse).memmap(memmap).sampler(SAMPLER).stale_section(9);
                let image = machine.build();
                check(&image, &image.elf(), &format!("{era:?}, {sparse:?}, {memmap:?}"));
            }
        }
    }
}

#[test]
fn sections_of_32_bytes_and_small_ones() {
    for era in [Era::V4_4, Era::V5_10, Era::V6_12] {
        let image = Machine::new(era).section_entry(32).sampler(SAMPLER).build();
        check(&image, &image.elf(), &format!("{era:?}, entries of 32 bytes"));
    }
    for era in [Era::V5_10, Era::V6_12, Era::V7_1] {
        for memmap in [Memmap::VmemmapSmall, Memmap::PerSection] {
            // Sections of 4,096 pages, and large folios of two or four of them.
            let mut machine = Machine::new(era);
            machine.section_bits(24).memmap(memmap).max_physmem_bits(40).ram(0x1000, 0x9_fc00);
            machine.ram(0x10_0000, 0x2000_0000);
            machine
                .anon_folio(0x4000, 14)
                .anon_folio(0x8000, 13)
                .buddy(0xa400, 10)
                .anon_thp(0xb000)
                .sampler(0xc000);
            let image = machine.build();
            check(&image, &image.elf(), &format!("{era:?}, {memmap:?}, small sections"));
        }
    }
}

#[test]
fn gigantic_pages_span_sections() {
    for era in Era::ALL {
        let mut machine = Machine::new(era);
        machine.ram(0x10_0000, 0x400_0000).ram(0x4000_0000, 0x8010_0000).hugetlb(0x4_0000, 18).anon(0x8_0000);
        if era >= Era::V5_10 {
            machine.memmap(Memmap::VmemmapLarge);
        }
        machine.load_at(0x100_0000);
        let image = machine.build();
        check(&image, &image.elf(), &format!("{era:?}, gigantic page"));
    }
}

#[test]
fn kernels_may_be_anywhere() {
    for era in [Era::V4_10, Era::V4_15, Era::V5_10, Era::V6_6, Era::V6_16] {
        for (kaslr, load) in [(0, 0x200_0000), (0x3e00_0000, 0x100_0000), (0x1c20_0000, 0x280_0000)] {
            let image = sampled(era).kaslr(kaslr).load_at(load).sme(1 << 47).build();
            check(&image, &image.elf(), &format!("{era:?}, KASLR {kaslr:#x}, loaded at {load:#x}"));
            if era >= Era::V5_10 {
                let image = sampled(era).five_level().kaslr(kaslr).load_at(load).sme(1 << 51).build();
                check(
                    &image,
                    &image.elf(),
                    &format!("{era:?}, 5 levels, KASLR {kaslr:#x}, loaded at {load:#x}"),
                );
            }
        }
    }
}

#[test]
fn odd_struct_pages() {
    for era in Era::ALL {
        for size in [56, 80, 96] {
            for memmap in [Memmap::VmemmapLarge, Memmap::PerSection] {
                let image = Machine::new(era).struct_page(size).memmap(memmap).sampler(SAMPLER).build();
                check(&image, &image.elf(), &format!("{era:?}, {memmap:?}, struct page of {size} bytes"));
            }
        }
    }
}

#[test]
fn optimized_hugetlb_pages() {
    for era in Era::ALL.into_iter().filter(|&era| era >= Era::V6_1) {
        for memmap in [Memmap::VmemmapLarge, Memmap::VmemmapSmall] {
            let mut machine = Machine::new(era);
            machine.memmap(memmap).ram(0x10_0000, 0x400_0000).ram(0x4000_0000, 0x8800_0000);
            machine
                .hugetlb_vmemmap_optimized(0x4_0000, 18)
                .hugetlb_vmemmap_optimized(0x8_0200, 9)
                .anon_thp(0x8_0400);
            let image = machine.build();
            check(&image, &image.elf(), &format!("{era:?}, {memmap:?}, HVO"));
        }
    }
}

/// A page can be poisoned inside anything; only that page goes, whatever the level.
#[test]
fn poison_takes_one_page() {
    for era in Era::ALL {
        let mut machine = Machine::new(era);
        machine.slab(0x4000, 3).poison(0x4005).anon_thp(0x4200).poison(0x4217).cache(0x4400).poison(0x4400);
        machine
            .compound(0x4410, 2)
            .poison(0x4410)
            .kernel(0x4420)
            .poison(0x4420)
            .buddy(0x4440, 4)
            .poison(0x4447);
        let image = machine.build();
        check(&image, &image.elf(), &format!("{era:?}, poison"));
    }
}

/// What is kept at each level, with the shortcuts that the level allows.
#[test]
fn levels_keep_what_they_should() {
    for era in Era::ALL {
        let image = sampled(era).build();
        let memory = open(&image.elf());
        let kernel = Kernel::discover(&memory).unwrap();
        for bits in [0, 1, 2, 4, 8, 16, 31] {
            let level = DumpLevel::new(bits).unwrap();
            let mut scanner = PageScanner::new(&kernel, memory.view());
            let mut classes = vec![PageClass::Absent; 2 * kernel.pages_per_block()];
            for (block, out) in classes.chunks_mut(kernel.pages_per_block()).enumerate() {
                scanner.scan(block as u64, out).unwrap();
            }
            let kept = image.pfns().into_iter().filter(|&pfn| !level.excludes(classes[pfn as usize]));
            assert!(kept.eq(image.expected(u32::from(bits))), "{era:?}, level {bits}");
        }
    }
}
