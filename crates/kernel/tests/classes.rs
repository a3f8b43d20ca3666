//! Each rule, on each kernel era that changed it.

mod machine;

use machine::{KernelMemory, SECTION_PAGES, machine};
use pagehaul_kernel::PageClass::{self, *};
use pagehaul_kernel::{BlockReport, Kernel, PageScanner};
use pagehaul_machine::Pfn;
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::{Era, Kind, Memmap};

fn classes(memory: &mut KernelMemory) -> Vec<PageClass> {
    scan(memory, 0).0
}

/// The classes of a block's pages, and what contradicts itself.
fn scan(memory: &mut KernelMemory, block: u64) -> (Vec<PageClass>, Option<String>) {
    let (classes, report) = report(memory, block);
    (classes, report.inconsistency.map(|inconsistency| inconsistency.what))
}

fn report(memory: &mut KernelMemory, block: u64) -> (Vec<PageClass>, BlockReport) {
    memory.finish();
    let kernel = Kernel::discover(memory).unwrap();
    let mut out = vec![Absent; kernel.pages_per_block()];
    let report = PageScanner::new(&kernel, memory.view()).scan(block, &mut out).unwrap();
    assert_eq!(report.pages.iter().sum::<u64>(), out.len() as u64);
    for class in PageClass::ALL {
        assert_eq!(report.pages[class as usize], out.iter().filter(|found| **found == class).count() as u64);
    }
    (out, report)
}

#[test]
fn single_pages() {
    for era in Era::ALL {
        let mut machine = machine(era, 1);
        machine.anon(1).cache(2).cache_private(3).slab(4, 0).buddy(8, 3);
        // In the swap cache, off the LRU lists; movable but neither anonymous nor cache (4.8 to 6.16); a
        // filesystem's flag that became the swap cache's alias in 4.10, without what makes it one.
        machine.hwpoison(17).page(Kind::Swapcache, 18, 0).movable(19).ksm(20).checked(21);
        machine.buddy(32, 2).poison(33);
        let mut memory = KernelMemory::of(&machine);
        if era < Era::V5_10 {
            // Counters of SLUB that look like a page type.
            memory.mapcount(4, -128_i32 as u32);
        }
        // A count of slabs that looks like an anonymous mapping.
        memory.mapping(4, 7);
        let found = classes(&mut memory);
        assert_eq!(found[..5], [Kernel_, Anon, Cache, CachePrivate, Slab], "{era:?}");
        assert_eq!(found[7..17], [&[Kernel_][..], &[Free; 8], &[Kernel_]].concat(), "{era:?}");
        assert_eq!(found[17..23], [HwPoison, Cache, Kernel_, Anon, Kernel_, Kernel_], "{era:?}");
        assert_eq!(found[32..37], [Free, HwPoison, Free, Free, Kernel_], "{era:?}");
    }
}

#[test]
fn each_class_is_explained_by_what_decided_it() {
    for era in Era::ALL {
        let mut machine = machine(era, 1);
        machine.anon(1).cache(2).cache_private(3).slab(4, 0).buddy(8, 3).hwpoison(17).ksm(20);
        machine.anon_thp(512);
        let mut memory = KernelMemory::of(&machine);
        let (classes, _) = scan(&mut memory, 0);
        let kernel = Kernel::discover(&memory).unwrap();
        let explain = |pfn| kernel.explain(&memory, Pfn::new(pfn)).unwrap();
        for (pfn, class) in (0..1100).zip(&classes) {
            assert_eq!(explain(pfn).class, *class, "{era:?} {pfn}");
        }
        for (pfn, part) in [
            (0, "no rule of another class"),
            (1, "bit 0 of mapping is set"),
            (2, "PG_lru is set, bit 0 of mapping is not, without PG_private"),
            (3, "and PG_private is set"),
            (4, "slab"),
            (8, "the first of a free block of order 3"),
            (9, "in a free block, which begins before it"),
            (17, "PG_hwpoison is set"),
            (20, "merged by KSM"),
            (513, "a tail of a compound page, whose head decides: bit 0 of mapping is set"),
        ] {
            let explanation = explain(pfn);
            assert!(explanation.rule.contains(part), "{era:?} {pfn}: {}", explanation.rule);
        }
        assert!(explain(2).struct_page.unwrap().flag_names.contains(&"PG_lru"));
        assert!(explain(513).head.unwrap().flag_names.contains(&"PG_head"));
        // Behind all memory.
        assert_eq!(explain(1 << 40).class, Absent);
        assert!(kernel.explain(&memory, Pfn::new(u64::MAX)).is_err());
    }
}

