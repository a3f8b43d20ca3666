//! What is written is what is read.

mod common;

use common::open;
use pagehaul_kdump::format::flags;
use pagehaul_kdump::{Header, Layout, LayoutError, PageDesc, STATUS_OFFSET, UtsName};
use pagehaul_machine::PageSize;
use pagehaul_physmem::PhysMemory;
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

fn uts() -> impl Strategy<Value = UtsName> {
    let (may_be_empty, field) = ("[ -~]{0,64}", "[ -~]{1,64}");
    (field, may_be_empty, field, field, field, may_be_empty).prop_map(
        |(sysname, nodename, release, version, machine, domainname)| UtsName {
            sysname,
            nodename,
            release,
            version,
            machine,
            domainname,
        },
    )
}

fn page_sizes() -> impl Strategy<Value = PageSize> {
    (12u32..=16).prop_map(|shift| PageSize::new(1 << shift).unwrap())
}

proptest! {
    #[test]
    fn headers_survive(
        uts in uts(),
        crash_time in any::<i64>(),
        dump_level in 0u32..32,
        nr_cpus in 0u32..9000,
        phys_base in any::<u64>(),
        incomplete in any::<bool>(),
        text in "[A-Z=0-9\n]{1,9000}",
        max_mapnr in 1u64..3_000_000,
        split in prop::option::of((0u64..1000, 0u64..1000)),
        page_size in page_sizes(),
    ) {
        let split = split.map(|(start, len)| start.min(max_mapnr)..(start + len).min(max_mapnr));
        let notes = common::vmcoreinfo_note(text.as_bytes());
        let layout = Layout::new(page_size, max_mapnr, notes.len() as u64).unwrap();
        let header = Header {
            uts: uts.clone(), crash_time, dump_level, nr_cpus, phys_base, codec: flags::ZSTD, notes: &notes,
            split: split.clone(),
        };
        let mut bytes = header.encode(&layout, incomplete).unwrap();
        prop_assert_eq!(bytes.len() as u64, layout.header_len());
        prop_assert_eq!(bytes.len() % page_size.bytes(), 0);
        let status = &bytes[STATUS_OFFSET as usize..][..4];
        prop_assert_eq!(status, header.status(incomplete));
        bytes.resize(layout.descriptors_offset() as usize, 0);
        let at = u64::from_le_bytes(bytes[page_size.bytes() + 32..][..8].try_into().unwrap()) as usize;
        prop_assert_eq!(&bytes[at..at + text.len()], text.as_bytes());
        let dump = open(bytes).unwrap();
        let info = dump.info();
        prop_assert_eq!(&info.uts, &uts);
        prop_assert_eq!((info.crash_time, info.dump_level, info.phys_base), (crash_time, dump_level, phys_base));
        prop_assert_eq!((info.nr_cpus, info.max_mapnr), (nr_cpus.max(1), max_mapnr));
        prop_assert_eq!(info.incomplete(), incomplete);
        prop_assert_eq!(info.block_size as usize, page_size.bytes());
        prop_assert_eq!(&info.split, &split);
        prop_assert_eq!(dump.notes(), &notes);
    }

    #[test]
    fn descriptors_survive(offset in 0u64..1 << 62, size in any::<u32>(), flags in any::<u32>()) {
        let desc = PageDesc::new(offset, size, flags);
        let read = PageDesc::read_from_bytes(desc.as_bytes()).unwrap();
        prop_assert_eq!((read.offset.get() as u64, read.size.get(), read.flags.get()), (offset, size, flags));
    }

    /// Nothing overlaps, whatever the sizes.
    #[test]
    fn parts_are_in_order(
        max_mapnr in 0u64..=1 << 40,
        notes in 0u64..1 << 28,
        share in 0.0f64..=1.0,
        page_size in page_sizes(),
    ) {
        let layout = Layout::new(page_size, max_mapnr, notes).unwrap();
        let pages = (max_mapnr as f64 * share) as u64;
        prop_assert!(layout.notes_offset() + notes <= layout.header_len());
        prop_assert!(layout.bitmap_len() * 8 >= max_mapnr);
        prop_assert_eq!(layout.bitmap1_offset() + layout.bitmap_len(), layout.bitmap2_offset());
        prop_assert_eq!(layout.bitmap2_offset() + layout.bitmap_len(), layout.descriptors_offset());
        let data = layout.data_offset(pages.min(max_mapnr)).unwrap();
        prop_assert!(layout.descriptor_offset(pages) <= data && data.is_multiple_of(layout.block()));
    }
}

#[test]
fn names_are_cut_to_their_fields_and_never_missing() {
    let uts = UtsName { nodename: "n".repeat(99), ..UtsName::x86_64("6.1") };
    let layout = Layout::new(PageSize::KIB_4, 8, 0).unwrap();
    let header = Header {
        uts,
        crash_time: 0,
        dump_level: 0,
        nr_cpus: 1,
        phys_base: 0,
        codec: 0,
        notes: &[],
        split: None,
    };
    let mut bytes = header.encode(&layout, false).unwrap();
    bytes.resize(layout.descriptors_offset() as usize, 0);
    let dump = open(bytes).unwrap();
    // An empty version would make libkdumpfile distrust all of it.
    let expected = UtsName { nodename: "n".repeat(64), version: "unknown".into(), ..UtsName::x86_64("6.1") };
    assert_eq!(dump.info().uts, expected);
    assert_eq!(dump.notes(), b"");
}

#[test]
fn notes_must_fit_the_layout() {
    let layout = Layout::new(PageSize::KIB_4, 8, 12).unwrap();
    let header = Header {
        uts: UtsName::default(),
        crash_time: 0,
        dump_level: 0,
        nr_cpus: 1,
        phys_base: 0,
        codec: 0,
        notes: &[0; 13],
        split: None,
    };
    assert_eq!(header.encode(&layout, false), Err(LayoutError::NotesChanged { expected: 12, found: 13 }));
}
