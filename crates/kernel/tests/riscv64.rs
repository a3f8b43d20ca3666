//! Address translation of riscv64 kernels.

mod machine;

use std::sync::LazyLock;

use machine::KernelMemory;
use pagehaul_kernel::{
    AddressSpace, Kernel, KernelError, KernelLog, PageClass, PageScanner, ReadVirtual, TranslateError,
    Translator, VirtualMemory, VmcoreInfo,
};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::{Era, Machine, Riscv64};
use proptest::prelude::*;

/// Svnapot, and the two bits of Svpbmt.
const CONTIGUOUS: u64 = 1 << 63;
const MEMORY_TYPES: u64 = 3 << 61;

fn memory(machine: &Machine) -> KernelMemory {
    let mut memory = KernelMemory::of(machine);
    memory.finish();
    memory
}

fn tables(memory: &KernelMemory) -> Translator {
    Translator::discover(&VmcoreInfo::parse(memory.image.vmcoreinfo().as_bytes()), memory).unwrap()
}

#[test]
fn pages_of_every_size() {
    for layout in Riscv64::ALL {
        // The start of the kernel's half, which has nothing else.
        let base = u64::MAX << (layout.va_bits() - 1);
        let far = 0x8_0000_4000_0000;
        let mut machine = Machine::riscv64(Era::V6_12, layout);
        machine.map(base, 0x12_3000, 0x1000).map(base + 0x20_0000, 0x8060_0000, 0x20_0000).map(
            base + 0x4000_0000,
            far,
            0x4000_0000,
        );
        let memory = memory(&machine);
        let tables = tables(&memory);
        assert_eq!(u32::from(tables.levels()), (layout.va_bits() - 12) / 9);
        let mut view = memory.view();
        let mut at = |vaddr| tables.translate(view.as_mut(), vaddr).map(|extent| (extent.paddr, extent.len));
        assert_eq!(at(base + 0x123).unwrap(), (0x12_3123, 0xedd), "{layout:?}");
        assert_eq!(at(base + 0x20_0001).unwrap(), (0x8060_0001, 0x1f_ffff), "{layout:?}");
        assert_eq!(at(base + 0x4000_0040).unwrap(), (far + 0x40, 0x3fff_ffc0), "{layout:?}");
        assert!(matches!(at(base + 0x1000), Err(TranslateError::NotMapped { level: 1, .. })), "{layout:?}");
        assert!(matches!(at(base - 0x1000), Err(TranslateError::NotCanonical { .. })), "{layout:?}");
    }
}

/// Returns the place of the entry that maps a page of 4 KiB.
fn entry_at(memory: &KernelMemory, vaddr: u64) -> u64 {
    let (mut table, levels) = memory.image.page_tables();
    for level in (1..levels).rev() {
        let entry = memory.view().read_u64(table + (vaddr >> (12 + 9 * level) & 511) * 8).unwrap();
        table = entry >> 10 << 12;
    }
    table + (vaddr >> 12 & 511) * 8
}

#[test]
fn attributes_are_no_part_of_the_address() {
    let base = u64::MAX << 56;
    let mut machine = Machine::riscv64(Era::V6_12, Riscv64::Sv57);
    for page in 0..32 {
        machine.map(base + page * 0x1000, 0x9000_0000 + page * 0x1000, 0x1000);
    }
    let mut memory = memory(&machine);
    let put = |memory: &mut KernelMemory, page: u64, entry: u64| {
        let at = entry_at(memory, base + page * 0x1000);
        memory.put_u64(at, entry);
    };
    let leaf = |pfn: u64| pfn << 10 | 0xe7;
    put(&mut memory, 1, leaf(0x9_0001) | MEMORY_TYPES | 0x1f << 54);
    // 16 pages that lie together: the low bits of each entry's number are the size.
    for page in 16..32 {
        put(&mut memory, page, leaf(0x9_5558) | CONTIGUOUS);
    }
    put(&mut memory, 3, 0x9_0003 << 10 | 5); // writable and not readable
    put(&mut memory, 4, 0x9_0004 << 10 | 1); // a table where none can be
    put(&mut memory, 5, 0x9_0005 << 10 | 6); // not valid
    let tables = tables(&memory);
    let mut view = memory.view();
    let mut at = |page: u64| {
        tables.translate(view.as_mut(), base + page * 0x1000 + 8).map(|extent| (extent.paddr, extent.len))
    };
    assert_eq!(at(1).unwrap(), (0x9000_1008, 0xff8));
    for page in 16..32 {
        assert_eq!(at(page).unwrap(), (0x9555_0008 + (page - 16) * 0x1000, 0xff8));
    }
    for page in [3, 4, 5] {
        assert!(matches!(at(page), Err(TranslateError::NotMapped { level: 1, .. })), "{page}");
    }
}

