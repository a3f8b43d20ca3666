//! ELF vmcores of every layout, made by a second implementation of it.

use pagehaul_elfcore::notes;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{Access, MapPolicy, PAGE_SIZE, PhysMemory, ReadError, bits};
use pagehaul_synth::{Content, Elf, Era, Foreign, Image, Machine, Records, Riscv64, Segment, flatten};
use pagehaul_vmcore::{ElfVmcore, Source, SourceKind};

fn machine() -> Image {
    Machine::new(Era::V6_12)
        .populate(0x4000, 0x400, 1)
        .fill(0x9f, Content::Stamp)
        .fill(0x9000, Content::Random)
        .fill(0x9800, Content::Random)
        .kaslr(0x1a00_0000)
        .load_at(0x240_0000)
        .build()
}

fn open(elf: &Elf, policy: MapPolicy) -> (tempfile::NamedTempFile, ElfVmcore) {
    let file = tempfile::NamedTempFile::new().unwrap();
    elf.write(file.path()).unwrap();
    let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), policy).unwrap();
    (file, memory)
}

/// Every page of the machine reads as it is, holes do not read at all.
fn check(image: &Image, memory: &ElfVmcore) {
    let mut view = memory.view();
    let mut scratch = [0; PAGE_SIZE];
    let pfns = image.pfns();
    for &pfn in &pfns {
        let page = view.page(PhysAddr::of_4k_page(pfn), &mut scratch).unwrap();
        assert!(page == &image.page(pfn), "PFN {pfn:#x}");
    }
    for pfn in [0, 0xa0, 0xff, 0x6400, 0x8fff, 0x9801, 1 << 40] {
        assert!(
            matches!(view.page(PhysAddr::of_4k_page(pfn), &mut scratch), Err(ReadError::NotPresent { .. })),
            "PFN {pfn:#x}"
        );
    }
    let mut stored = vec![0; 0x9900 / 64];
    memory.mark_stored(PhysAddr::of_4k_page(0), &mut stored).unwrap();
    assert!(bits::ones(&stored).map(|pfn| pfn as u64).eq(pfns));
    let bytes: u64 = image.ram().iter().map(|(start, end)| end - start).sum();
    assert_eq!(memory.ranges().bytes(), bytes);
    let (_, text) = notes::vmcoreinfo(memory.notes()).unwrap();
    assert_eq!(text, image.vmcoreinfo().as_bytes());
    assert_eq!(notes::cpu_count(memory.notes()), 2);
}

const POLICIES: [MapPolicy; 3] = [
    MapPolicy { window: 4 << 20, access: Access::Map },
    MapPolicy { window: 4096, access: Access::Map },
    MapPolicy { window: 1 << 20, access: Access::Read },
];

#[test]
fn proc_vmcore_and_qemu_layouts_read_alike() {
    let image = machine();
    for policy in POLICIES {
        for elf in [image.elf(), image.qemu_elf()] {
            let (_file, memory) = open(&elf, policy);
            check(&image, &memory);
        }
    }
}

#[test]
fn the_kernel_is_where_its_segment_says() {
    let image = machine();
    let (_file, memory) = open(&image.elf(), MapPolicy::default());
    let mapping = memory.kernel_mapping().unwrap();
    assert_eq!((mapping.vaddr.get(), mapping.paddr.get()), image.text());
    assert_eq!(memory.direct_map(), Some(image.page_offset()));
    let (_file, memory) = open(&image.qemu_elf(), MapPolicy::default());
    assert_eq!(memory.kernel_mapping(), None);
    assert_eq!(memory.direct_map(), None);
}

#[test]
fn as_many_segments_as_pn_xnum_is_for() {
    let image = machine();
    for mut elf in [image.elf(), image.qemu_elf()] {
        // Pieces of an odd size: most pages are in two segments, of which neither holds the whole.
        elf.split(1712);
        assert!(elf.segments.len() > 0xffff);
        let (_file, memory) = open(&elf, MapPolicy::default());
        check(&image, &memory);
    }
}

#[test]
fn segments_may_come_twice_and_in_any_order() {
    let image = machine();
    let mut elf = image.elf();
    elf.overlap(0x63f_e800, 0x640_0000).overlap(0x400_0123, 0x410_0456).segments.reverse();
    let (_file, memory) = open(&elf, MapPolicy::default());
    check(&image, &memory);
}

