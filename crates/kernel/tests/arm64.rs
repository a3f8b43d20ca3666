//! Address translation of arm64 kernels.

mod machine;

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use machine::KernelMemory;
use pagehaul_kernel::{
    AddressSpace, Kernel, KernelLog, PageClass, PageScanner, ReadVirtual, TranslateError, Translator,
    VirtualMemory, VmcoreInfo,
};
use pagehaul_physmem::PhysMemory;
use pagehaul_synth::{Arm64, Era, Machine};
use proptest::prelude::*;

const LAYOUTS: [Arm64; 4] = [Arm64::V39, Arm64::V48, Arm64::V52, Arm64::V52_ON_48];

/// Layouts of every page size.
fn layouts() -> impl Iterator<Item = Arm64> {
    LAYOUTS.into_iter().chain(Arm64::LARGE_PAGES)
}

fn memory(machine: &Machine) -> KernelMemory {
    let mut memory = KernelMemory::of(machine);
    memory.finish();
    memory
}

#[test]
fn pages_and_blocks_of_every_size() {
    for layout in LAYOUTS {
        let base = u64::MAX << (layout.used_bits - 1);
        let mut machine = Machine::arm64(Era::V6_12, layout);
        machine.map(base, 0x12_3000, 0x1000).map(base + 0x20_0000, 0x8060_0000, 0x20_0000);
        // Above 48 bits where the format has room for it.
        let far = if layout == Arm64::V52 { 0xc_0000_4000_0000 } else { 0x8000_4000_0000 };
        machine.map(base + 0x4000_0000, far, 0x4000_0000);
        let memory = memory(&machine);
        let kernel = Kernel::discover(&memory).unwrap();
        let mut view = memory.view();
        let mut at = |vaddr| {
            kernel
                .space()
                .translator()
                .translate(view.as_mut(), vaddr)
                .map(|extent| (extent.paddr, extent.len))
        };
        assert_eq!(at(base + 0x123).unwrap(), (0x12_3123, 0xedd), "{layout:?}");
        assert_eq!(at(base + 0x20_0001).unwrap(), (0x8060_0001, 0x1f_ffff), "{layout:?}");
        assert_eq!(at(base + 0x4000_0040).unwrap(), (far + 0x40, 0x3fff_ffc0), "{layout:?}");
        // A tag is ignored: bit 55 says whose address it is.
        assert_eq!(at((base + 0x123) & !(0xf << 56)).unwrap(), (0x12_3123, 0xedd), "{layout:?}");
        assert!(matches!(at(base + 0x1000), Err(TranslateError::NotMapped { level: 1, .. })));
        assert!(matches!(at(0x7fff_0000_0000), Err(TranslateError::NotCanonical { .. })));
        if layout.used_bits < 52 {
            assert!(matches!(at(0xfff0_0000_0000_0000), Err(TranslateError::NotCanonical { .. })));
        }
    }
}

#[test]
fn large_pages_and_blocks() {
    for layout in Arm64::LARGE_PAGES {
        let (page, block) = (1_u64 << layout.page_shift, 1_u64 << (2 * layout.page_shift - 3));
        let base = u64::MAX << (layout.used_bits - 1);
        // Above 48 bits where the format has room for it.
        let far = if layout.used_bits == 52 { 0xc_0000_4000_0000 } else { 0x8000_4000_0000 };
        let mut machine = Machine::arm64(Era::V6_12, layout);
        machine.map(base, 5 * page, page).map(base + page, far, page).map(base + block, far, block);
        let memory = memory(&machine);
        let kernel = Kernel::discover(&memory).unwrap();
        assert_eq!(kernel.page_size().bytes() as u64, page);
        let mut view = memory.view();
        let mut at = |vaddr| {
            let extent = kernel.space().translator().translate(view.as_mut(), vaddr);
            extent.map(|extent| (extent.paddr, extent.len))
        };
        assert_eq!(at(base + 0x123).unwrap(), (5 * page + 0x123, page - 0x123), "{layout:?}");
        assert_eq!(at(base + page + 1).unwrap(), (far + 1, page - 1), "{layout:?}");
        assert_eq!(at(base + block + page).unwrap(), (far + page, block - page), "{layout:?}");
        assert!(matches!(at(base + 2 * page), Err(TranslateError::NotMapped { level: 1, .. })), "{layout:?}");
    }
}

