//! Dumps made by a second implementation of the format.

use std::io::Write;

use pagehaul_elfcore::notes;
use pagehaul_kdump::Flattened;
use pagehaul_kdump::KdumpFile;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{PAGE_SIZE, PhysMemory, ReadError, bits};
use pagehaul_synth::{Codec, Content, Era, Image, Machine, Records, flatten};

fn machine() -> Image {
    Machine::new(Era::V6_12)
        .populate(0x4000, 0x300, 5)
        .fill(0x9f, Content::Stamp)
        .fill(0x9000, Content::Random)
        .fill(0x9800, Content::Text)
        .build()
}

fn plain(bytes: &[u8]) -> PlainFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    PlainFile::open(file.path()).unwrap()
}

fn open(bytes: &[u8]) -> KdumpFile {
    KdumpFile::open(Box::new(plain(bytes))).unwrap()
}

/// Pages in `kept` read as they are; the machine's others are excluded; there are no more.
fn check(image: &Image, dump: &KdumpFile, kept: &[u64]) {
    let mut view = dump.view();
    let mut scratch = [0; PAGE_SIZE];
    let mut expected = kept.iter().peekable();
    for pfn in image.pfns() {
        match view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
            Ok(page) => {
                assert_eq!(expected.next(), Some(&pfn));
                assert!(page == &image.page(pfn), "PFN {pfn:#x}");
            }
            Err(ReadError::NotInDump { .. }) => assert_ne!(expected.peek(), Some(&&pfn)),
            // In another part of a split set.
            Err(ReadError::Missing { .. }) if dump.info().split.is_some() => {
                assert_ne!(expected.peek(), Some(&&pfn));
            }
            Err(error) => panic!("PFN {pfn:#x}: {error}"),
        }
    }
    assert_eq!(expected.next(), None);
    for pfn in [0, 0x7000, 0xff_ffff] {
        assert!(
            matches!(view.page(PhysAddr::of_4k_page(pfn), &mut scratch), Err(ReadError::NotPresent { .. })),
            "PFN {pfn:#x}"
        );
    }
    let mut stored = vec![0; 0x9900 / 64];
    dump.mark_stored(PhysAddr::of_4k_page(0), &mut stored).unwrap();
    assert!(bits::ones(&stored).map(|pfn| pfn as u64).eq(kept.iter().copied()));
    assert_eq!(dump.ranges().bytes(), image.pfns().len() as u64 * PAGE_SIZE as u64);
}

#[test]
fn every_version_codec_and_level() {
    let image = machine();
    for version in 1..=6 {
        let bytes = image.kdump().version(version).level(31).mixed().bytes();
        let dump = open(&bytes);
        check(&image, &dump, &image.expected(31));
        assert_eq!(dump.dump_level(), 31);
        let text = notes::vmcoreinfo(dump.notes()).map(|(_, text)| text);
        assert_eq!(text, (version >= 3).then_some(image.vmcoreinfo().as_bytes()), "version {version}");
        assert_eq!(notes::cpu_count(dump.notes()), if version >= 4 { 2 } else { 0 });
        assert_eq!(dump.info().uts.machine, "x86_64");
    }
    for codec in Codec::ALL {
        check(&image, &open(&image.kdump().level(8).codec(codec).bytes()), &image.expected(8));
    }
    for level in [0, 1, 2, 4, 16] {
        check(
            &image,
            &open(&image.kdump().level(level).codec(Codec::Snappy).bytes()),
            &image.expected(level),
        );
    }
}

#[test]
fn page_data_may_stand_in_any_order() {
    let image = machine();
    check(&image, &open(&image.kdump().level(31).mixed().backwards().bytes()), &image.expected(31));
}

#[test]
fn flattened_dumps_read_the_same() {
    let image = machine();
    let file = image.kdump().level(31).mixed().bytes();
    for records in [Records::Ascending, Records::Shuffled, Records::Rewritten] {
        for size in [1000, 65_536] {
            let flat = Flattened::open(plain(&flatten(&file, size, records))).unwrap();
            assert!(flat.is_complete());
            check(&image, &KdumpFile::open_flattened(flat).unwrap(), &image.expected(31));
        }
    }
}

#[test]
fn each_part_of_a_split_dump_holds_its_share() {
    let image = machine();
    let all = image.expected(31);
    for count in [1, 2, 5] {
        let mut seen = Vec::new();
        for part in image.kdump().level(31).mixed().parts(count) {
            let dump = open(&part);
            let range = dump.info().split.clone().unwrap();
            let mine: Vec<u64> =
                all.iter().copied().filter(|pfn| (range.start..range.end).contains(pfn)).collect();
            check(&image, &dump, &mine);
            seen.extend(mine);
        }
        assert_eq!(seen, all);
    }
}

#[test]
fn an_incomplete_dump_says_so_and_gives_what_it_has() {
    let image = machine();
    let all = image.expected(31);
    let dump = open(&image.kdump().level(31).mixed().incomplete(1000).bytes());
    assert!(dump.is_incomplete());
    let mut view = dump.view();
    let mut scratch = [0; PAGE_SIZE];
    for (index, &pfn) in all.iter().enumerate() {
        match view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
            Ok(page) => assert!(index < 1000 && page == &image.page(pfn), "PFN {pfn:#x}"),
            Err(error) => assert!(index >= 1000, "PFN {pfn:#x}: {error}"),
        }
    }
}

/// A dump of memory at the end of the address space's fifth tebibyte: PFNs above 2^28, bitmaps of 40 MiB each.
#[test]
fn a_dump_with_high_memory() {
    let image = Machine::new(Era::V6_12)
        .ram(0x10_0000, 0x400_0000)
        .ram(0x500_0000_0000, 0x500_0100_0000)
        .anon(0x5000_0001)
        .cache(0x5000_0002)
        .build();
    let dump = open(&image.kdump().level(8).bytes());
    let mut view = dump.view();
    let mut scratch = [0; PAGE_SIZE];
    assert!(matches!(
        view.page(PhysAddr::of_4k_page(0x5000_0001), &mut scratch),
        Err(ReadError::NotInDump { .. })
    ));
    assert!(view.page(PhysAddr::of_4k_page(0x5000_0002), &mut scratch).unwrap() == &image.page(0x5000_0002));
    assert_eq!(dump.ranges().end(), 0x500_0100_0000);
}
