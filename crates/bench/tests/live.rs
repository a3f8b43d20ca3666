//! Rates and contents, measured on a synthetic machine. These tests need a separate process, because those of `scale` check
//! the peak memory of theirs.

use std::time::Duration;

use pagehaul_bench::live::{contents, read, scan};
use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Content, Era, Machine};
use pagehaul_vmcore::Source;

#[test]
fn a_sample_is_packed_and_blocks_are_scanned() {
    let mut machine = Machine::new(Era::V6_12);
    machine.anon(0x4000).fill(0x4000, Content::Text).anon(0x4001).fill(0x4001, Content::Zero);
    let file = tempfile::NamedTempFile::new().unwrap();
    machine.build().elf().write(file.path()).unwrap();
    let source = Source::open(file.path(), MapPolicy::default()).unwrap();
    let found = contents(&source, &[0x4000, 0x4001, 1 << 50], "zstd".parse().unwrap()).unwrap();
    assert_eq!((found.pages, found.zero), (2, 1));
    assert!(found.stored > 0 && found.stored < 4096, "{found:?}");
    assert!(read(&source, &[0x4000, 0x4001]) > 0.0);
    assert_eq!(read(&source, &[1 << 50]), 0.0);
    let rate = scan(&source, 0x8000, Duration::ZERO).unwrap();
    assert!(rate.pages > 0.0 && rate.start > 0.0);
}
