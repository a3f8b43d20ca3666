//! Flattened files against the file that their records describe.

mod common;

use std::io;

use common::{MemFile, PAGE, Server, mixed, without_index};
use pagehaul_kdump::Flattened;
use pagehaul_kdump::format::FlatIndex;
use pagehaul_kdump::write::FlattenedOutput;
use pagehaul_kdump::{KdumpFile, STATUS_OFFSET};
use pagehaul_physmem::PhysMemory;
use pagehaul_physmem::file::ReadAt;
use pagehaul_run::BytesWritten;
use proptest::prelude::*;
use zerocopy::IntoBytes;

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

fn on_server(server: &Server) -> Flattened {
    Flattened::open(server.clone()).unwrap()
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
    assert_eq!(bytes[4115..4131], [0xff; 16]);
    // The index.
    assert_eq!(bytes[4131..4147], bytes[4096..4112]);
    assert_eq!(&bytes[4147..4163], b"pagehaul-index\0\0");
    assert_eq!(bytes[4163..4179], [[0, 0, 0, 0, 0, 0, 0, 1]; 2].concat());
    assert_eq!(bytes.len(), 4187);
    let mut writer = FlattenedOutput::new(Vec::new(), BytesWritten::default()).unwrap();
    let error = writer.record(i64::MAX as u64, b"x").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_stream_on_a_server_is_opened_from_its_index() {
    // Of sizes that cannot be foreseen, more than one fetch of its end has.
    let records: Vec<_> = (0..3000_usize).map(|at| (at as u64 * 100, vec![1; 1 + at * 7 % 100])).collect();
    let server = Server::new(stream(&records));
    let flat = on_server(&server);
    assert!(flat.is_complete());
    assert_eq!(server.announced.lock().unwrap().len(), 2);
    // The stream's header, and the index.
    assert_eq!(server.late.lock().unwrap().len(), 1);
    server.announced.lock().unwrap().clear();
    // A record's header and bytes come together, then its bytes alone.
    for expected in [vec![4096..4112, 4112..4113], vec![4112..4113]] {
        flat.will_need(&[0..1]);
        assert_eq!(server.announced.lock().unwrap().last(), Some(&expected));
        flat.read_exact_at(0, &mut [0]).unwrap();
    }
    assert_eq!(server.late.lock().unwrap().len(), 1);
}

#[test]
fn headers_of_equal_records_are_fetched_ahead() {
    let records: Vec<_> = (0..1000).map(|at| (at * 500, vec![1; 500])).collect();
    let server = Server::new(without_index(stream(&records)));
    assert!(on_server(&server).is_complete());
    let rounds = server.announced.lock().unwrap().len() + server.late.lock().unwrap().len();
    assert!(rounds < 40, "{rounds} requests one after the other");
}

#[test]
fn a_damaged_index_is_not_used() {
    let records = [(0, vec![1; 100]), (200, vec![2; 50])];
    let good = stream(&records);
    let end = without_index(good.clone()).len();
    let (expected, _) = model(&records);
    for at in end..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        let flat = on_server(&Server::new(bytes));
        let mut found = vec![9; expected.len()];
        flat.read_exact_at(0, &mut found).unwrap();
        assert!(flat.is_complete() && found == expected, "{at}");
    }
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
    let bytes = without_index(stream(&records));
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
    let good = without_index(stream(&[(0, vec![1; 100]), (100, vec![2; 100])]));
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
    let good = without_index(stream(&[(0, vec![1; 10]), (90, vec![2; 10])]));
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
        let whole = stream(&records);
        let mut bytes = without_index(whole.clone());
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
        let (expected, known) = model(&records);
        // On a server without an index and, if it is whole, with one.
        let indexed = complete.then(|| Server::new(whole));
        for flat in [Some(open(bytes.clone())), Some(on_server(&Server::new(bytes))), indexed.as_ref().map(on_server)] {
            let Some(flat) = flat else { continue };
            prop_assert_eq!(flat.is_complete(), complete);
            prop_assert_eq!(flat.size(), expected.len() as u64);
            for &(offset, len) in &reads {
                let mut buf = vec![0xee; len];
                let end = offset as usize + len;
                let readable = end <= expected.len() && (complete || known[offset as usize..end].iter().all(|&known| known));
                flat.will_need(&[offset..offset + len as u64]);
                match flat.read_exact_at(offset, &mut buf) {
                    Ok(()) => prop_assert!(readable && buf == expected[offset as usize..end]),
                    Err(error) => prop_assert!(!readable && error.kind() == io::ErrorKind::UnexpectedEof),
                }
            }
        }
        // All that was read later was announced.
        if let Some(server) = indexed {
            let header_and_index = [0, (server.size() - size_of::<FlatIndex>() as u64)];
            prop_assert!(server.late.lock().unwrap().iter().all(|late| header_and_index.contains(late)));
        }
    }

    /// An index that contradicts the stream, with a right checksum, leads to an error or to nothing else than the stream's bytes.
    #[test]
    fn an_index_is_not_believed(
        sizes in prop::collection::vec(1usize..60, 1..20),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u64..300), 1..4),
        seal in any::<bool>(),
    ) {
        let mut next = 0;
        let records: Vec<_> = sizes.iter().enumerate().map(|(number, size)| {
            next += size;
            ((next - size) as u64, vec![number as u8 + 1; *size])
        }).collect();
        let whole = stream(&records);
        let end = without_index(whole.clone()).len();
        let (expected, _) = model(&records);
        let mut index = whole[end..].to_vec();
        for (at, value) in changes {
            let words = index.len() / 8;
            let at = 8 * at.index(words);
            index[at..at + 8].copy_from_slice(&value.to_be_bytes());
        }
        if seal {
            let headers = index.len() - size_of::<FlatIndex>();
            let sealed = FlatIndex::new(&index[..headers]);
            index.truncate(headers);
            index.extend(sealed.as_bytes());
        }
        let flat = on_server(&Server::new([&whole[..end], &index].concat()));
        for offset in 0..flat.size().min(2000) {
            let mut byte = [0xee];
            if let Err(error) = flat.read_exact_at(offset, &mut byte) {
                prop_assert!(error.to_string().contains("contradicts the record"), "{}", error);
            } else if let Some(expected) = expected.get(offset as usize) {
                // What it does not list is a hole.
                prop_assert!(byte[0] == *expected || seal && byte[0] == 0);
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
