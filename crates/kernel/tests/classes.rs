//! Each rule, on each layout that it has taken.

mod machine;

use machine::{Layout, Machine};
use pagehaul_kernel::PageClass::{self, *};
use pagehaul_kernel::{Hints, Kernel, PageScanner};

fn classes(machine: &mut Machine) -> Vec<PageClass> {
    scan(machine, 0).0
}

/// The classes of a block's pages and what was wrong.
fn scan(machine: &mut Machine, block: u64) -> (Vec<PageClass>, Option<String>) {
    machine.finish();
    let kernel = Kernel::discover(machine, Hints::default()).unwrap();
    let mut out = vec![Absent; kernel.pages_per_block()];
    let report =
        PageScanner::new(&kernel, pagehaul_physmem::PhysMemory::view(machine)).scan(block, &mut out).unwrap();
    assert_eq!(report.pages.iter().sum::<u64>(), out.len() as u64);
    for class in PageClass::ALL {
        assert_eq!(report.pages[class as usize], out.iter().filter(|found| **found == class).count() as u64);
    }
    (out, report.trouble.map(|trouble| trouble.what))
}

#[test]
fn single_pages() {
    for layout in Layout::all() {
        let release = layout.info.lines().next().unwrap().to_owned();
        let mut machine = Machine::new(layout, 1);
        let private = machine.layout.private_bit;
        machine.anon(1);
        machine.cache(2);
        machine.cache(3);
        machine.flag(3, private);
        machine.slab(4);
        machine.free(8, 3);
        machine.flag(17, machine.layout.hwpoison);
        // Shmem in the swap cache, off the LRU lists.
        machine.flag(18, machine.layout.swapcache);
        machine.flag(18, machine.layout.swapbacked);
        // A page of a driver that can be moved (4.8 to 6.16): neither anonymous nor cache.
        machine.mapping(19, 0xffff_ffff_c012_3002);
        // KSM.
        machine.flag(20, machine.layout.lru);
        machine.mapping(20, 0xffff_8881_0000_0003);
        // A filesystem's flag that became the swap cache's alias in 4.10, without what makes it one.
        machine.flag(21, if machine.layout.buddy == -128 { 8 } else { machine.layout.swapcache });
        // A free block with a poisoned page inside.
        machine.free(32, 2);
        machine.flag(33, machine.layout.hwpoison);
        let found = classes(&mut machine);
        assert_eq!(found[..5], [Kernel_, Anon, Cache, CachePrivate, Slab], "{release}");
        assert_eq!(found[7..17], [&[Kernel_][..], &[Free; 8], &[Kernel_]].concat(), "{release}");
        assert_eq!(found[17..23], [HwPoison, Cache, Kernel_, Anon, Kernel_, Kernel_], "{release}");
        assert_eq!(found[32..37], [Free, HwPoison, Free, Free, Kernel_], "{release}");
    }
}

#[allow(non_upper_case_globals, reason = "beside the type of the same name")]
const Kernel_: PageClass = PageClass::Kernel;

#[test]
fn compound_pages_are_wholes() {
    for layout in Layout::all() {
        let release = layout.info.lines().next().unwrap().to_owned();
        let mut machine = Machine::new(layout, 1);
        machine.anon(512);
        machine.compound(512, 9);
        machine.flag(700, machine.layout.hwpoison);
        machine.cache(1024);
        machine.compound(1024, 2);
        machine.slab(1032);
        machine.compound(1032, 3);
        machine.compound(1040, 4);
        machine.hugetlb(2048, 9);
        // A bad page among hugetlb's: the head says so for all.
        machine.hugetlb(4096, 9);
        machine.flag(4096, machine.layout.hwpoison);
        let (found, trouble) = scan(&mut machine, 0);
        assert_eq!(trouble, None, "{release}");
        let mut expected = vec![Kernel_; 32768];
        expected[512..1024].fill(Anon);
        expected[700] = HwPoison;
        expected[1024..1028].fill(Cache);
        expected[1032..1040].fill(Slab);
        expected[2048..2560].fill(HugeTlb);
        expected[4096..4608].fill(HwPoison);
        assert_eq!(first_difference(&found, &expected), None, "{release}");
    }
}

fn first_difference(found: &[PageClass], expected: &[PageClass]) -> Option<(usize, PageClass, PageClass)> {
    let index = found.iter().zip(expected).position(|(found, expected)| found != expected)?;
    Some((index, found[index], expected[index]))
}

#[test]
fn gigantic_pages_span_blocks_in_any_order() {
    for layout in [Layout::v5_10(), Layout::v6_16(), Layout::v7_1()] {
        let mut machine = Machine::new(layout, 8);
        machine.hugetlb(0, 18);
        for block in [7, 3, 0, 1] {
            let (found, trouble) = scan(&mut machine, block);
            assert_eq!((trouble, found), (None, vec![HugeTlb; 32768]), "block {block}");
        }
    }
}

