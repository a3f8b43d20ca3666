//! Dumps that are as they should be.

mod common;

use common::{MemFile, PAGE, Spec, downgrade, mixed, noise, open, page};
use pagehaul_codec::Codec;
use pagehaul_elfcore::notes;
use pagehaul_kdump::{Census, KdumpFile, STATUS_OFFSET};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{PhysMemory, ReadError, bits};
use proptest::prelude::*;

/// Every page of the machine reads as the spec says.
fn assert_same(dump: &KdumpFile, spec: &Spec) {
    let mut view = dump.view();
    let part = spec.split.clone().unwrap_or(0..spec.max_mapnr);
    for pfn in 0..spec.max_mapnr + 100 {
        let found = view.window(pfn << 12, PAGE);
        match spec.pages.get(&pfn) {
            Some((_, expected)) if part.contains(&pfn) => {
                assert_eq!(found.unwrap(), expected, "PFN {pfn:#x}");
            }
            other => {
                let exists = other.is_some() || spec.ram.iter().any(|range| range.contains(&pfn));
                match found {
                    Err(ReadError::Missing { reason, .. }) if other.is_some() => {
                        assert!(reason.contains("another part"), "{reason}");
                    }
                    Err(ReadError::NotInDump { paddr }) if exists && other.is_none() => {
                        assert_eq!(paddr, pfn * 4096);
                    }
                    Err(ReadError::NotPresent { .. }) if !exists => {}
                    other => panic!("PFN {pfn:#x}: {:?}", other.map(|_| "a page")),
                }
            }
        }
    }
}

#[test]
fn every_codec_is_read_back() {
    for reversed in [false, true] {
        let spec = Spec { reversed, ..mixed() };
        let dump = open(spec.build()).unwrap();
        assert_same(&dump, &spec);
        let info = dump.info();
        assert_eq!((info.version, info.nr_cpus, info.dump_level), (6, 2, 31));
        assert_eq!((info.uts.machine.as_str(), info.uts.nodename.as_str()), ("x86_64", "crashed"));
        assert_eq!((info.crash_time, info.phys_base), (1_700_000_000, 0x100_0000));
        assert_eq!(info.dumped_pages, spec.pages.len() as u64);
        assert_eq!(info.ram_pages, 0x9e + 0x800 + 0x1000 + 2);
        assert!(!dump.is_incomplete());
    }
}

#[test]
fn windows_end_with_their_page_and_reads_cross_them() {
    let mut spec = Spec::new(64);
    for pfn in 10..13 {
        spec.pages.insert(pfn, (Codec::Zlib, page(pfn)));
    }
    let dump = open(spec.build()).unwrap();
    let mut view = dump.view();
    assert_eq!(view.window(10 * 4096 + 4000, 4096).unwrap(), &page(10)[4000..]);
    assert_eq!(view.window(11 * 4096 + 8, 16).unwrap(), &page(11)[8..24]);
    let mut across = vec![0; 3 * PAGE];
    view.read(10 * 4096, &mut across).unwrap();
    assert_eq!(across, [page(10), page(11), page(12)].concat());
    assert!(matches!(view.read(12 * 4096, &mut across), Err(ReadError::NotPresent { paddr: 53_248 })));
}

#[test]
fn the_census_counts_what_is_stored() {
    let mut spec = Spec::new(1000);
    for pfn in 0..10 {
        spec.pages.insert(pfn, (Codec::None, vec![0; PAGE]));
    }
    spec.pages.insert(20, (Codec::Zlib, noise(1)));
    for (at, codec) in Codec::ALL.into_iter().enumerate() {
        spec.pages.insert(30 + at as u64, (codec, page(3)));
    }
    let census = open(spec.build()).unwrap().census().unwrap();
    let compressed: usize =
        Codec::ALL[1..].iter().map(|&codec| common::encode(codec, &page(3)).1.len()).sum();
    assert_eq!(
        census,
        Census {
            raw: 12,
            zlib: 1,
            lzo: 1,
            snappy: 1,
            zstd: 1,
            shared: 10,
            stored_bytes: (3 * PAGE + compressed) as u64,
            ..Census::default()
        }
    );
    assert_eq!(census.readable(), 16);
}

#[test]
fn older_versions_are_read() {
    let spec = mixed();
    for version in 1..6 {
        let dump = open(downgrade(spec.build(), version)).unwrap();
        assert_eq!(dump.info().version, version as u32);
        assert_same(&dump, &spec);
        let text = notes::vmcoreinfo(dump.notes()).map(|(_, text)| text.to_vec());
        let expected = b"OSRELEASE=6.12.1-test\nPAGESIZE=4096\n".to_vec();
        assert_eq!(text, (version >= 3).then_some(expected), "version {version}");
    }
}

