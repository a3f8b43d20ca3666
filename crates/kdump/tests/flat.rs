//! Flattened files against the file that their records describe.

mod common;

use std::io;

use common::{MemFile, PAGE, mixed};
use pagehaul_kdump::Flattened;
use pagehaul_kdump::write::FlattenedOutput;
use pagehaul_kdump::{KdumpFile, STATUS_OFFSET};
use pagehaul_physmem::PhysMemory;
use pagehaul_physmem::file::ReadAt;
use pagehaul_run::BytesWritten;
use proptest::prelude::*;

fn stream(records: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut writer = FlattenedOutput::new(Vec::new(), BytesWritten::default()).unwrap();
    for (offset, bytes) in records {
        writer.record(*offset, bytes).unwrap();
    }
    writer.finish().unwrap()
}

fn open(bytes: Vec<u8>) -> Flattened {
    Flattened::open(MemFile(bytes)).unwrap()
}

/// What the records make, and which of its bytes they have.
fn model(records: &[(u64, Vec<u8>)]) -> (Vec<u8>, Vec<bool>) {
    let (mut bytes, mut known) = (Vec::new(), Vec::new());
    for (offset, record) in records {
        let (from, to) = (*offset as usize, *offset as usize + record.len());
        if bytes.len() < to && !record.is_empty() {
            bytes.resize(to, 0);
            known.resize(to, false);
        }
        if !record.is_empty() {
            bytes[from..to].copy_from_slice(record);
            known[from..to].fill(true);
        }
    }
    (bytes, known)
}