/// kexec-tools ends the image's segment of riscv64 a byte early: a page lies in two segments, and one byte of it in none.
#[test]
fn a_gap_inside_a_page_of_two_segments_is_read_from_the_file() {
    let page = 0x8500_0000_u64;
    let image = Machine::riscv64(Era::V6_12, Riscv64::Sv57).fill(page >> 12, Content::Random).build();
    let cut = |elf: &mut Elf<'_>| {
        let [.., ram, _] = elf.segments[..] else { panic!("RAM in two pieces") };
        elf.segments.retain(|segment| segment.paddr != ram.paddr);
        for (start, end) in [(ram.paddr, page + 0xa8f), (page + 0xa90, ram.paddr + ram.memory)] {
            let bytes = end - start;
            elf.segments.push(Segment { vaddr: 0xe5_f000, paddr: start, stored: bytes, memory: bytes });
        }
    };
    let byte = |elf: &Elf<'_>| {
        let (_file, memory) = open(elf, MapPolicy::default());
        memory.view().page(PhysAddr::of_4k_page(page >> 12), &mut [0; PAGE_SIZE]).unwrap()[0xa8f]
    };
    let expected = image.page(page >> 12)[0xa8f];
    assert_ne!(expected, 0);
    let mut elf = image.elf();
    cut(&mut elf);
    assert_eq!(byte(&elf), expected);
    // Without whole pages in the file, the byte is nowhere.
    let mut elf = image.qemu_elf();
    cut(&mut elf);
    assert_eq!(byte(&elf), 0);
}

#[test]
fn what_a_segment_does_not_store_is_not_in_the_dump() {
    let image = machine();
    let mut elf = image.elf();
    let last = elf.segments.len() - 1;
    elf.store_only(last, 0x1000);
    let (_file, memory) = open(&elf, MapPolicy::default());
    let mut view = memory.view();
    let mut scratch = [0; PAGE_SIZE];
    assert!(view.page(PhysAddr::of_4k_page(0x9000), &mut scratch).unwrap() == &image.page(0x9000));
    assert!(matches!(
        view.page(PhysAddr::of_4k_page(0x9002), &mut scratch),
        Err(ReadError::NotInDump { .. })
    ));
    let mut stored = [0; 0x9900 / 64];
    memory.mark_stored(PhysAddr::of_4k_page(0), &mut stored).unwrap();
    assert!(bits::get(&stored, 0x9000) && !bits::get(&stored, 0x9002));
}

#[test]
fn cores_of_other_machines_read_alike() {
    for machine in Foreign::ALL {
        let segments = [(0x1000, machine.page(1)), (0x20_0800, machine.page(2))];
        let bytes = machine.elf(&segments, &machine.vmcoreinfo("A=1\n"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
        let arch = memory.platform();
        assert_eq!(
            (arch.machine, arch.wide, arch.big_endian),
            (machine.elf_machine, machine.wide, machine.big_endian)
        );
        assert_eq!(notes::vmcoreinfo(memory.notes()).unwrap().1, b"A=1\n");
        assert_eq!(memory.faults(), Vec::<String>::new());
        let mut view = memory.view();
        for (paddr, bytes) in segments {
            let mut found = vec![0; bytes.len()];
            view.read(paddr, &mut found).unwrap();
            assert!(found == bytes, "{machine:?}");
        }
    }
}

/// Segments of /proc/kcore that are no memory have no physical address; one that cannot be does not hide the others.
#[test]
fn segments_that_are_no_memory_are_passed_over() {
    let machine = Foreign { machine: "x86_64", elf_machine: 62, ..Foreign::ALL[5] };
    let segments = [
        (u64::MAX, vec![1; 4096]),
        (0x1000, vec![2; 4096]),
        (u64::MAX - 0x100, vec![3; 4096]),
        (1 << 60, vec![4; 4096]),
    ];
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), machine.elf(&segments, &[])).unwrap();
    let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
    assert_eq!(memory.ranges().bytes(), 4096);
    assert_eq!(memory.view().window(0x1000, 4096).unwrap(), [2; 4096]);
    let faults = memory.faults();
    assert!(
        faults.len() == 2 && faults.iter().all(|fault| fault.contains("past the end of the address space")),
        "{faults:?}"
    );
}

