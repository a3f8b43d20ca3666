//! Finding out about a kernel, and translating its addresses.

mod machine;

use machine::{KernelMemory, machine};
use pagehaul_kernel::{Kernel, KernelError, PageClass, PageScanner, TranslateError};
use pagehaul_machine::{KernelMapping, Pfn, PhysAddr, VirtAddr};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::{Era, Machine};

fn discover(memory: &mut KernelMemory) -> Result<Kernel, KernelError> {
    memory.finish();
    Kernel::discover(memory)
}

#[test]
fn says_what_the_kernel_is() {
    let mut memory = KernelMemory::of(machine(Era::V6_16, 1).info("BUILD-ID", "f7d846d4c163e61fd14ad203"));
    let kernel = discover(&mut memory).unwrap();
    assert_eq!(kernel.space().release(), Era::V6_16.release());
    assert_eq!(kernel.space().crash_time(), Some(1_750_000_000));
    assert_eq!(kernel.space().build_id(), Some("f7d846d4c163e61fd14ad203"));
    let load = (1 << 27) - 0x100_0000;
    assert_eq!((kernel.pages_per_block(), kernel.space().phys_base()), (32768, load));
    assert_eq!([0, 1, 32769].map(|end| kernel.blocks(Pfn::new(end))), [0, 1, 2]);
    assert_eq!(kernel.block_pfns(2), Pfn::new(65536)..Pfn::new(98304));
    assert!(kernel.undecidable().is_empty());
}

