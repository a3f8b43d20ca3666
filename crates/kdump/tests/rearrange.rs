//! Flattened streams turned into files in one pass, compared with the files that their records describe.

mod common;

use std::io::Read;

use common::{MemFile, PAGE, mixed};
use pagehaul_kdump::write::{FlattenedOutput, RearrangeError, Rearranged, rearrange};
use pagehaul_kdump::{KdumpFile, STATUS_OFFSET};
use pagehaul_output::{DumpFileOptions, OutputFile};
use pagehaul_run::BytesWritten;
use proptest::prelude::*;

/// A stream of the records `(offset, bytes)`.
fn stream(records: &[(u64, &[u8])]) -> Vec<u8> {
    let mut writer = FlattenedOutput::new(Vec::new(), BytesWritten::default()).unwrap();
    for (offset, bytes) in records {
        writer.record(*offset, bytes).unwrap();
    }
    common::without_index(writer.finish().unwrap())
}

/// Rearranges a stream; returns how it ended, the file, and what was not read.
fn rearranged(bytes: &[u8]) -> (Result<Rearranged, RearrangeError>, Vec<u8>, usize) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let options = DumpFileOptions { overwrite: false, checksums: false, sources: &[] };
    let mut file = OutputFile::create(&path, options, BytesWritten::default()).unwrap();
    let mut input = bytes;
    let end = rearrange(&mut input, &mut file);
    // Damaged offsets make a sparse file of any size.
    let mut bytes = Vec::new();
    std::fs::File::open(&path).unwrap().take(64 << 20).read_to_end(&mut bytes).unwrap();
    (end, bytes, input.len())
}

/// A dump as a stream whose status word comes last, in records of at most `size` bytes.
fn dump_stream(plain: &[u8], size: usize) -> Vec<u8> {
    let at = STATUS_OFFSET as usize;
    let mut records = vec![(0, &plain[..at]), (STATUS_OFFSET + 4, &plain[at + 4..PAGE])];
    let rest = plain[PAGE..].chunks(size).enumerate();
    records.extend(rest.map(|(index, part)| ((PAGE + index * size) as u64, part)));
    records.push((STATUS_OFFSET, &plain[at..at + 4]));
    stream(&records)
}

#[test]
fn a_stream_becomes_its_file_and_the_rest_stays_unread() {
    let plain = mixed().build();
    let mut bytes = dump_stream(&plain, 777);
    bytes.extend(b"an older dump on the same partition");
    let (end, file, left) = rearranged(&bytes);
    assert_eq!(end.unwrap(), Rearranged::Complete);
    assert!(file == plain);
    assert_eq!(left, 35);
}

#[test]
fn marks_are_kept_and_set_in_both_byte_orders_and_formats() {
    let mut plain = mixed().build();
    plain[STATUS_OFFSET as usize] |= 8;
    let (end, file, _) = rearranged(&dump_stream(&plain, 5000));
    assert_eq!(end.unwrap(), Rearranged::MarkedIncomplete);
    assert!(file == plain);

    let truncated = |head: &[u8]| {
        let bytes = stream(&[(0, head)]);
        let (end, file, _) = rearranged(&bytes[..bytes.len() - 16]);
        assert!(matches!(end.unwrap(), Rearranged::Truncated(_)));
        file
    };
    let mut header = vec![0; 500];
    header[..8].copy_from_slice(b"KDUMP   ");
    header[8] = 6;
    assert_eq!(truncated(&header)[424..428], [8, 0, 0, 0]);
    header[8..12].copy_from_slice(&[0, 0, 0, 6]);
    assert_eq!(truncated(&header)[424..428], [0, 0, 0, 8]);
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    assert_eq!(truncated(&elf)[48..52], [1, 0, 0, 0]);
}

#[test]
fn what_is_no_stream_is_refused() {
    for bytes in [&b""[..], b"makedumpfile", &[0; 5000]] {
        assert!(matches!(rearranged(bytes).0, Err(RearrangeError::NotFlattened)));
    }
    // Nothing says where the mark belongs.
    let bytes = stream(&[(5000, b"data")]);
    assert!(matches!(rearranged(&bytes[..bytes.len() - 16]).0, Err(RearrangeError::NoHeader)));
}

proptest! {
    #[test]
    fn a_cut_never_passes_for_a_complete_dump(size in 100usize..9000, cut in 1usize..20_000) {
        let plain = mixed().build();
        let bytes = dump_stream(&plain, size);
        let kept = bytes.len().saturating_sub(cut).max(4096 + 16 + PAGE);
        let (end, file, _) = rearranged(&bytes[..kept]);
        prop_assert!(matches!(end, Ok(Rearranged::Truncated(_))));
        if let Ok(dump) = KdumpFile::open(Box::new(MemFile(file))) {
            prop_assert!(dump.is_incomplete());
        }
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        // Offsets and sizes of the first record within reason.
        bytes.iter_mut().enumerate().filter(|(at, _)| at % 8 < 6).for_each(|(_, byte)| *byte = 0);
        let mut input = stream(&[(0, &[1; 64])]);
        input.truncate(4096 + 80);
        input.extend(bytes);
        // Only dumps and ELF files can be marked incomplete.
        let (end, file, _) = rearranged(&input);
        prop_assert!(!matches!(end, Ok(Rearranged::Truncated(_))), "{end:?}");
        // Later records may write over the first, but do not remove it.
        prop_assert!(file.len() >= 64, "{end:?}");
    }
}