/// Zeros in the mapping of the kernel image do not hide what the direct map has. A vmcore keeps its order: if it is truncated, what
/// comes first is left.
#[test]
fn the_direct_map_of_kcore_comes_before_the_kernel_image() {
    let machine = Foreign { machine: "x86_64", elf_machine: 62, ..Foreign::ALL[5] };
    for (first, expected) in [(u64::MAX, 2), (0x8000, 0)] {
        let segments = [(first, vec![1; 4096]), (0x100_0000, vec![0; 4096]), (0x100_0000, vec![2; 4096])];
        let mut bytes = machine.elf(&segments, &[]);
        let headers = usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
        for (header, vaddr) in [(2, 0xffff_ffff_8100_0000u64), (1, 0xffff_8880_0100_0000)] {
            let at = 64 + 56 * (headers - header) + 16;
            bytes[at..at + 8].copy_from_slice(&vaddr.to_le_bytes());
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
        assert_eq!(memory.view().window(0x100_0000, 4096).unwrap(), [expected; 4096]);
        let mapping = memory.kernel_mapping().unwrap();
        assert_eq!((mapping.vaddr.get(), mapping.paddr.get()), (0xffff_ffff_8100_0000, 0x100_0000));
        assert_eq!(memory.direct_map(), Some(0xffff_8880_0000_0000));
    }
}

/// One flipped bit must not turn a machine into one of petabytes, which no command would get through.
#[test]
fn memory_that_no_machine_has_is_skipped() {
    let machine = Foreign { machine: "x86_64", elf_machine: 62, ..Foreign::ALL[5] };
    let bytes = machine.elf(&[(0x1000, vec![1; 4096]), (0x8000, vec![2; 4096])], &[]);
    let headers = usize::from(u16::from_le_bytes([bytes[56], bytes[57]]));
    let last = 64 + 56 * (headers - 1) + 40;
    for (bit, ranges, faults) in [(36, 2 * 4096 + (1u64 << 36), 0), (37, 2 * 4096, 1), (62, 2 * 4096, 1)] {
        let mut changed = bytes.clone();
        // With the 4 KiB of the file, 64 GiB beyond it are just not too much.
        let size = (1u64 << bit) + if bit == 36 { 4096 } else { 0 };
        changed[last..last + 8].copy_from_slice(&size.to_le_bytes());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), changed).unwrap();
        let memory = ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default()).unwrap();
        assert_eq!(memory.ranges().bytes(), ranges, "bit {bit}");
        assert_eq!(memory.view().window(0x8000, 4096).unwrap(), [2; 4096]);
        assert_eq!(memory.faults().len(), faults, "bit {bit}: {:?}", memory.faults());
    }
}

/// `makedumpfile -E -F`: a vmcore as a stream of records.
#[test]
fn a_flattened_vmcore_reads_like_the_file() {
    let image = machine();
    let bytes = image.elf().bytes();
    let file = tempfile::NamedTempFile::new().unwrap();
    for records in [Records::Ascending, Records::Shuffled, Records::Rewritten] {
        std::fs::write(file.path(), flatten(&bytes, 1 << 16, records)).unwrap();
        let source = Source::open(file.path(), MapPolicy::default()).unwrap();
        let SourceKind::Elf(vmcore) = source.kind() else { panic!("it is a vmcore") };
        assert!(vmcore.is_flattened());
        check(&image, vmcore);
    }
    let mut cut = flatten(&bytes, 1 << 16, Records::Ascending);
    cut.truncate(cut.len() / 2);
    std::fs::write(file.path(), cut).unwrap();
    let source = Source::open(file.path(), MapPolicy::default()).unwrap();
    assert!(source.is_incomplete());
    let mut view = source.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    assert!(view.page(PhysAddr::of_4k_page(1), &mut scratch).unwrap() == &image.page(1));
    assert!(matches!(view.page(PhysAddr::of_4k_page(0x9000), &mut scratch), Err(ReadError::Missing { .. })));
}

/// kexec-tools takes 0 for the address of `_text` where /proc/kallsyms lacks it: the image's size then is near 2^64.
#[test]
fn a_segment_larger_than_all_memory_is_refused_before_any_is_read() {
    use std::os::unix::fs::FileExt;
    let image = machine();
    // A file system that takes any size, as /proc/vmcore has then.
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    image.elf().write(file.path()).unwrap();
    let open = || ElfVmcore::open(PlainFile::open(file.path()).unwrap(), MapPolicy::default());
    let second_header = 64 + 56;
    let size = 0x7fff_8000_0000_0000_u64;
    for at in [second_header + 32, second_header + 40] {
        file.as_file().write_all_at(&size.to_le_bytes(), at).unwrap();
    }
    // In a file of ordinary size it is damage, which costs this segment only.
    assert_eq!(open().unwrap().faults().len(), 1);
    file.as_file().set_len(size + 0x10_0000).unwrap();
    let error = open().err().unwrap().to_string();
    assert!(error.contains("offset 0x78") && error.contains("more than any machine"), "{error}");
}