#[test]
fn refuses_what_it_does_not_know_in_one_sentence() {
    let error = |change: &dyn Fn(&mut KernelMemory)| {
        let mut memory = KernelMemory::of(&machine(Era::V6_16, 1));
        change(&mut memory);
        discover(&mut memory).unwrap_err().to_string()
    };
    type Change<'a> = &'a dyn Fn(&mut KernelMemory);
    let cases: [(Change<'_>, &str); 10] = [
        (
            &|memory| {
                memory.remove_lines(&["init_top_pgt"]);
                memory.text += "SYMBOL(lowcore_ptr)=1a00\n";
            },
            "this kernel is for s390; only x86_64, arm64 and riscv64 kernels are supported",
        ),
        (
            &|memory| {
                memory.remove_lines(&["init_top_pgt"]);
                memory.text += "NUMBER(kimage_voffset)=0xffff7fffd0000000\n";
            },
            "VMCOREINFO has no NUMBER(VA_BITS), needed for the kernel's page tables",
        ),
        (
            &|memory| memory.remove_lines(&["init_top_pgt"]),
            "VMCOREINFO lacks SYMBOL(init_top_pgt) or SYMBOL(init_level4_pgt), which x86_64 kernels export",
        ),
        (
            &|memory| {
                memory.remove_lines(&["mem_section"]);
                memory.text += "SYMBOL(mem_map)=ffffffff82000000\n";
            },
            "uses the FLATMEM memory model; only SPARSEMEM is supported",
        ),
        (
            &|memory| {
                memory.remove_lines(&["mem_section"]);
                memory.text += "OFFSET(pglist_data.node_mem_map)=8\n";
            },
            "uses the DISCONTIGMEM memory model",
        ),
        (
            &|memory| memory.remove_lines(&["SIZE(page)"]),
            "VMCOREINFO has no SIZE(page), needed for reading struct pages",
        ),
        (&|memory| memory.text = memory.text.replace("SIZE(page)=64", "SIZE(page)=65"), "SIZE(page)=65, but"),
        (
            &|memory| memory.text = memory.text.replace("page.flags)=0", "page.flags)=57"),
            "page.flags)=57, but the field",
        ),
        (
            &|memory| memory.text = memory.text.replace("PAGESIZE=4096", "PAGESIZE=65536"),
            "PAGESIZE=65536, but",
        ),
        (
            &|memory| (0..2).for_each(|section| memory.set_section(section, 0)),
            "neither there nor where it points is a table of memory sections",
        ),
    ];
    for (change, expected) in cases {
        let error = error(change);
        assert!(error.contains(expected), "{error}");
    }
    let memory = KernelMemory::of(&machine(Era::V6_16, 1));
    assert!(matches!(Kernel::discover(&memory), Err(KernelError::NoVmcoreInfo)));
}

#[test]
fn translates_leaves_of_every_size() {
    let base = 0xffff_c900_0000_0000;
    let mut machine = Machine::new(Era::V6_16);
    machine.map(base, 0x12_3000, 0x1000).map(base + 0x20_0000, 0x4000_0000, 0x20_0000);
    machine.map(base + 0x4000_0000, 0x80_4000_0000, 0x4000_0000);
    let mut memory = KernelMemory::of(&machine);
    let kernel = discover(&mut memory).unwrap();
    let mut view = memory.view();
    let mut at = |vaddr| {
        kernel.space().translator().translate(view.as_mut(), vaddr).map(|extent| (extent.paddr, extent.len))
    };
    assert_eq!(at(base + 0x123).unwrap(), (0x12_3123, 0xedd));
    assert_eq!(at(base + 0x20_0001).unwrap(), (0x4000_0001, 0x1f_ffff));
    assert_eq!(at(base + 0x4000_0000).unwrap(), (0x80_4000_0000, 0x4000_0000));
    let (text, load) = memory.image.text();
    assert_eq!(at(text + 0x3_4567).unwrap(), (load + 0x3_4567, 0x20_0000 - 0x3_4567));
    assert!(matches!(at(base + 0x1000), Err(TranslateError::NotMapped { level: 1, .. })));
    assert!(matches!(at(base + 0x8000_0000), Err(TranslateError::NotMapped { level: 3, .. })));
    assert!(matches!(at(0xffff_d900_0000_0000), Err(TranslateError::NotMapped { level: 4, .. })));
    assert!(matches!(at(0x0000_9000_0000_0000), Err(TranslateError::NotCanonical { .. })));
}

#[test]
fn tables_beyond_memory_and_leaves_where_none_can_be() {
    let mut memory = KernelMemory::of(&machine(Era::V6_16, 1));
    let (pgd, _) = memory.image.page_tables();
    memory.put_u64(pgd + 8, 0x000f_ffff_0000_0063);
    memory.put_u64(pgd + 16, 0x0000_0000_0000_00e3);
    let kernel = discover(&mut memory).unwrap();
    let mut view = memory.view();
    let error = kernel.space().translator().translate(view.as_mut(), 1 << 39).unwrap_err();
    assert!(
        matches!(error, TranslateError::Unreadable { level: 3, entry_at: 0x000f_ffff_0000_0000, .. }),
        "{error}"
    );
    let error = kernel.space().translator().translate(view.as_mut(), 2 << 39).unwrap_err();
    assert!(matches!(error, TranslateError::BadEntry { level: 4, entry: 0xe3, .. }), "{error}");
}

#[test]
fn five_levels() {
    let mut memory = KernelMemory::of(machine(Era::V6_16, 1).five_level().anon(5));
    let kernel = discover(&mut memory).unwrap();
    assert_eq!(kernel.space().translator().levels(), 5);
    assert_eq!(first_block(&kernel, &memory)[5], PageClass::Anon);
    let mut view = memory.view();
    assert!(matches!(
        kernel.space().translator().translate(view.as_mut(), 0x0100_0000_0000_0000),
        Err(TranslateError::NotCanonical { .. })
    ));
}

fn first_block(kernel: &Kernel, memory: &KernelMemory) -> Vec<PageClass> {
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    PageScanner::new(kernel, memory.view()).scan(0, &mut classes).unwrap();
    classes
}

#[test]
fn mem_section_may_be_the_address_of_the_table() {
    // The synthetic kernels export where the pointer is, as the first releases of 4.15 did, the others where
    // it points (a0b1280368d1).
    let mut memory = KernelMemory::of(machine(Era::V5_10, 1).anon(1));
    let pointer = memory.number("SYMBOL(mem_section)");
    let table = memory.mem_section(0).0 + memory.image.page_offset();
    memory.text =
        memory.text.replace(&format!("mem_section)={pointer:x}"), &format!("mem_section)={table:x}"));
    assert!(memory.text.contains(&format!("SYMBOL(mem_section)={table:x}")));
    let kernel = discover(&mut memory).unwrap();
    assert_eq!(first_block(&kernel, &memory)[1], PageClass::Anon);
}

#[test]
fn old_kernels_do_not_say_where_they_are() {
    for moved in [0, 0x20_0000, 0x1000_0000] {
        let mut memory = KernelMemory::of(Machine::new(Era::V4_4).kaslr(moved));
        assert_eq!(discover(&mut memory).unwrap().space().phys_base(), 0u64.wrapping_sub(moved));
    }
    // Without its witness the search finds nothing; the source may know.
    let base = 0u64.wrapping_sub(0x20_0000);
    let mut memory = KernelMemory::of(Machine::new(Era::V4_4).kaslr(0x20_0000));
    let (text, load) = memory.image.text();
    let names = memory.number("SYMBOL(init_uts_ns)") - text + load;
    memory.put(names, &[0; 512]);
    let error = discover(&mut memory).unwrap_err().to_string();
    assert!(error.contains("no NUMBER(phys_base)"), "{error}");
    memory.kernel_mapping =
        Some(KernelMapping { vaddr: VirtAddr::new(text), paddr: PhysAddr::new(load), size: 2 << 20 });
    let kernel = discover(&mut memory).unwrap();
    assert_eq!(kernel.space().phys_base(), base);
}