#[test]
fn entries_that_no_table_has() {
    let mut memory = memory(&Machine::arm64(Era::V6_12, Arm64::V52));
    let (root, levels) = memory.image.page_tables();
    assert_eq!(levels, 5);
    // A block at levels 5 and 4, where none can be.
    memory.put_u64(root + 8, 0x4000_0401);
    let tables =
        Translator::discover(&VmcoreInfo::parse(memory.image.vmcoreinfo().as_bytes()), &memory).unwrap();
    let error = tables.translate(memory.view().as_mut(), 0xfff1_0000_0000_0000).unwrap_err();
    assert!(matches!(error, TranslateError::BadEntry { level: 5, entry: 0x4000_0401, .. }), "{error}");
}

#[test]
fn the_linear_map_and_the_image_need_no_table() {
    for layout in layouts() {
        for kaslr in [0, 0x1a00_0000] {
            let mut machine = Machine::arm64(Era::V6_12, layout);
            if kaslr != 0 {
                machine.kaslr(kaslr);
            }
            let mut memory = memory(&machine);
            let space = AddressSpace::discover(&memory).unwrap();
            assert_eq!(space.machine(), "aarch64");
            assert_eq!(space.direct_map(), Some(memory.image.page_offset()), "{layout:?}");
            let (text, load) = memory.image.text();
            // By tables first, then with a top table of zeros.
            let (root, _) = memory.image.page_tables();
            let linear = memory.image.page_offset().wrapping_add(load + 0x12_3450);
            let by_tables = space.translator().translate(memory.view().as_mut(), linear).unwrap();
            assert_eq!(by_tables.paddr, load + 0x12_3450, "{layout:?}");
            (0..512).for_each(|entry| memory.put_u64(root + entry * 8, 0));
            let virtual_memory = VirtualMemory::new(&space, &memory);
            assert_eq!(virtual_memory.physical(linear).unwrap(), load + 0x12_3450, "{layout:?}");
            // The release, by the address in the image that VMCOREINFO has.
            assert_eq!(virtual_memory.physical(text + 0x10_1004).unwrap(), load + 0x10_1004, "{layout:?}");
            let name = space.info().symbol("init_uts_ns").unwrap();
            assert_eq!(virtual_memory.text(name + 130, 16).unwrap(), "6.12.30-synth", "{layout:?}");
        }
    }
}

#[test]
fn return_addresses_lose_their_signatures() {
    let mut machine = Machine::arm64(Era::V6_12, Arm64::V52);
    machine.info("NUMBER(KERNELPACMASK)", "0xfff0000000000000");
    let signed = AddressSpace::discover(&memory(&machine)).unwrap();
    assert_eq!(signed.return_address(0x3a98_8000_1234_5678), 0xfff8_8000_1234_5678);
    assert_eq!(signed.return_address(0xffff_8000_1234_5678), 0xffff_8000_1234_5678);
    // An address of a process, and a small number.
    assert_eq!(signed.return_address(0x0000_aaaa_1234_5678), 0x0000_aaaa_1234_5678);
    assert_eq!(signed.return_address(7), 7);
    let plain = AddressSpace::discover(&memory(&Machine::arm64(Era::V6_12, Arm64::V52))).unwrap();
    assert_eq!(plain.return_address(0x3a98_8000_1234_5678), 0x3a98_8000_1234_5678);
}

/// With 52 bits of physical addresses there are 2^17 roots of sections. A capture kernel maps memory for each window.
#[test]
fn the_table_of_sections_is_read_by_pages() {
    for layout in [Arm64::V52, Arm64::K16_V52_ON_47] {
        let mut machine = Machine::arm64(Era::V6_12, layout);
        machine.max_physmem_bits(52);
        let memory = memory(&machine);
        let kernel = Kernel::discover(&memory).unwrap();
        memory.windows.store(0, Ordering::Relaxed);
        assert!(!kernel.kernel_mapped_pages(&memory).data.is_empty());
        let windows = memory.windows.load(Ordering::Relaxed);
        assert!(windows < 10_000, "{layout:?}: {windows} windows");
    }
}