#[test]
fn shared_vmemmap_shows_fake_heads() {
    // 5.18 to 7.0 with pointers; 7.1 with masks shares a page of tails, as the last of these does.
    for layout in [Layout::v5_10(), Layout::v6_6(), Layout::v6_16()] {
        let mut machine = Machine::new(layout, 2);
        machine.hugetlb(512, 9);
        machine.share_vmemmap(512, 9);
        machine.anon(1024);
        let (found, trouble) = scan(&mut machine, 0);
        assert_eq!(trouble, None);
        assert_eq!(found[510..1026], [&[Kernel_; 2][..], &[HugeTlb; 512], &[Anon, Kernel_]].concat());
    }
    // A gigantic page whose second block starts with a fake head.
    let mut machine = Machine::new(Layout::v6_16(), 8);
    machine.hugetlb(0, 18);
    machine.share_vmemmap(0, 18);
    for block in [5, 0] {
        assert_eq!(scan(&mut machine, block), (vec![HugeTlb; 32768], None));
    }
    let mut machine = Machine::new(Layout::v7_1(), 1);
    machine.hugetlb(512, 9);
    for page in 2..8 {
        machine.map(machine.vat(512) + page * 4096, machine.at(512) + 4096, 1);
    }
    let (found, trouble) = scan(&mut machine, 0);
    assert_eq!(trouble, None);
    assert_eq!(found[512..1025], [&[HugeTlb; 512][..], &[Kernel_]].concat());
}

#[test]
fn types_in_the_top_byte() {
    let mut machine = Machine::new(Layout::v6_16(), 1);
    for (pfn, value) in [
        (0, 0xf100_0001), // offline, with its owner's bits below
        (1, 0xf200_0000), // page table
        (2, 0xf600_0010), // zsmalloc
        (3, 0xff00_0000), // mapcount underflow
        (4, 0xfe00_0000),
        (5, -129_i32 as u32), // what buddy was before
    ] {
        machine.mapcount(pfn, value);
        machine.mapping(pfn, 1);
    }
    machine.mapcount(2048, 0xf700_0000);
    machine.free(4096, 10);
    let found = classes(&mut machine);
    assert_eq!(found[..6], [Offline, PageTable, Kernel_, Kernel_, Kernel_, Kernel_]);
    assert_eq!(found[2047..3073], [&[Kernel_][..], &[Unaccepted; 1024], &[Kernel_]].concat());
    assert_eq!(found[4096..5121], [&[Free; 1024][..], &[Kernel_]].concat());
}

#[test]
fn bit_7_is_not_slab_any_more() {
    let mut machine = Machine::new(Layout::v6_10(), 1);
    machine.anon(1);
    machine.flag(1, 7);
    machine.flag(2, 7);
    machine.free(2, 0);
    assert_eq!(classes(&mut machine)[1..3], [Anon, Free]);
}

#[test]
fn what_contradicts_itself_is_kept() {
    let trouble = |build: &dyn Fn(&mut Machine)| {
        let mut machine = Machine::new(Layout::v6_16(), 1);
        machine.anon(8);
        machine.compound(8, 2);
        build(&mut machine);
        let (found, trouble) = scan(&mut machine, 0);
        (found[8..13].to_vec(), trouble.unwrap_or_default())
    };
    let anon = [Anon, Anon, Anon, Anon, Kernel_];
    assert_eq!(trouble(&|_| {}), (anon.to_vec(), String::new()));
    // An order that takes in the neighbours: they speak for themselves.
    assert_eq!(trouble(&|machine| machine.put_u64(machine.at(9), 3)).0, anon);
    // An order that leaves out tails, or that none can have.
    assert_eq!(
        trouble(&|machine| machine.put_u64(machine.at(9), 1)).0,
        [Anon, Anon, Undecided, Undecided, Kernel_]
    );
    for order in [0, 19, 200] {
        let (found, what) = trouble(&|machine| machine.put_u64(machine.at(9), order));
        assert_eq!(found[..4], [Undecided; 4]);
        assert!(what.contains("order"), "{what}");
    }
    // The head lost its flag, or the tails their head.
    let (found, what) = trouble(&|machine| machine.put_u64(machine.at(8), 0));
    assert_eq!((&found[1..4], what.as_str()), (&[Undecided; 3][..], "a tail page names a head that is none"));
    let (found, what) = trouble(&|machine| machine.put_u64(machine.at(10) + 8, 0xffff_8880_0000_0041));
    assert_eq!(found[..4], [Anon, Anon, Undecided, Anon]);
    assert!(what.contains("no struct page near it"), "{what}");
    // Free blocks of impossible size or place.
    for (pfn, order) in [(8, 11), (8, u64::MAX), (9, 1)] {
        let mut machine = Machine::new(Layout::v6_16(), 1);
        machine.free(pfn, order);
        let (found, trouble) = scan(&mut machine, 0);
        assert_eq!((found[pfn as usize], found[pfn as usize + 1]), (Undecided, Kernel_));
        assert!(trouble.unwrap().contains("free block"));
    }
}