#[allow(non_upper_case_globals, reason = "next to the type of the same name")]
const Kernel_: PageClass = PageClass::Kernel;

#[test]
fn compound_pages_are_wholes() {
    for era in Era::ALL {
        let mut machine = machine(era, 1);
        machine
            .anon_thp(512)
            .poison(700)
            .cache_folio(1024, 2)
            .slab(1032, 3)
            .compound(1040, 4)
            .hugetlb(2048, 9);
        // A poisoned page of HugeTLB: the head is marked for all.
        machine.hugetlb(4096, 9).poison(4096);
        let (found, inconsistency) = scan(&mut KernelMemory::of(&machine), 0);
        assert_eq!(inconsistency, None, "{era:?}");
        let mut expected = vec![Kernel_; 32768];
        expected[512..1024].fill(Anon);
        expected[700] = HwPoison;
        expected[1024..1028].fill(Cache);
        expected[1032..1040].fill(Slab);
        expected[2048..2560].fill(HugeTlb);
        expected[4096..4608].fill(HwPoison);
        assert_eq!(first_difference(&found, &expected), None, "{era:?}");
    }
}

/// 6.6 to 6.8 mark hugetlb by one flag of the first tail, which other pages have for other reasons.
#[test]
fn reserved_pages_are_kept_whatever_they_look_like() {
    for era in Era::ALL {
        let mut image = machine(era, 1);
        image.hugetlb(2048, 9).anon_thp(4096).cache_folio(8192, 2);
        let mut memory = KernelMemory::of(&image);
        let reserved = memory.number("NUMBER(PG_private)") - 1;
        for pfn in [2048, 4096, 8192] {
            memory.flag(pfn, reserved);
        }
        let (found, inconsistency) = scan(&mut memory, 0);
        assert!(inconsistency.unwrap().contains("is reserved"), "{era:?}");
        for pages in [2048..2560, 4096..4608, 8192..8196] {
            assert!(
                found[pages.clone()].iter().all(|class| *class == PageClass::Undecided),
                "{era:?} {pages:?}"
            );
        }
    }
}

/// Each class that a level excludes, as single pages and in blocks.
#[test]
fn reserved_single_pages_are_kept_and_counted() {
    for era in Era::ALL {
        let mut image = machine(era, 1);
        image.anon(1).cache(2).cache_private(3).buddy(8, 3).page(Kind::Swapcache, 18, 0).ksm(20).hwpoison(21);
        image.buddy(32, 2).buddy(64, 6).anon_thp(512).slab(1032, 3).anon(40);
        let mut memory = KernelMemory::of(&image);
        let reserved = memory.number("NUMBER(PG_private)") - 1;
        // The first page of a free block makes all of it doubtful, one within it or within a compound page only itself.
        for pfn in [1, 2, 3, 8, 18, 20, 21, 33, 100, 700, 1032] {
            memory.flag(pfn, reserved);
        }
        let (found, report) = report(&mut memory, 0);
        for pfn in [1, 2, 3, 8, 18, 20, 33, 100, 700] {
            assert_eq!(found[pfn], Undecided, "{era:?}: {pfn}");
        }
        assert_eq!((found[21], found[1032]), (HwPoison, Slab), "{era:?}");
        assert_eq!((found[32], &found[34..36], found[40]), (Free, &[Free; 2][..], Anon), "{era:?}");
        assert_eq!((&found[64..100], &found[101..128]), (&[Free; 36][..], &[Free; 27][..]), "{era:?}");
        assert_eq!((found[512], found[699], found[701]), (Anon, Anon, Anon), "{era:?}");
        assert_eq!(report.contradictions, 9, "{era:?}");
        let kernel = Kernel::discover(&memory).unwrap();
        assert!(kernel.explain(&memory, Pfn::new(1)).unwrap().rule.contains("PG_reserved is set"), "{era:?}");
        let first = report.inconsistency.unwrap();
        assert!(first.pfn == Pfn::new(1) && first.what.contains("is reserved"), "{era:?}: {first:?}");
    }
}