/// Pages mapped with PROT_MTE have PG_arch_2, and since 6.18 PG_arch_3. Their tags lie outside of RAM: only contents count.
#[test]
fn pages_with_memory_tags_have_their_class() {
    const FLAGS: [u64; 2] = [24, 25];
    for layout in [Arm64::V52, Arm64::K16_V52_ON_47] {
        let mut machine = Machine::arm64(Era::V6_12, layout);
        let pfn = 0x4900_0000 >> layout.page_shift;
        machine.sampler(0x4400_0000 >> layout.page_shift).populate(pfn, 0x800, 5);
        let mut memory = memory(&machine);
        let (classes, report) = scan(&memory, pfn);
        assert!(report[PageClass::Anon as usize] > 0 && report[PageClass::Cache as usize] > 0, "{report:?}");
        for pfn in pfn..pfn + 0x800 {
            FLAGS.iter().for_each(|bit| memory.flag(pfn, *bit));
        }
        assert_eq!(scan(&memory, pfn), (classes, report), "{layout:?}");
    }
}

/// Returns the classes of the block that holds `pfn`.
fn scan(memory: &KernelMemory, pfn: u64) -> (Vec<PageClass>, [u64; PageClass::COUNT]) {
    let kernel = Kernel::discover(memory).unwrap();
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let block = pfn / kernel.pages_per_block() as u64;
    let report = PageScanner::new(&kernel, memory.view()).scan(block, &mut classes).unwrap();
    (classes, report.pages)
}

#[test]
fn kernels_that_cannot_be_understood_are_refused() {
    let cases = [
        ("PAGESIZE=4096", "PAGESIZE=8192", "arm64 has pages of 4096, 16384 or 65536 bytes"),
        ("SECTION_SIZE_BITS)=27", "SECTION_SIZE_BITS)=19", "sections of 1 MiB to 16 GiB"),
        ("NUMBER(VA_BITS)=48", "NUMBER(VA_BITS)=64", "kernel addresses have 36 to 52 bits"),
        ("TCR_EL1_T1SZ)=0x10", "TCR_EL1_T1SZ)=0xffffffffffffffff", "kernel addresses have 36 to 52 bits"),
        ("TCR_EL1_T1SZ)=0x10", "TCR_EL1_T1SZ)=0x8000000000000000", "kernel addresses have 36 to 52 bits"),
        ("NUMBER(PHYS_OFFSET)", "NUMBER(PHYS)", "no NUMBER(PHYS_OFFSET), needed for the linear map"),
    ];
    for (from, to, expected) in cases {
        let mut memory = KernelMemory::of(&Machine::arm64(Era::V6_12, Arm64::V48));
        assert!(memory.text.contains(from), "{from}");
        memory.text = memory.text.replace(from, to);
        memory.finish();
        let error = Kernel::discover(&memory).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    }
}

/// Builds each layout once.
static MACHINES: LazyLock<Vec<pagehaul_synth::Image>> = LazyLock::new(|| {
    let machine =
        |layout: Arm64| Machine::arm64(Era::V6_12, layout).anon(0x4400_0000 >> layout.page_shift).build();
    layouts().map(machine).collect()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn damaged_keys_and_tables_end_in_answers(
        layout in 0..MACHINES.len(),
        keys in prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![
            any::<i64>(), 0i64..80, Just(i64::MIN), Just(16384), Just(65536), Just(-1),
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
            let value = (root + target * 4096) | u64::from(low & 0xfff) | u64::from(high) << 48;
            memory.put_u64(root + page * 4096 + entry * 8, value);
        }
        let info = VmcoreInfo::parse(memory.text.as_bytes());
        if let Ok(tables) = Translator::discover(&info, &memory) {
            for vaddr in vaddrs.into_iter().flat_map(|vaddr| [vaddr, vaddr | 0xfff << 52, vaddr | 0x1ffff << 47]) {
                if let Ok(extent) = tables.translate(memory.view().as_mut(), vaddr) {
                    prop_assert!(extent.len >= 1 && extent.len <= 1 << 30);
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
            let block = (0x4000_0000 >> kernel.page_size().shift()) / kernel.pages_per_block() as u64;
            let report = PageScanner::new(&kernel, memory.view()).scan(block, &mut classes).unwrap();
            prop_assert_eq!(report.pages.iter().sum::<u64>(), classes.len() as u64);
        }
    }
}
