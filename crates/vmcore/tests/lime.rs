//! Images by LiME, whole and damaged.

use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::{ImageFormat, Source, SourceKind};

fn header(first: u64, last: u64) -> Vec<u8> {
    let mut header = [0x4c69_4d45_u32, 1].map(u32::to_le_bytes).concat();
    header.extend(first.to_le_bytes());
    header.extend(last.to_le_bytes());
    header.extend([0; 8]);
    header
}

fn opened(bytes: &[u8]) -> Result<Source, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    // The file stays open, and that is enough.
    Source::open(file.path(), MapPolicy::default()).map_err(|error| error.to_string())
}

fn ranges(source: &Source) -> Vec<(u64, u64)> {
    source.memory().ranges().pieces().iter().map(|piece| (piece.start, piece.end)).collect()
}

#[test]
fn each_range_is_at_its_address() {
    let mut bytes = [header(0x1000, 0x1fff), vec![1; 0x1000]].concat();
    bytes.extend([header(0x8000, 0x87ff), vec![2; 0x800]].concat());
    let source = opened(&bytes).unwrap();
    let SourceKind::Image(image) = source.kind() else { panic!("it is an image") };
    assert_eq!(image.format(), ImageFormat::Lime);
    assert_eq!(ranges(&source), [(0x1000, 0x2000), (0x8000, 0x8800)]);
    assert!(source.memory().faults().is_empty());
    let mut byte = [0];
    let mut view = source.memory().view();
    for (paddr, expected) in [(0x1000, 1), (0x1fff, 1), (0x8000, 2), (0x87ff, 2)] {
        view.read(paddr, &mut byte).unwrap();
        assert_eq!(byte, [expected], "{paddr:#x}");
    }
    assert!(view.read(0x2000, &mut byte).is_err() && view.read(0x8800, &mut byte).is_err());
}

#[test]
fn what_is_damaged_is_told_and_the_rest_is_read() {
    let whole = [header(0x1000, 0x1fff), vec![1; 0x1000]].concat();
    for (next, fault) in [
        (vec![0; 40], "no LiME header is at 0x1020"),
        (header(0x3000, 0x2000), "impossible range 0x3000 to 0x2000"),
        (header(0, 1 << 53), "impossible range"),
        (header(0, (1 << 52) - 1), "impossible range"),
        (header(0x3000, 0x3fff)[..20].to_vec(), "ends in the LiME header at 0x1020"),
        (header(0x3000, 0x3fff), "it is truncated: 4096 bytes"),
    ] {
        let source = opened(&[&whole[..], &next].concat()).unwrap();
        let faults = source.memory().faults();
        assert!(faults.len() == 1 && faults[0].contains(fault), "{fault}: {faults:?}");
        assert_eq!(ranges(&source)[0], (0x1000, 0x2000));
    }
    let mut other = header(0, 0xfff);
    other[4] = 2;
    assert!(opened(&other).map(|_| ()).unwrap_err().contains("only version 1 is read"));
    assert!(opened(&header(0, 0)[..20]).map(|_| ()).unwrap_err().contains("ends in the LiME header"));
}
