//! Finding out about a kernel, and translating its addresses.

mod machine;

use machine::{Layout, Machine, START_KERNEL_MAP};
use pagehaul_kernel::{Hints, Kernel, KernelError, PageClass, PageScanner, TranslateError};
use pagehaul_physmem::PhysMemory;

fn discover(machine: &mut Machine) -> Result<Kernel, KernelError> {
    machine.finish();
    Kernel::discover(machine, Hints::default())
}

fn without(machine: &mut Machine, key: &str) {
    machine.text = machine
        .text
        .lines()
        .filter(|line| !line.contains(key))
        .fold(String::new(), |text, line| text + line + "\n");
}

#[test]
fn says_what_the_kernel_is() {
    let mut machine = Machine::new(Layout::v6_16(), 1);
    machine.text += "BUILD-ID=f7d846d4c163e61fd14ad2031bc8192cac70cceb\n";
    let kernel = discover(&mut machine).unwrap();
    assert_eq!(kernel.release(), "6.16.9");
    assert_eq!(kernel.crash_time(), Some(1_750_000_000));
    assert_eq!(kernel.build_id(), Some("f7d846d4c163e61fd14ad2031bc8192cac70cceb"));
    assert_eq!((kernel.machine(), kernel.pages_per_block(), kernel.phys_base()), ("x86_64", 32768, 0));
    assert_eq!((kernel.blocks(0), kernel.blocks(1), kernel.blocks(32769)), (0, 1, 2));
    assert_eq!(kernel.block_pfns(2), 65536..98304);
    assert!(kernel.undecidable().is_empty());
}

