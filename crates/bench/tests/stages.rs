//! The stages of a capture, measured on a synthetic machine. They run in a separate process: the tests of
//! `scale` check the peak memory of theirs.

use pagehaul_bench::stages::{Config, measure};
use pagehaul_kernel::DumpLevel;
use pagehaul_run::Progress;
use pagehaul_synth::{Content, Era, Machine};

#[test]
fn every_stage_has_its_limit_and_the_scratch_directory_stays_empty() {
    let mut machine = Machine::new(Era::V6_12);
    machine.anon(0x4000).fill(0x4000, Content::Text).anon(0x4001).fill(0x4001, Content::Zero);
    let directory = tempfile::tempdir().unwrap();
    let (vmcore, scratch) = (directory.path().join("vmcore"), directory.path().join("scratch"));
    machine.build().elf().write(&vmcore).unwrap();
    std::fs::create_dir(&scratch).unwrap();
    let config = Config {
        source: &vmcore,
        level: DumpLevel::NONE,
        method: "lzo".parse().unwrap(),
        threads: 2,
        directory: &scratch,
        rounds: 1,
    };
    let stages = measure(&config, &Progress::default()).unwrap();
    let names: Vec<&str> = stages.stages.iter().map(|stage| stage.name).collect();
    assert_eq!(names, ["prepare", "scan", "read", "pack", "write"]);
    assert!(stages.stages.iter().all(|stage| stage.seconds > 0.0), "{stages:?}");
    assert!(
        stages.stages[1..].iter().all(|stage| stage.ratio().is_some_and(|ratio| ratio > 0.0)),
        "{stages:?}"
    );
    // All struct pages are read, of blocks that have memory.
    let struct_pages = stages.struct_page_bytes / 64;
    assert!(struct_pages >= stages.pages && struct_pages.is_multiple_of(1 << 15), "{stages:?}");
    assert!(stages.pages > 2 && stages.output_bytes > 0 && stages.predicted > 0.0);
    assert_eq!(scratch.read_dir().unwrap().count(), 0);
    let json = serde_json::to_value(&stages).unwrap();
    assert!(json["rates"]["pack"].as_f64().unwrap() > 0.0 && json["start"].is_number(), "{json}");
}

#[test]
fn a_source_without_a_kernel_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let config = Config {
        source: file.path(),
        level: DumpLevel::ALL,
        method: "lzo".parse().unwrap(),
        threads: 1,
        directory: file.path().parent().unwrap(),
        rounds: 1,
    };
    assert!(measure(&config, &Progress::default()).is_err());
}