#[test]
fn a_part_of_a_split_dump_has_its_own_pages_only() {
    let whole = mixed();
    for split in [0..0x300, 0x300..0x500, 0x500..40_000, 0x500..0x500] {
        for version in [2, 6] {
            let spec = Spec { split: Some(split.clone()), ..whole.clone() };
            let bytes = spec.build();
            let dump = open(if version == 6 { bytes } else { downgrade(bytes, version) }).unwrap();
            assert_eq!(dump.info().split, Some(split.clone()));
            assert_same(&dump, &spec);
            let mut marked = vec![0; 40_000usize.div_ceil(64)];
            dump.mark_stored(PhysAddr::of_4k_page(0), &mut marked).unwrap();
            assert_eq!(bits::count(&marked), dump.info().dumped_pages);
        }
    }
}

#[test]
fn the_incomplete_flag_is_one_small_write_away() {
    let mut spec = mixed();
    spec.incomplete = true;
    let mut bytes = spec.build();
    assert!(open(bytes.clone()).unwrap().is_incomplete());
    let at = STATUS_OFFSET as usize;
    bytes[at..at + 4].copy_from_slice(&2u32.to_le_bytes());
    assert!(!open(bytes.clone()).unwrap().is_incomplete());
    spec.incomplete = false;
    assert_eq!(bytes, spec.build());
}

#[test]
fn a_file_that_ends_before_its_last_page_is_truncated() {
    for reversed in [false, true] {
        let bytes = Spec { reversed, ..mixed() }.build();
        assert!(!open(bytes.clone()).unwrap().is_truncated());
        let mut opened = 0;
        for missing in [1, 100, PAGE, bytes.len() / 3, bytes.len() / 2] {
            let cut = bytes[..bytes.len() - missing].to_vec();
            if let Ok(dump) = open(cut) {
                opened += 1;
                assert!(
                    dump.is_truncated() && !dump.is_incomplete(),
                    "{missing} bytes, reversed: {reversed}"
                );
            }
        }
        assert!(opened > 2);
    }
    // One whose writer did not finish is not: the pages that it lacks have no place in the file.
    let mut spec = mixed();
    spec.incomplete = true;
    assert!(!open(spec.build()).unwrap().is_truncated());
}

#[test]
fn phys_base_tells_where_the_kernel_is() {
    let mut bytes = Spec::new(8).build();
    let mapping = open(bytes.clone()).unwrap().kernel_mapping().unwrap();
    assert_eq!((mapping.vaddr.get(), mapping.paddr.get()), (0xffff_ffff_8000_0000, 0x100_0000));
    // Virtual addresses moved further by KASLR than physical ones.
    bytes[PAGE..PAGE + 8].copy_from_slice(&(-0x200_0000i64).to_le_bytes());
    let mapping = open(bytes).unwrap().kernel_mapping().unwrap();
    assert_eq!((mapping.vaddr.get(), mapping.paddr.get()), (0xffff_ffff_8200_0000, 0));
}

#[test]
fn notes_and_files_are_passed_on() {
    let spec = mixed();
    let file = MemFile(spec.build());
    let identity = file.identity();
    let dump = KdumpFile::open(Box::new(file)).unwrap();
    assert_eq!(dump.notes(), spec.notes);
    assert_eq!(dump.files(), [identity]);
    assert_eq!(dump.eraseinfo().unwrap(), b"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any set of pages, at any place, also across the chunks in which bitmaps are counted.
    #[test]
    fn any_pages_are_found(
        pfns in prop::collection::btree_set(prop_oneof![0u64..200, 262_000u64..262_300, 0u64..600_000], 1..80),
        ram in prop::collection::vec((0u64..600_000, 1u64..3000), 0..4),
        looked in prop::collection::vec(0u64..600_200, 50),
        first in 0u64..600_000,
    ) {
        let mut spec = Spec::new(600_000);
        spec.ram = ram.into_iter().map(|(start, len)| start..(start + len).min(600_000)).collect();
        for &pfn in &pfns {
            spec.pages.insert(pfn, (Codec::Lzo, page(pfn)));
        }
        let dump = open(spec.build()).unwrap();
        let mut view = dump.view();
        let exists = |pfn: u64| pfns.contains(&pfn) || spec.ram.iter().any(|range| range.contains(&pfn));
        for pfn in pfns.iter().rev().copied().chain(looked) {
            match view.window(pfn << 12, PAGE) {
                Ok(bytes) => prop_assert_eq!(bytes, &page(pfn)[..]),
                Err(ReadError::NotInDump { .. }) => prop_assert!(exists(pfn) && !pfns.contains(&pfn)),
                Err(ReadError::NotPresent { .. }) => prop_assert!(!exists(pfn)),
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
            prop_assert_eq!(dump.ranges().find(pfn << 12).is_some(), exists(pfn));
        }
        let mut marked = [!0; 100];
        dump.mark_stored(PhysAddr::of_4k_page(first), &mut marked).unwrap();
        let expected: Vec<u64> = pfns.range(first..first + 6400).copied().collect();
        prop_assert_eq!(bits::ones(&marked).map(|bit| first + bit as u64).collect::<Vec<_>>(), expected);
    }
}
