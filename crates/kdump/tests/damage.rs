//! Dumps that are not as they should be.

mod common;

use std::mem::offset_of;

use common::{PAGE, Spec, downgrade, mixed, noise, open, page};
use pagehaul_codec::Codec;
use pagehaul_kdump::PageDesc;
use pagehaul_kdump::format::{DiskDumpHeader, KdumpSubHeader, flags};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{OpenError, PageState, PhysMemory, ReadError};
use proptest::prelude::*;
use zerocopy::IntoBytes;

fn patched(bytes: &[u8], at: usize, with: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at..at + with.len()].copy_from_slice(with);
    out
}

fn complaint(bytes: Vec<u8>) -> String {
    match open(bytes) {
        Ok(_) => panic!("the dump opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn absurd_headers_are_refused_without_allocating() {
    let good = mixed().build();
    let head = |at: usize, with: &[u8]| complaint(patched(&good, at, with));
    let sub = |at: usize, with: &[u8]| complaint(patched(&good, PAGE + at, with));
    let blocks = offset_of!(DiskDumpHeader, bitmap_blocks);
    assert!(head(blocks, &u32::MAX.to_le_bytes()).contains("it is truncated"));
    assert!(head(blocks, &1u32.to_le_bytes()).contains("too few"));
    for size in [-1i32, 0, i32::MIN] {
        let said = head(offset_of!(DiskDumpHeader, sub_hdr_size), &size.to_le_bytes());
        assert!(said.contains("not that of any machine"), "{said}");
    }
    assert!(
        head(offset_of!(DiskDumpHeader, sub_hdr_size), &i32::MAX.to_le_bytes()).contains("it is truncated")
    );
    assert!(sub(offset_of!(KdumpSubHeader, max_mapnr_64), &u64::MAX.to_le_bytes()).contains("52 bits"));
    // Without notes, pages are still there.
    let notes = |at: usize, with: &[u8]| {
        let dump = open(patched(&good, PAGE + at, with)).unwrap();
        assert!(dump.view().window(0x103 << 12, PAGE).is_ok());
        dump.faults().join("; ")
    };
    let size_note = offset_of!(KdumpSubHeader, size_note);
    assert!(notes(size_note, &(1u64 << 63).to_le_bytes()).contains("the sub header is damaged"));
    assert!(notes(size_note, &(200u64 << 20).to_le_bytes()).contains("the file ends at"));
    assert!(
        notes(offset_of!(KdumpSubHeader, offset_note), &(-8i64).to_le_bytes()).contains("the file ends at")
    );
    let mut split = good.clone();
    split[PAGE + 12] = 1;
    let range = [9u64.to_le_bytes(), 5u64.to_le_bytes()].concat();
    assert!(complaint(patched(&split, PAGE + 80, &range)).contains("PFNs 9 to 5"));
}

#[test]
fn other_formats_are_told_apart() {
    let good = mixed().build();
    for (at, with, expected) in [
        (0, b"DISKDUMP".to_vec(), "old diskdump facility"),
        (0, b"\x7fELF\x02\x01\x01\0".to_vec(), "no kdump-compressed dump starts here"),
        (8, 7i32.to_le_bytes().to_vec(), "newer than 6"),
        (8, 0i32.to_le_bytes().to_vec(), "version 0"),
        (428, 77i32.to_le_bytes().to_vec(), "77 bytes"),
    ] {
        let found = complaint(patched(&good, at, &with));
        assert!(found.contains(expected), "{found}");
    }
    assert!(complaint(Vec::new()).contains("the header"));
    assert!(complaint(good[..5000].to_vec()).contains("it is truncated"));
    assert!(matches!(open(vec![0; 9000]), Err(OpenError::Format { offset: 0, .. })));
}

#[test]
fn bad_descriptors_are_damage_not_data() {
    let mut spec = Spec::new(100);
    spec.pages.insert(5, (Codec::Zlib, page(5)));
    spec.pages.insert(6, (Codec::None, noise(6)));
    let good = spec.build();
    let layout = spec.layout();
    let data = layout.data_offset(2).unwrap();
    let zlib = common::encode(Codec::Zlib, &page(5)).1.len() as u32;
    let end = good.len() as u64;
    for (offset, size, flag, expected) in [
        (0, zlib, flags::ZLIB, "not marked incomplete"),
        (end - 10, zlib, flags::ZLIB, "past the end"),
        (i64::MAX as u64, 4096, 0, "past the end"),
        (u64::MAX, 4096, 0, "where no pages are"),
        (4096, 4096, 0, "where no pages are"),
        (data, 4095, 0, "which no page has"),
        (data, 4097, flags::ZLIB, "which no page has"),
        (data, 0, flags::LZO, "which no page has"),
        (data + 4096, zlib, flags::ZLIB | flags::ZSTD, "unknown flags 0x21"),
        (data + 4096, zlib, 0x40, "unknown flags 0x40"),
        (data + 4096, zlib - 1, flags::ZLIB, "zlib"),
        (data + 4096, zlib, flags::ZSTD, "zstd"),
        (data, 4096, flags::SNAPPY, "snappy"),
    ] {
        let desc = PageDesc::new(offset, size, flag);
        let dump = open(patched(&good, layout.descriptor_offset(0) as usize, desc.as_bytes())).unwrap();
        let mut view = dump.view();
        match view.window(5 * 4096 + 3, 10) {
            Err(
                ReadError::Damaged { paddr: 0x5003, reason } | ReadError::Missing { paddr: 0x5003, reason },
            ) => {
                assert!(reason.contains(expected), "{reason}");
            }
            other => panic!("{expected}: {other:?}"),
        }
        assert_eq!(view.window(6 * 4096, PAGE).unwrap(), noise(6), "the other page is whole");
    }
}

#[test]
fn what_an_interrupted_writer_left_is_readable() {
    let mut spec = mixed();
    spec.incomplete = true;
    let good = spec.build();
    let layout = spec.layout();
    // The writer got to the first 100 pages.
    let from = layout.descriptor_offset(100) as usize;
    let to = layout.descriptor_offset(spec.pages.len() as u64) as usize;
    let mut bytes = good;
    bytes[from..to].fill(0);
    let dump = open(bytes).unwrap();
    assert!(dump.is_incomplete());
    assert_eq!(dump.census().unwrap().missing, spec.pages.len() as u64 - 100);
    let mut view = dump.view();
    for (rank, (&pfn, (_, contents))) in spec.pages.iter().enumerate() {
        match view.window(pfn << 12, PAGE) {
            Ok(bytes) => assert!(rank < 100 && bytes == contents),
            Err(ReadError::Missing { reason, .. }) => {
                assert!(rank >= 100 && reason.contains("stopped before it"))
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_cut_file_holds_what_is_before_the_cut() {
    let spec = mixed();
    let good = spec.build();
    let layout = spec.layout();
    let descs = layout.descriptor_offset(50) as usize;
    for cut in [good.len() - 1, good.len() / 2, descs + 5] {
        let dump = open(good[..cut].to_vec()).unwrap();
        let census = dump.census().unwrap();
        assert!(census.truncated > 0);
        assert_eq!(census.truncated + census.readable(), spec.pages.len() as u64);
        let mut view = dump.view();
        let mut readable = 0;
        for (&pfn, (_, contents)) in &spec.pages {
            match view.window(pfn << 12, PAGE) {
                Ok(bytes) => {
                    assert_eq!(bytes, contents);
                    readable += 1;
                }
                Err(ReadError::Missing { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(readable, census.readable());
    }
}

/// A bit of bitmap 2 that flips gives every page behind it the contents of its neighbour: no page may be read then.
#[test]
fn a_bitmap_that_lost_a_bit_is_noticed() {
    for reversed in [false, true] {
        let mut spec = mixed();
        spec.reversed = reversed;
        let good = spec.build();
        let layout = spec.layout();
        // One that was set, one that was not.
        for pfn in [0x103u64, 0x104] {
            let mut bytes = good.clone();
            bytes[layout.bitmap2_offset() as usize + pfn as usize / 8] ^= 1 << (pfn % 8);
            let dump = open(bytes).unwrap();
            let faults = dump.faults().join("; ");
            assert!(faults.contains("one of the two is damaged"), "{pfn:#x}: {faults}");
            let state = dump.view().window(0x109 << 12, PAGE).unwrap_err().state();
            assert_eq!(state, PageState::Damaged);
        }
        assert!(open(good).unwrap().faults().is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever is changed, nothing panics; and as long as the headers, the bitmaps and a page's descriptor are whole,
    /// the page reads as it was or not at all. (zlib: a codec without checksum cannot tell a changed byte.)
    #[test]
    fn corruption_is_noticed(
        version in 1i32..=6,
        changes in prop::collection::vec((0.0f64..1.0, any::<u8>()), 1..6),
        whole_file in any::<bool>(),
        cut in prop::option::weighted(0.2, 0.0f64..1.0),
    ) {
        let mut spec = Spec::new(300);
        spec.ram.push(20..90);
        for pfn in 10..40 {
            spec.pages.insert(pfn, (Codec::Zlib, page(pfn)));
        }
        let good = spec.build();
        let good = if version == 6 { good } else { downgrade(good, version) };
        let layout = spec.layout();
        let descs = layout.descriptors_offset() as usize;
        let mut bytes = good.clone();
        let span = if whole_file { 0..good.len() } else { descs..good.len() };
        for (place, value) in changes {
            bytes[span.start + (place * (span.len() - 1) as f64) as usize] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate((cut * bytes.len() as f64) as usize);
        }
        let Ok(dump) = open(bytes.clone()) else { return Ok(()) };
        let _ = dump.census();
        let _ = dump.eraseinfo();
        let mut marked = [0; 8];
        let _ = dump.mark_stored(PhysAddr::of_4k_page(3), &mut marked);
        let mut view = dump.view();
        for pfn in 0..310 {
            let Ok(found) = view.window(pfn << 12, PAGE) else { continue };
            if whole_file {
                continue;
            }
            let Some((_, expected)) = spec.pages.get(&pfn) else {
                return Err(TestCaseError::fail(format!("PFN {pfn} was never dumped")));
            };
            let desc = descs + (pfn as usize - 10) * PageDesc::SIZE;
            let desc = desc..desc + PageDesc::SIZE;
            if bytes.get(desc.clone()) == good.get(desc) {
                prop_assert_eq!(found, expected);
            }
        }
    }
}
