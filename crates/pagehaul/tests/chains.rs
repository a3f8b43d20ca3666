//! Conversions one after another: whatever the forms between, the pages are those of the machine.

use std::path::Path;
use std::process::{Command, Stdio};

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE};
use pagehaul_synth::{Content, Era, Image, Machine, Records, flatten};
use pagehaul_vmcore::Source;
use proptest::prelude::*;

/// 24 MiB with pages of every kind.
fn image() -> Image {
    Machine::new(Era::V6_12)
        .ram(0x100_0000, 0x280_0000)
        .load_at(0x100_0000)
        .populate(0x2000, 0x200, 5)
        .fill(0x2100, Content::Random)
        .build()
}

/// What `convert` can write.
fn form() -> impl Strategy<Value = (&'static str, &'static str)> {
    let codec = prop::sample::select(vec!["none", "zlib", "lzo", "snappy", "zstd", "zstd:3"]);
    prop_oneof![
        4 => codec.clone().prop_map(|codec| ("kdump", codec)),
        2 => codec.prop_map(|codec| ("flattened", codec)),
        2 => Just(("elf", "none")),
    ]
}

/// What a chain can begin with, by number, and the pages it holds.
fn begin(image: &Image, number: usize, directory: &Path) -> (Vec<String>, Vec<u64>) {
    let (level, files) = match number {
        // Poisoned pages too: what a saved vmcore has can be read.
        0 => (None, vec![image.elf().bytes()]),
        1 => (None, vec![image.qemu_elf().bytes()]),
        2 => (Some(0), vec![image.kdump().level(0).mixed().bytes()]),
        3 => (Some(31), vec![image.kdump().level(31).backwards().bytes()]),
        4 => (Some(31), vec![flatten(&image.kdump().level(31).bytes(), 3000, Records::Shuffled)]),
        _ => (Some(31), image.kdump().level(31).parts(3)),
    };
    let name = |index: usize| format!("start.{index}");
    for (index, bytes) in files.iter().enumerate() {
        std::fs::write(directory.join(name(index)), bytes).unwrap();
    }
    (
        (0..files.len()).rev().map(name).collect(),
        level.map_or_else(|| image.pfns(), |level| image.expected(level)),
    )
}

/// The pages of a dump that differ from the machine's, or are there or not there unlike `kept`.
fn wrong(image: &Image, dump: &Path, kept: &[u64], more_may_be: bool) -> Vec<u64> {
    let source = Source::open(dump, MapPolicy::default()).unwrap();
    let mut view = source.memory().view();
    let mut page = [0; PAGE_SIZE];
    let mut is_wrong = |pfn: &u64| match view.copy_page(PhysAddr::of_4k_page(*pfn), &mut page) {
        Ok(()) if kept.binary_search(pfn).is_ok() => page != image.page(*pfn),
        // An ELF file has no short holes: what its source excludes reads as zeros there.
        Ok(()) => !more_may_be || page != [0; PAGE_SIZE],
        Err(_) => kept.binary_search(pfn).is_ok(),
    };
    image.pfns().into_iter().filter(|pfn| is_wrong(pfn)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

    #[test]
    fn chains_of_conversions_change_no_page(
        start in 0usize..6,
        forms in proptest::collection::vec(form(), 1..5),
    ) {
        let image = image();
        let directory = tempfile::tempdir().unwrap();
        let (mut sources, kept) = begin(&image, start, directory.path());
        let mut through_elf = false;
        for (index, (format, codec)) in forms.iter().enumerate() {
            let output = format!("step.{index}");
            let status = Command::new(env!("CARGO_BIN_EXE_pagehaul"))
                .args(["convert", "-q", "-f", format, "-c", codec])
                .args(&sources)
                .arg(&output)
                .current_dir(directory.path())
                .stdin(Stdio::null())
                .status()
                .unwrap();
            prop_assert!(status.success(), "step {index}");
            through_elf |= *format == "elf" && start >= 3;
            let wrong = wrong(&image, &directory.path().join(&output), &kept, through_elf);
            prop_assert!(wrong.is_empty(), "step {}: {} pages, first {:#x}", index, wrong.len(), wrong[0]);
            sources = vec![output];
        }
    }
}