#[test]
fn refuses_what_it_does_not_know_in_one_sentence() {
    let error = |change: &dyn Fn(&mut Machine)| {
        let mut machine = Machine::new(Layout::v6_16(), 1);
        change(&mut machine);
        discover(&mut machine).unwrap_err().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut Machine);
    let cases: [(Change<'_>, &str); 9] = [
        (
            &|machine| {
                without(machine, "init_top_pgt");
                machine.text += "NUMBER(kimage_voffset)=0xffff7fffd0000000\n";
            },
            "this kernel is for arm64; only x86_64 kernels are supported",
        ),
        (&|machine| without(machine, "init_top_pgt"), "neither SYMBOL(init_top_pgt) nor"),
        (
            &|machine| {
                without(machine, "mem_section");
                machine.text += "SYMBOL(mem_map)=ffffffff82000000\n";
            },
            "uses the FLATMEM memory model; only SPARSEMEM is supported",
        ),
        (
            &|machine| {
                without(machine, "mem_section");
                machine.text += "OFFSET(pglist_data.node_mem_map)=8\n";
            },
            "uses the DISCONTIGMEM memory model",
        ),
        (
            &|machine| without(machine, "SIZE(page)"),
            "VMCOREINFO has no SIZE(page), needed for reading struct pages",
        ),
        (
            &|machine| machine.text = machine.text.replace("SIZE(page)=64", "SIZE(page)=65"),
            "SIZE(page)=65, but",
        ),
        (
            &|machine| machine.text = machine.text.replace("page.flags)=0", "page.flags)=57"),
            "page.flags)=57, but the field",
        ),
        (
            &|machine| machine.text = machine.text.replace("PAGESIZE=4096", "PAGESIZE=65536"),
            "PAGESIZE=65536, but",
        ),
        (
            &|machine| machine.remove_section(0, 0),
            "neither there nor where it points is a table of memory sections",
        ),
    ];
    for (change, expected) in cases {
        let error = error(change);
        assert!(error.contains(expected), "{error}");
    }
    let machine = Machine::new(Layout::v6_16(), 1);
    assert!(matches!(Kernel::discover(&machine, Hints::default()), Err(KernelError::NoVmcoreInfo)));
}

#[test]
fn translates_leaves_of_every_size() {
    let mut machine = Machine::new(Layout::v6_16(), 1);
    let base = 0xffff_c900_0000_0000;
    machine.map(base, 0x12_3000, 1);
    machine.map(base + 0x20_0000, 0x4000_0000, 2);
    machine.map(base + 0x4000_0000, 0x80_4000_0000, 3);
    let kernel = discover(&mut machine).unwrap();
    let mut view = machine.view();
    let mut at =
        |vaddr| kernel.translator().translate(view.as_mut(), vaddr).map(|extent| (extent.paddr, extent.len));
    assert_eq!(at(base + 0x123).unwrap(), (0x12_3123, 0xedd));
    assert_eq!(at(base + 0x20_0001).unwrap(), (0x4000_0001, 0x1f_ffff));
    assert_eq!(at(base + 0x4000_0000).unwrap(), (0x80_4000_0000, 0x4000_0000));
    assert_eq!(at(START_KERNEL_MAP + 0x123_4567).unwrap(), (0x123_4567, 0x20_0000 - 0x3_4567));
    assert!(matches!(at(base + 0x1000), Err(TranslateError::NotMapped { level: 1, .. })));
    assert!(matches!(at(base + 0x8000_0000), Err(TranslateError::NotMapped { level: 3, .. })));
    assert!(matches!(at(0xffff_d900_0000_0000), Err(TranslateError::NotMapped { level: 4, .. })));
    assert!(matches!(at(0x0000_9000_0000_0000), Err(TranslateError::NotCanonical { .. })));
}

#[test]
fn tables_beyond_memory_and_leaves_where_none_can_be() {
    let mut machine = Machine::new(Layout::v6_16(), 1);
    let pgd = 0x10_0000;
    machine.put_u64(pgd + 8, 0x000f_ffff_0000_0063);
    machine.put_u64(pgd + 16, 0x0000_0000_0000_00e3);
    let kernel = discover(&mut machine).unwrap();
    let mut view = machine.view();
    let error = kernel.translator().translate(view.as_mut(), 1 << 39).unwrap_err();
    assert!(
        matches!(error, TranslateError::Unreadable { level: 3, entry_at: 0x000f_ffff_0000_0000, .. }),
        "{error}"
    );
    let error = kernel.translator().translate(view.as_mut(), 2 << 39).unwrap_err();
    assert!(matches!(error, TranslateError::BadEntry { level: 4, entry: 0xe3, .. }), "{error}");
}

#[test]
fn five_levels() {
    let mut machine = Machine::new(Layout::v6_16(), 1);
    machine.anon(5);
    // A new top table whose last entry is the old one; 5-level addresses differ from bit 48 on.
    let top = 0x18_0000;
    machine.put_u64(top + 511 * 8, 0x10_0063);
    machine.text = machine.text.replace("init_top_pgt)=ffffffff80100000", "init_top_pgt)=ffffffff80180000");
    machine.text += "NUMBER(pgtable_l5_enabled)=1\nNUMBER(MAX_PHYSMEM_BITS)=46\n";
    let kernel = discover(&mut machine).unwrap();
    assert_eq!(kernel.translator().levels(), 5);
    let mut out = vec![PageClass::Absent; 32768];
    PageScanner::new(&kernel, machine.view()).scan(0, &mut out).unwrap();
    assert_eq!(out[5], PageClass::Anon);
    let mut view = machine.view();
    assert!(matches!(
        kernel.translator().translate(view.as_mut(), 0x0100_0000_0000_0000),
        Err(TranslateError::NotCanonical { .. })
    ));
}

#[test]
fn encryption_bits_are_no_address() {
    let mut machine = Machine::new(Layout::v6_16(), 1);
    machine.anon(5);
    let mask = 1u64 << 47;
    // Encrypt every entry of every table that is in use.
    for at in (0x10_0000..0x10_1000).chain(0x30_0000..0x40_0000).step_by(8) {
        if machine.get_u64(at) & 1 != 0 {
            machine.put_u64(at, machine.get_u64(at) | mask);
        }
    }
    machine.text += &format!("NUMBER(sme_mask)={mask}\n");
    let kernel = discover(&mut machine).unwrap();
    let mut out = vec![PageClass::Absent; 32768];
    PageScanner::new(&kernel, machine.view()).scan(0, &mut out).unwrap();
    assert_eq!(out[5], PageClass::Anon);
}

#[test]
fn mem_section_may_be_a_pointer_to_the_table() {
    // 4.15 exported where the pointer is.
    let mut machine = Machine::new(Layout::v5_10(), 1);
    machine.put_u64(0x19_0000, 0xffff_8880_0020_0000);
    machine.text = machine.text.replace("mem_section)=ffff888000200000", "mem_section)=ffffffff80190000");
    machine.anon(1);
    let kernel = discover(&mut machine).unwrap();
    let mut out = vec![PageClass::Absent; 32768];
    PageScanner::new(&kernel, machine.view()).scan(0, &mut out).unwrap();
    assert_eq!(out[1], PageClass::Anon);
}

#[test]
fn sections_without_roots() {
    // SPARSEMEM without EXTREME: the table is of entries, one per section.
    let mut machine = Machine::new(Layout::v5_10(), 2);
    machine.text = machine
        .text
        .replace("mem_section)=ffff888000200000", "mem_section)=ffff888000208000")
        .replace("LENGTH(mem_section)=2048", "LENGTH(mem_section)=524288");
    machine.anon(32769);
    let kernel = discover(&mut machine).unwrap();
    let mut out = vec![PageClass::Absent; 32768];
    PageScanner::new(&kernel, machine.view()).scan(1, &mut out).unwrap();
    assert_eq!(out[1], PageClass::Anon);
}

#[test]
fn old_kernels_do_not_say_where_they_are() {
    let moved = 0x40_0000u64;
    let build = |base: u64| {
        let mut machine = Machine::new(Layout::v4_4(), 1);
        without(&mut machine, "phys_base");
        // The image's symbols, further down by `base` in virtual memory than in physical.
        let symbol = |paddr: u64| START_KERNEL_MAP.wrapping_add(paddr).wrapping_sub(base);
        machine.text = machine.text.replace("ffffffff80100000", &format!("{:x}", symbol(0x10_0000)));
        machine.text += &format!(
            "SYMBOL(phys_base)={:x}\nSYMBOL(init_uts_ns)={:x}\n",
            symbol(moved + 0x1010),
            symbol(moved + 0x2000)
        );
        machine.put_u64(moved + 0x1010, base);
        let name = (moved + 0x2000 + 4 + 130) as usize;
        machine.memory[name..name + 7].copy_from_slice(b"4.4.302");
        machine
    };
    for base in [0, 0u64.wrapping_sub(0x20_0000), 0u64.wrapping_sub(0x1000_0000)] {
        let mut machine = build(base);
        assert_eq!(discover(&mut machine).unwrap().phys_base(), base);
    }
    // Without its witness the search finds nothing; the source may know.
    let base = 0u64.wrapping_sub(0x20_0000);
    let mut machine = build(base);
    machine.memory[(moved + 0x2000) as usize..][..512].fill(0);
    let error = discover(&mut machine).unwrap_err().to_string();
    assert!(error.contains("no NUMBER(phys_base)"), "{error}");
    let kernel = Kernel::discover(&machine, Hints { phys_base: Some(base) }).unwrap();
    assert_eq!(kernel.phys_base(), base);
}