/// Orders that no hugetlb page of the architecture has: the mark is something else, whatever marks it.
#[test]
fn hugetlb_pages_have_orders_of_their_architecture() {
    let scanned = |mut memory: KernelMemory, pages: std::ops::Range<usize>, class: PageClass, what: &str| {
        let (found, report) = report(&mut memory, 0);
        let count = if class == Undecided { pages.len() as u64 } else { 0 };
        assert!(found[pages.clone()].iter().all(|found| *found == class), "{what}: {:?}", found[pages.start]);
        assert_eq!(report.contradictions, count, "{what}");
        if count > 0 {
            let first = report.inconsistency.unwrap();
            assert!(first.what.contains("no pages of its order"), "{what}: {first:?}");
        }
    };
    for era in Era::ALL {
        for (order, class) in [(2, Undecided), (8, Undecided), (9, HugeTlb), (10, Undecided)] {
            let mut image = machine(era, 1);
            image.hugetlb(4096, order);
            scanned(
                KernelMemory::of(&image),
                4096..4096 + (1 << order),
                class,
                &format!("{era:?}, order {order}"),
            );
        }
    }
}

/// 6.9 and later mark hugetlb by a page type, which a single page cannot have.
#[test]
fn a_single_page_is_not_hugetlb() {
    let mut memory = KernelMemory::of(machine(Era::V6_16, 1).anon(6));
    assert!(memory.text.contains("PAGE_HUGETLB_MAPCOUNT_VALUE"));
    memory.mapcount(5, 0xf400_0000);
    let (found, report) = report(&mut memory, 0);
    assert_eq!((found[5], found[6], report.contradictions), (Undecided, Anon, 1));
    assert!(report.inconsistency.unwrap().what.contains("single page"));
}

#[test]
fn text_of_the_image_is_kept_whatever_its_struct_pages_say() {
    for era in Era::ALL {
        let mut memory = KernelMemory::of(&machine(era, 1));
        let text = memory.make_text();
        let reserved = memory.number("NUMBER(PG_private)") - 1;
        // The last page of text, and the first after it, which the kernel freed.
        for pfn in text.end - 1..text.end + 1 {
            memory.clear_flag(pfn, reserved);
            memory.mapping(pfn, 1);
        }
        let (found, report) = report(&mut memory, text.start / SECTION_PAGES);
        let last = ((text.end - 1) % SECTION_PAGES) as usize;
        assert_eq!(found[last - 1..last + 2], [Kernel_, Undecided, Anon], "{era:?}");
        assert_eq!(report.contradictions, 1, "{era:?}");
        let explained = Kernel::discover(&memory).unwrap().explain(&memory, Pfn::new(text.end - 1)).unwrap();
        assert!(explained.rule.contains("text of the kernel image"), "{era:?}");
        let first = report.inconsistency.unwrap();
        assert!(
            first.pfn == Pfn::new(text.end - 1) && first.what.contains("kernel's text"),
            "{era:?}: {first:?}"
        );
    }
}

fn first_difference(found: &[PageClass], expected: &[PageClass]) -> Option<(usize, PageClass, PageClass)> {
    let index = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
    Some((index, found[index], expected[index]))
}