#[test]
fn missing_keys_keep_pages_and_say_so() {
    let without = |keys: &[&str]| {
        let mut machine = Machine::new(Layout::v5_10(), 1);
        machine.anon(1);
        machine.cache(2);
        machine.free(4, 2);
        machine.text = machine
            .text
            .lines()
            .filter(|line| !keys.iter().any(|key| line.contains(key)))
            .fold(String::new(), |text, line| text + line + "\n");
        machine.finish();
        let gaps = Kernel::discover(&machine, Hints::default()).unwrap().undecidable().to_vec();
        (classes(&mut machine)[1..6].to_vec(), gaps.iter().map(|gap| gap.class).collect::<Vec<_>>())
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
    // 4.4.0: tails are told by the first word of `lru`; heads by the flag, and their size by the tails.
    let mut machine = Machine::new(Layout::v4_4(), 1);
    machine.anon(512);
    machine.compound(512, 9);
    // What lies over `mapping` in the first tail from 4.5 on looks anonymous.
    machine.compound(2048, 3);
    machine.mapping(2049, u64::MAX);
    machine.text = machine
        .text
        .lines()
        .filter(|line| !line.contains("compound"))
        .fold(String::new(), |text, line| text + line + "\n");
    let found = classes(&mut machine);
    assert_eq!(found[511..1025], [&[Kernel_][..], &[Anon; 512], &[Kernel_]].concat());
    assert_eq!(found[2048..2058], [Kernel_; 10]);
}

#[test]
fn any_size_and_any_window() {
    // 56 bytes, scattered 4 KiB pages of vmemmap, windows that end anywhere: pages still come out the same.
    for size in [56, 64, 72, 80] {
        let layout = Layout { size, ..Layout::v6_16() };
        let build = || {
            let mut machine = Machine::new(layout.clone(), 2);
            for pfn in 0..65536 {
                match ((pfn * 2654435761) >> 7) & 7 {
                    0 | 1 => machine.anon(pfn),
                    2 => machine.cache(pfn),
                    3 => machine.slab(pfn),
                    _ => {}
                }
            }
            // Across the boundary of pages of struct pages, and of blocks.
            for pfn in (0..32768).step_by(64) {
                for inside in pfn..pfn + 8 {
                    let at = machine.at(inside) as usize;
                    machine.memory[at..at + size as usize].fill(0);
                    machine.mapcount(inside, u32::MAX);
                }
                machine.anon(pfn);
                machine.compound(pfn, 3);
            }
            machine
        };
        let mut whole = build();
        let mut cut = build();
        cut.window = 1000;
        // Swap two pages of the vmemmap, in place and in the page tables.
        let (one, other) = (cut.at(0) & !0xfff, (cut.at(0) & !0xfff) + 4096);
        for byte in 0..4096 {
            cut.memory.swap((one + byte) as usize, (other + byte) as usize);
        }
        cut.map(machine::VMEMMAP, other, 1);
        cut.map(machine::VMEMMAP + 4096, one, 1);
        for block in 0..2 {
            let (whole, cut) = (scan(&mut whole, block), scan(&mut cut, block));
            assert_eq!(whole.1, None);
            assert_eq!(first_difference(&cut.0, &whole.0), None, "{size} bytes, block {block}");
        }
    }
}

#[test]
fn struct_pages_that_are_not_there() {
    let mut machine = Machine::new(Layout::v6_16(), 4);
    for pfn in 0..256 {
        machine.anon(pfn);
    }
    machine.unmap(machine.vat(64));
    machine.lost.insert(machine.at(128) >> 12);
    let (found, trouble) = scan(&mut machine, 0);
    assert_eq!(found[..256], [[Anon; 64], [Absent; 64], [Undecided; 64], [Anon; 64]].concat());
    assert!(trouble.unwrap().contains("was left out of the dump"));
    // Sections that are not: never there, removed with everything but these flags left (5.3), beyond the table.
    machine.remove_section(1, 0);
    machine.remove_section(2, machine::VMEMMAP | 0b1100);
    machine.remove_section(3, 0b01);
    for block in [1, 2, 3, 4, 300, 1 << 20] {
        assert_eq!(scan(&mut machine, block), (vec![Absent; 32768], None), "block {block}");
    }
    machine.finish();
    let kernel = Kernel::discover(&machine, Hints::default()).unwrap();
    let mut scanner = PageScanner::new(&kernel, pagehaul_physmem::PhysMemory::view(&machine));
    assert!(scanner.scan(u64::MAX, &mut [Absent; 8]).is_err());
}