#[test]
fn the_linear_map_and_the_image_need_no_table() {
    for layout in Riscv64::ALL {
        let mut machine = Machine::riscv64(Era::V6_12, layout);
        // vmalloc space ends where the linear map starts; RAM starts above 0.
        machine.map(layout.linear_map() - 0x1000, 0x8400_0000, 0x1000);
        let mut memory = memory(&machine);
        let space = AddressSpace::discover(&memory).unwrap();
        assert_eq!(space.machine(), "riscv64");
        assert_eq!(space.phys_base(), 0x8000_0000);
        assert_eq!(space.direct_map(), Some(memory.image.page_offset()), "{layout:?}");
        let (text, load) = memory.image.text();
        let linear = memory.image.page_offset().wrapping_add(load + 0x12_3450);
        let by_tables = space.translator().translate(memory.view().as_mut(), linear).unwrap();
        assert_eq!(by_tables.paddr, load + 0x12_3450, "{layout:?}");
        let below = VirtualMemory::new(&space, &memory).physical(layout.linear_map() - 8).unwrap();
        assert_eq!(below, 0x8400_0ff8, "{layout:?}");
        let (root, _) = memory.image.page_tables();
        (0..512).for_each(|entry| memory.put_u64(root + entry * 8, 0));
        let virtual_memory = VirtualMemory::new(&space, &memory);
        assert_eq!(virtual_memory.physical(linear).unwrap(), load + 0x12_3450, "{layout:?}");
        assert_eq!(virtual_memory.physical(text + 0x10_1004).unwrap(), load + 0x10_1004, "{layout:?}");
        let name = space.info().symbol("init_uts_ns").unwrap();
        assert_eq!(virtual_memory.text(name + 130, 16).unwrap(), "6.12.30-synth", "{layout:?}");
    }
}

#[test]
fn kernels_that_cannot_be_understood_are_refused() {
    let cases = [
        ("NUMBER(VA_BITS)=57", "NUMBER(VA_BITS)=64", "39, 48 or 57 bits"),
        ("NUMBER(PAGE_OFFSET)", "NUMBER(OFFSET)", "no NUMBER(PAGE_OFFSET), needed for the linear map"),
        ("SECTION_SIZE_BITS)=27", "SECTION_SIZE_BITS)=19", "sections of 1 MiB to 16 GiB"),
    ];
    for (from, to, expected) in cases {
        let mut memory = KernelMemory::of(&Machine::riscv64(Era::V6_12, Riscv64::Sv57));
        assert!(memory.text.contains(from), "{from}");
        memory.text = memory.text.replace(from, to);
        memory.finish();
        let error = Kernel::discover(&memory).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

/// kexec-tools leaves out what the kernel allocated before it had an allocator.
#[test]
fn absent_sections_are_explained() {
    let memory =
        memory(Machine::riscv64(Era::V6_12, Riscv64::Sv57).info("SYMBOL(mem_section)", "ff60000070000000"));
    let error = Kernel::discover(&memory).unwrap_err();
    assert!(matches!(error, KernelError::NoStructPages { .. }), "{error}");
    assert!(error.to_string().contains("kexec-tools leaves memory that is Reserved"), "{error}");
    assert!(AddressSpace::discover(&memory).is_ok());
}

/// Builds each layout once.
static MACHINES: LazyLock<Vec<pagehaul_synth::Image>> = LazyLock::new(|| {
    Riscv64::ALL
        .into_iter()
        .map(|layout| Machine::riscv64(Era::V6_12, layout).anon(0x8_4400).build())
        .collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_keys_and_tables_end_in_answers(
        layout in 0..3_usize,
        keys in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<i64>(), 0i64..80, Just(i64::MIN), Just(-1),
        ]), 0..4),
        patches in prop::collection::vec((0u64..64, 0u64..512, 0u64..64, any::<u16>(), any::<u16>()), 0..24),
        vaddrs in prop::collection::vec(any::<u64>(), 8),
    ) {
        let mut memory = KernelMemory::of_image(MACHINES[layout].clone());
        let mut lines: Vec<String> = memory.text.lines().map(str::to_owned).collect();
        for (index, value) in keys {
            let line = index.get_mut(&mut lines);
            let key = line.split_once('=').unwrap().0.to_owned();
            *line = if key.starts_with("SYMBOL") { format!("{key}={value:x}") } else { format!("{key}={value}") };
        }
        memory.text = lines.join("\n");
        memory.finish();
        let (root, _) = memory.image.page_tables();
        for (page, entry, target, low, high) in patches {
            let number = (root >> 12) + target;
            memory.put_u64(root + page * 4096 + entry * 8, number << 10 | u64::from(low & 0x3ff) | u64::from(high) << 48);
        }
        if let Ok(tables) = Translator::discover(&VmcoreInfo::parse(memory.text.as_bytes()), &memory) {
            for vaddr in vaddrs.into_iter().flat_map(|vaddr| [vaddr, vaddr | 0xff << 56, vaddr | 0x1ffff << 47]) {
                if let Ok(extent) = tables.translate(memory.view().as_mut(), vaddr) {
                    prop_assert!(extent.len >= 1 && extent.len <= 1 << 48);
                }
            }
        }
        let _ = KernelLog::read(&memory);
        if let Ok(kernel) = Kernel::discover(&memory) {
            let found = kernel.kernel_mapped_pages(&memory);
            for runs in [&found.data, &found.text, &found.struct_pages] {
                prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            let mut classes = vec![PageClass::Absent; kernel.pages_per_block().min(1 << 15)];
            let block = 0x8_0000 / kernel.pages_per_block() as u64;
            let report = PageScanner::new(&kernel, memory.view()).scan(block, &mut classes).unwrap();
            prop_assert_eq!(report.pages.iter().sum::<u64>(), classes.len() as u64);
        }
    }
}