#[test]
fn gigantic_pages_span_blocks_in_any_order() {
    for era in [Era::V5_10, Era::V6_16, Era::V7_1] {
        let mut memory = KernelMemory::of(machine(era, 8).hugetlb(0, 18));
        for block in [7, 3, 0, 1] {
            let (found, inconsistency) = scan(&mut memory, block);
            assert_eq!((inconsistency, found), (None, vec![HugeTlb; 32768]), "{era:?}, block {block}");
        }
    }
}

#[test]
fn shared_vmemmap_shows_fake_heads() {
    // 5.18 to 7.0 with pointers, 7.1 with masks and a shared page of tails.
    for era in [Era::V6_1, Era::V6_6, Era::V6_16, Era::V7_1] {
        let mut memory =
            KernelMemory::of(machine(era, 2).hugetlb_vmemmap_optimized(512, 9).anon(1024).kernel(1025));
        let (found, inconsistency) = scan(&mut memory, 0);
        assert_eq!(inconsistency, None);
        assert_eq!(found[510..1026], [&[Kernel_; 2][..], &[HugeTlb; 512], &[Anon, Kernel_]].concat());
        // A gigantic page whose second block starts with a fake head.
        let mut memory = KernelMemory::of(machine(era, 8).hugetlb_vmemmap_optimized(0, 18));
        for block in [5, 0] {
            assert_eq!(scan(&mut memory, block), (vec![HugeTlb; 32768], None));
        }
    }
}

#[test]
fn types_in_the_top_byte() {
    let mut machine = machine(Era::V6_16, 1);
    let mut memory = KernelMemory::of(machine.unaccepted(2048, 10).buddy(4096, 10));
    for (pfn, value) in [
        (0, 0xf100_0001), // offline, with its owner's bits below
        (1, 0xf200_0000), // page table
        (2, 0xf600_0010), // zsmalloc
        (3, 0xff00_0000), // mapcount underflow
        (4, 0xfe00_0000),
        (5, -129_i32 as u32), // what buddy was before
    ] {
        memory.mapcount(pfn, value);
        memory.mapping(pfn, 1);
    }
    let found = classes(&mut memory);
    assert_eq!(found[..6], [Offline, PageTable, Kernel_, Kernel_, Kernel_, Kernel_]);
    assert_eq!(found[2047..3073], [&[Kernel_][..], &[Unaccepted; 1024], &[Kernel_]].concat());
    assert_eq!(found[4096..5121], [&[Free; 1024][..], &[Kernel_]].concat());
}

/// Kernels 6.12 to 6.15 have the type and do not export it.
#[test]
fn unaccepted_memory_that_vmcoreinfo_does_not_confirm_is_undecided() {
    let mut memory = KernelMemory::of(machine(Era::V6_12, 1).unaccepted(2048, 10).kernel(2047));
    memory.finish();
    let kernel = Kernel::discover(&memory).unwrap();
    assert_eq!(kernel.undecidable().iter().map(|gap| gap.class).collect::<Vec<_>>(), [Unaccepted]);
    assert_eq!(classes(&mut memory)[2047..2050], [Kernel_, Undecided, Kernel_]);
}

#[test]
fn bit_7_is_not_slab_any_more() {
    let mut memory = KernelMemory::of(machine(Era::V6_10, 1).anon(1).buddy(2, 0));
    memory.flag(1, 7);
    memory.flag(2, 7);
    assert_eq!(classes(&mut memory)[1..3], [Anon, Free]);
}