#[test]
fn the_stream_is_as_the_field_writes_it() {
    let bytes = stream(&[(0x1122, b"abc".to_vec()), (5, Vec::new())]);
    assert_eq!(&bytes[..16], b"makedumpfile\0\0\0\0");
    assert_eq!(bytes[16..32], [[0, 0, 0, 0, 0, 0, 0, 1]; 2].concat());
    assert_eq!(bytes[4096..4112], [[0, 0, 0, 0, 0, 0, 0x11, 0x22], [0, 0, 0, 0, 0, 0, 0, 3]].concat());
    assert_eq!(&bytes[4112..4115], b"abc");
    assert_eq!(bytes[4115..], [0xff; 16]);
    let mut writer = FlattenedOutput::new(Vec::new(), BytesWritten::default()).unwrap();
    let error = writer.record(i64::MAX as u64, b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_dump_in_records_is_the_dump() {
    let spec = mixed();
    let plain = spec.build();
    // The status word comes last: the dump counts as incomplete until then.
    let at = STATUS_OFFSET as usize;
    let mut records = vec![(0, plain[..at].to_vec()), (STATUS_OFFSET + 4, plain[at + 4..PAGE].to_vec())];
    let parts = plain[PAGE..].chunks(777).enumerate();
    records.extend(parts.map(|(index, part)| ((PAGE + index * 777) as u64, part.to_vec())));
    records.push((STATUS_OFFSET, plain[at..at + 4].to_vec()));
    let bytes = stream(&records);
    let dump = KdumpFile::open_flattened(open(bytes.clone())).unwrap();
    assert!(!dump.is_incomplete());
    let mut view = dump.view();
    for (&pfn, (_, contents)) in &spec.pages {
        assert_eq!(view.window(pfn << 12, PAGE).unwrap(), contents);
    }
    // Without its last record and terminator it says so, and the pages are still there.
    let cut = KdumpFile::open_flattened(open(bytes[..bytes.len() - 36].to_vec())).unwrap();
    assert!(cut.is_incomplete() && cut.info().incomplete());
    let mut view = cut.view();
    for (&pfn, (_, contents)) in &spec.pages {
        assert_eq!(view.window(pfn << 12, PAGE).unwrap(), contents);
    }
}

#[test]
fn bad_streams_are_refused_or_cut() {
    let good = stream(&[(0, vec![1; 100]), (100, vec![2; 100])]);
    let fail = |bytes: Vec<u8>| Flattened::open(MemFile(bytes)).unwrap_err().to_string();
    assert!(fail(good[..4000].to_vec()).contains("ends within the header"));
    assert!(fail(vec![0; 5000]).contains("no flattened dump starts here"));
    let with = |at: usize, value: i64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        bytes
    };
    assert!(fail(with(16, 2)).contains("type 2"));
    for (offset, size) in [(-2, 1), (0, -1), (i64::MAX, 1), (5, i64::MIN)] {
        let mut bytes = with(4096, offset);
        bytes[4104..4112].copy_from_slice(&i64::to_be_bytes(size));
        // Where the next record would be is unknown.
        assert!(!open(bytes).is_complete());
    }
    // A size that reaches past the end is a cut.
    let cut = open(with(4104, 1 << 62));
    assert!(!cut.is_complete());
    // So are zeros where the next record should be.
    let mut zeros = good[..4096 + 116].to_vec();
    zeros.extend([0; 4096]);
    let cut = open(zeros);
    assert_eq!((cut.size(), cut.is_complete()), (100, false));
}

#[test]
fn what_a_cut_stream_lacks_is_not_taken_for_zeros() {
    let good = stream(&[(0, vec![1; 10]), (90, vec![2; 10])]);
    let mut buf = [9; 20];
    let whole = open(good.clone());
    whole.read_exact_at(5, &mut buf).unwrap();
    assert_eq!(buf[..5], [1; 5]);
    assert_eq!(buf[5..], [0; 15]);
    let cut = open(good[..good.len() - 16].to_vec());
    let error = cut.read_exact_at(5, &mut buf).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    cut.read_exact_at(95, &mut buf[..5]).unwrap();
    assert_eq!(buf[..5], [2; 5]);
}

proptest! {
    /// Records that overlap, leave gaps, go on from each other, or are cut off.
    #[test]
    fn reassembles_like_the_model(
        moves in prop::collection::vec((prop_oneof![3 => Just(None), 1 => (0u64..3000).prop_map(Some)], 0usize..200), 1..120),
        cut in prop::option::of(0usize..500),
        reads in prop::collection::vec((0u64..6000, 1usize..700), 20),
    ) {
        let mut next = 0;
        let mut records = Vec::new();
        for (number, (jump, size)) in moves.into_iter().enumerate() {
            let offset = jump.unwrap_or(next);
            next = offset + size as u64;
            records.push((offset, vec![number as u8 + 1; size]));
        }
        let mut bytes = stream(&records);
        let mut complete = true;
        if let Some(cut) = cut {
            // What is left of the records.
            let keep = bytes.len().saturating_sub(cut).max(4096);
            bytes.truncate(keep);
            complete = cut == 0;
            let mut at = 4096;
            records.retain_mut(|(_, data)| {
                if data.is_empty() {
                    return false;
                }
                at += 16;
                let held = keep.saturating_sub(at).min(data.len());
                at += data.len();
                data.truncate(held);
                held > 0
            });
        }
        let flat = open(bytes);
        let (expected, known) = model(&records);
        prop_assert_eq!(flat.is_complete(), complete);
        prop_assert_eq!(flat.size(), expected.len() as u64);
        for (offset, len) in reads {
            let mut buf = vec![0xee; len];
            let end = offset as usize + len;
            let readable = end <= expected.len() && (complete || known[offset as usize..end].iter().all(|&known| known));
            match flat.read_exact_at(offset, &mut buf) {
                Ok(()) => prop_assert!(readable && buf == expected[offset as usize..end]),
                Err(error) => prop_assert!(!readable && error.kind() == io::ErrorKind::UnexpectedEof),
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..300), small in any::<bool>()) {
        let mut file = stream(&[(0, vec![1; 64])]);
        file.truncate(4096 + 80);
        if small {
            // Offsets and sizes that are within reason now and then.
            bytes.iter_mut().enumerate().filter(|(at, _)| at % 8 < 7).for_each(|(_, byte)| *byte = 0);
        }
        file.extend(bytes);
        if let Ok(flat) = Flattened::open(MemFile(file)) {
            let mut buf = [0; 512];
            for offset in [0, 1, 63, 64, 200, u64::MAX] {
                let _ = flat.read_exact_at(offset, &mut buf);
            }
        }
    }
}
