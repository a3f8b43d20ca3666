//! Rates and contents, measured on a synthetic machine.

use std::time::Duration;

use pagehaul_kdump_plan::live::{contents, read, scan};
use pagehaul_machine::{PageSize, Pfn};
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
    let [first, second, none] = [0x4000, 0x4001, 1 << 50].map(Pfn::new);
    let zstd = "zstd".parse().unwrap();
    let found = contents(&source, PageSize::KIB_4, &[first, second, none], zstd).unwrap();
    assert_eq!((found.pages, found.zero), (2, 1));
    assert!(found.stored > 0 && found.stored < 4096, "{found:?}");
    assert!(read(&source, PageSize::KIB_4, &[first, second]) > 0.0);
    assert_eq!(read(&source, PageSize::KIB_4, &[none]), 0.0);
    // The same memory as pages of 16 KiB.
    let kib_16 = PageSize::new(16 << 10).unwrap();
    let found = contents(&source, kib_16, &[Pfn::new(0x1000), Pfn::new(0x1001)], zstd).unwrap();
    assert_eq!((found.pages, found.zero), (2, 1));
    assert!(found.stored > 0 && found.stored < 4096, "{found:?}");
    let rate = scan(&source, Pfn::new(0x8000), Duration::ZERO).unwrap();
    assert!(rate.pages > 0.0 && rate.start > 0.0);
}