#[test]
fn what_contradicts_itself_is_kept() {
    let inconsistency = |change: &dyn Fn(&mut KernelMemory)| {
        let mut memory = KernelMemory::of(machine(Era::V6_16, 1).anon_folio(8, 2));
        change(&mut memory);
        let (found, inconsistency) = scan(&mut memory, 0);
        (found[8..13].to_vec(), inconsistency.unwrap_or_default())
    };
    let anon = [Anon, Anon, Anon, Anon, Kernel_];
    assert_eq!(inconsistency(&|_| {}), (anon.to_vec(), String::new()));
    // An order that takes in the neighbours: they speak for themselves.
    assert_eq!(inconsistency(&|memory| memory.put_u64(memory.at(9), 3)).0, anon);
    // An order that leaves out tails, or that no page can have.
    assert_eq!(
        inconsistency(&|memory| memory.put_u64(memory.at(9), 1)).0,
        [Anon, Anon, Undecided, Undecided, Kernel_]
    );
    for order in [0, 19, 200] {
        let (found, what) = inconsistency(&|memory| memory.put_u64(memory.at(9), order));
        assert_eq!(found[..4], [Undecided; 4]);
        assert!(what.contains("order"), "{what}");
    }
    // The head lost its flag, or the tails their head.
    let (found, what) = inconsistency(&|memory| memory.put_u64(memory.at(8), 0));
    assert_eq!(
        (&found[1..4], what.as_str()),
        (&[Undecided; 3][..], "a tail page names a head without PG_head")
    );
    let (found, what) = inconsistency(&|memory| memory.put_u64(memory.at(10) + 8, 0xffff_8880_0000_0041));
    assert_eq!(found[..4], [Anon, Anon, Undecided, Anon]);
    assert!(what.contains("not a struct page near it"), "{what}");
    // Free blocks of impossible size or place.
    for (pfn, order) in [(8, 11), (8, u64::MAX), (9, 1)] {
        let mut memory = KernelMemory::of(machine(Era::V6_16, 1).buddy(pfn, 0));
        memory.private(pfn, order);
        let (found, inconsistency) = scan(&mut memory, 0);
        assert_eq!((found[pfn as usize], found[pfn as usize + 1]), (Undecided, Kernel_));
        assert!(inconsistency.unwrap().contains("free block"));
    }
}

#[test]
fn missing_keys_keep_pages_and_say_so() {
    let without = |keys: &[&str]| {
        let mut memory = KernelMemory::of(machine(Era::V5_10, 1).anon(1).cache(2).buddy(4, 2));
        memory.remove_lines(keys);
        memory.finish();
        let gaps = Kernel::discover(&memory).unwrap().undecidable().to_vec();
        (classes(&mut memory)[1..6].to_vec(), gaps.iter().map(|gap| gap.class).collect::<Vec<_>>())
    };
    let rest = |first, second, free| vec![first, second, Kernel_, free, free];
    assert_eq!(without(&[]), (rest(Anon, Cache, Free), vec![]));
    assert_eq!(without(&["PG_slab"]), (rest(Undecided, Cache, Free), vec![Anon]));
    assert_eq!(without(&["PG_private"]), (rest(Anon, CachePrivate, Free), vec![Cache]));
    assert_eq!(without(&["PG_swapbacked"]), (rest(Anon, Cache, Free), vec![Cache]));
    assert_eq!(without(&["OFFLINE"]), (rest(Anon, Cache, Free), vec![Offline]));
    let kept = vec![Anon, Cache, Kernel_, Undecided, Kernel_];
    assert_eq!(without(&["zone.free_area"]), (kept, vec![Free]));
    assert_eq!(without(&["BUDDY"]), (rest(Anon, Cache, Kernel_), vec![Free]));
}

#[test]
fn kernels_that_export_no_compound_keys() {
    // 4.4.0: tails are recognized by the first word of `lru`; heads by the flag, and their size by the tails.
    let mut memory = KernelMemory::of(machine(Era::V4_4, 1).anon_thp(512).compound(2048, 3));
    // What lies over `mapping` in the first tail from 4.5 on looks anonymous.
    memory.mapping(2049, u64::MAX);
    memory.remove_lines(&["compound"]);
    let found = classes(&mut memory);
    assert_eq!(found[511..1025], [&[Kernel_][..], &[Anon; 512], &[Kernel_]].concat());
    assert_eq!(found[2048..2058], [Kernel_; 10]);
}

#[test]
fn any_size_and_any_window() {
    // 56 bytes, scattered 4 KiB pages of vmemmap, windows that end anywhere: pages still come out the same.
    for size in [56, 64, 72, 80] {
        let build = |memmap| {
            let mut machine = machine(Era::V6_16, 2);
            machine.struct_page(size).memmap(memmap);
            for pfn in 0..65536_u64 {
                match ((pfn * 2654435761) >> 7) & 7 {
                    // Across the boundary of pages of struct pages, and of blocks.
                    _ if pfn.is_multiple_of(64) => machine.anon_folio(pfn, 3),
                    _ if pfn % 64 < 8 => &mut machine,
                    0 | 1 => machine.anon(pfn),
                    2 => machine.cache(pfn),
                    3 => machine.slab(pfn, 0),
                    _ => &mut machine,
                };
            }
            KernelMemory::of(&machine)
        };
        let mut whole = build(Memmap::VmemmapLarge);
        let mut scattered = build(Memmap::VmemmapSmall);
        scattered.window = 1000;
        for block in 0..2 {
            let (whole, scattered) = (scan(&mut whole, block), scan(&mut scattered, block));
            assert_eq!(whole.1, None);
            assert_eq!(first_difference(&scattered.0, &whole.0), None, "{size} bytes, block {block}");
        }
    }
}

#[test]
fn struct_pages_that_are_not_there() {
    let mut machine = machine(Era::V6_16, 4);
    machine.memmap(Memmap::VmemmapSmall);
    for pfn in 0..256 {
        machine.anon(pfn);
    }
    let mut memory = KernelMemory::of(&machine);
    memory.unmap(memory.vat(64));
    memory.lost.insert(memory.at(128) >> 12);
    let (found, inconsistency) = scan(&mut memory, 0);
    assert_eq!(found[..256], [[Anon; 64], [Absent; 64], [Undecided; 64], [Anon; 64]].concat());
    assert!(inconsistency.unwrap().contains("is excluded from the dump"));
    // Sections that are not: never there, removed with everything but these flags left (5.3), beyond the
    // table.
    memory.set_section(1, 0);
    memory.set_section(2, memory.vat(0) | 0b1100);
    memory.set_section(3, 0b01);
    for block in [1, 2, 3, 5, 300, 1 << 20] {
        assert_eq!(scan(&mut memory, block), (vec![Absent; 32768], None), "block {block}");
    }
    // Flags of later kernels next to the address: taint, preinit.
    memory.set_section(0, memory.vat(0) | 0b11_1111);
    assert_eq!(scan(&mut memory, 0).0[..64], [Anon; 64]);
    memory.finish();
    let kernel = Kernel::discover(&memory).unwrap();
    let mut scanner = PageScanner::new(&kernel, memory.view());
    assert!(scanner.scan(u64::MAX, &mut [Absent; 8]).is_err());
}

#[test]
fn a_scan_passes_every_page_once_with_its_struct_page() {
    for era in Era::ALL {
        // Windows of a struct page and a half: some lie across two.
        for window in [usize::MAX, 4096, 96] {
            let mut machine = machine(era, 1);
            machine.populate(0, 2048, 11).hugetlb(4096, 9);
            let mut memory = KernelMemory::of(&machine);
            memory.window = window;
            memory.finish();
            let kernel = Kernel::discover(&memory).unwrap();
            let mut out = vec![Absent; kernel.pages_per_block()];
            let mut passed: Vec<(PageClass, u64)> = Vec::new();
            let mut next = 0;
            let mut scanner = PageScanner::new(&kernel, memory.view());
            scanner
                .scan_with(0, &mut out, |scanned| {
                    assert_eq!(scanned.first_pfn().number(), next, "{era:?}");
                    for (index, class) in scanned.classes().iter().enumerate() {
                        let page = scanned.page(index);
                        assert_eq!(page.address(), memory.vat(next));
                        passed.push((*class, page.flags()));
                        next += 1;
                    }
                })
                .unwrap();
            let flags = |pfn: u64| memory.get_u64(memory.at(pfn));
            let expected: Vec<_> = out.iter().zip(0..).map(|(class, pfn)| (*class, flags(pfn))).collect();
            assert!(passed == expected, "{era:?}, windows of {window} bytes");
        }
    }
}
