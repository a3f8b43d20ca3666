//! Dumps in several files.

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Bench, assert_complete, machine, options};
use pagehaul_capture::{CaptureError, CaptureReport, Format, Limits, Options, Outcome, Target, capture};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE, ReadError};
use pagehaul_run::{Phase, Progress};
use pagehaul_synth::{Content, Era, Image, Machine};
use pagehaul_vmcore::Source;

fn names(bench: &Bench, count: usize) -> Vec<PathBuf> {
    (0..count).map(|part| bench.path(&format!("part-{part}"))).collect()
}

fn into_parts(bench: &Bench, paths: &[PathBuf], options: &Options) -> Result<CaptureReport, CaptureError> {
    let target = Target::Parts { paths: paths.to_vec(), overwrite: false };
    capture(&bench.source(), &target, options, &Progress::default())
}

/// What became of each page of `image` in the set: the PFNs that it holds, all with the right contents, and those that
/// are lost.
fn held(paths: &[PathBuf], image: &Image) -> (Vec<u64>, Vec<u64>) {
    let set = Source::open_all(paths, MapPolicy::default()).unwrap();
    let mut view = set.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    let (mut held, mut lost) = (Vec::new(), Vec::new());
    for pfn in image.pfns() {
        match view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
            Ok(page) => {
                assert!(*page == image.page(pfn), "PFN {pfn:#x} has other contents");
                held.push(pfn);
            }
            Err(ReadError::NotInDump { .. }) => {}
            Err(ReadError::Missing { .. } | ReadError::Damaged { .. }) => lost.push(pfn),
            Err(other) => panic!("PFN {pfn:#x}: {other}"),
        }
    }
    (held, lost)
}

fn ranges(report: &CaptureReport) -> Vec<(u64, u64)> {
    report.parts.iter().filter(|part| part.exists).map(|part| (part.start_pfn, part.end_pfn)).collect()
}

/// A machine with noise in it, so that pages take room.
fn noisy() -> Bench {
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000).populate(0x5000, 0x1000, 7);
    for pfn in 0x8000..0xa000 {
        machine.fill(pfn, Content::Random);
    }
    Bench::new(machine.build())
}

#[test]
fn a_set_holds_what_one_file_holds_whatever_the_order_of_its_parts() {
    let bench = Bench::new(machine().build());
    for (count, level, codec) in [(2, "31", "zstd"), (3, "0", "lzo"), (4, "31", "none"), (7, "1", "snappy")] {
        let options = options(level, codec, Format::Kdump);
        let paths = names(&bench, count);
        let report = into_parts(&bench, &paths, &options).unwrap();
        assert_complete(&report);
        let ranges = ranges(&report);
        assert_eq!(ranges.len(), count);
        assert_eq!(ranges[0].0, 0);
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:x?}");
        assert_eq!(report.parts.iter().map(|part| part.pages_written).sum::<u64>(), report.pages_kept);
        let expected = bench.image.expected(level.parse().unwrap());
        for turn in 0..count {
            let mut turned = paths.clone();
            turned.rotate_left(turn);
            let set = Source::open_all(&turned, MapPolicy::default()).unwrap();
            assert!(!set.is_incomplete(), "{:?}", set.warnings());
            assert_eq!(
                held(&turned, &bench.image),
                (expected.clone(), Vec::new()),
                "{count} parts, turned {turn}"
            );
        }
        let part = Source::open(&paths[0], MapPolicy::default()).unwrap();
        assert!(part.is_incomplete(), "one part is not the dump");
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

#[test]
fn threads_change_who_has_what_but_not_what_is_there() {
    let bench = noisy();
    for threads in [1, 2, 5] {
        let options = Options { threads, ..options("0", "lzo", Format::Kdump) };
        let paths = names(&bench, 3);
        assert_complete(&into_parts(&bench, &paths, &options).unwrap());
        assert_eq!(held(&paths, &bench.image), (bench.image.expected(0), Vec::new()));
        paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_set_becomes_one_file_again() {
    let bench = Bench::new(machine().build());
    let paths = names(&bench, 3);
    let options = options("31", "zstd", Format::Kdump);
    assert_complete(&into_parts(&bench, &paths, &options).unwrap());
    let set = Source::open_all(&paths, MapPolicy::default()).unwrap();
    let (whole, report) = bench.capture_from(&set, "whole", &Options { keep_all: true, ..options });
    assert_complete(&report);
    common::assert_holds(&whole, &bench.image, &bench.image.expected(31), "whole");
}

#[test]
fn a_part_without_room_leaves_its_work_to_the_others() {
    let bench = noisy();
    // Together they have room for everything, one alone has not.
    let full = bench.capture("full", &options("0", "none", Format::Kdump)).1.output_bytes;
    let limits = Limits { size: Some(full * 2 / 3), time: None };
    let options = Options { limits, ..options("0", "none", Format::Kdump) };
    let paths = names(&bench, 2);
    assert_complete(&into_parts(&bench, &paths, &options).unwrap());
    assert_eq!(held(&paths, &bench.image), (bench.image.expected(0), Vec::new()));
}

#[test]
fn parts_without_room_hold_what_fits_and_say_so() {
    let bench = noisy();
    let full = bench.capture("full", &options("0", "none", Format::Kdump)).1.output_bytes;
    let limit = full / 4;
    let limits = Limits { size: Some(limit), time: None };
    let options = Options { limits, ..options("0", "none", Format::Kdump) };
    let paths = names(&bench, 3);
    let report = into_parts(&bench, &paths, &options).unwrap();
    assert_eq!(report.outcome, Outcome::SizeLimit);
    let (there, lost) = held(&paths, &bench.image);
    assert_eq!(there.len() as u64, report.pages_written);
    assert_eq!((there.len() + lost.len()) as u64, report.pages_kept);
    assert!(Source::open_all(&paths, MapPolicy::default()).unwrap().is_incomplete());
    assert!(report.warnings.iter().any(|warning| warning.contains("in no part")), "{:?}", report.warnings);
    for (path, part) in paths.iter().zip(&report.parts) {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(part.pages, part.pages_written, "{part:?}");
        let taken = std::fs::metadata(path).unwrap().blocks() * 512;
        // Blocks of the file system are not shared.
        assert!(taken <= limit + 4 * 4096, "{taken} bytes of {limit}");
        assert!(Source::open(path, MapPolicy::default()).unwrap().dumps()[0].is_incomplete());
    }
}

#[test]
fn a_part_that_cannot_be_made_is_no_loss() {
    let bench = noisy();
    let mut paths = names(&bench, 3);
    paths[1] = bench.path("no such directory/part");
    let report = into_parts(&bench, &paths, &options("0", "lzo", Format::Kdump)).unwrap();
    assert_complete(&report);
    assert!(
        matches!(&report.parts[1].outcome, Outcome::WriteFailed(why) if why.contains("no such directory"))
    );
    assert!(!report.parts[1].exists);
    let told = |warning: &String| warning.contains("the other parts hold every page");
    assert!(report.warnings.iter().any(told), "{:?}", report.warnings);
    paths.remove(1);
    assert_eq!(held(&paths, &bench.image), (bench.image.expected(0), Vec::new()));
    // The last one standing is a dump of its own.
    paths.remove(1);
    let paths = [paths[0].clone(), bench.path("nowhere/part")];
    std::fs::remove_file(&paths[0]).unwrap();
    assert_complete(&into_parts(&bench, &paths, &options("0", "lzo", Format::Kdump)).unwrap());
    common::assert_holds(&paths[0], &bench.image, &bench.image.expected(0), "alone");
    assert!(!Source::open(&paths[0], MapPolicy::default()).unwrap().is_incomplete());
}

#[test]
fn a_stopped_capture_leaves_parts_that_are_marked() {
    let bench = noisy();
    let paths = names(&bench, 2);
    let progress = Progress::default();
    let source = bench.source();
    let target = Target::Parts { paths: paths.clone(), overwrite: false };
    let options = Options { threads: 1, ..options("0", "zstd:22", Format::Kdump) };
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| capture(&source, &target, &options, &progress).unwrap());
        while !matches!(progress.current(), (Phase::Pack, 1.., _)) && !running.is_finished() {
            std::hint::spin_loop();
        }
        progress.cancel_token().cancel();
        running.join().unwrap()
    });
    assert_eq!(report.outcome, Outcome::Cancelled);
    assert!(report.pages_written > 0 && report.pages_written < report.pages_kept);
    assert_marked(&report, &bench.image);
}

#[test]
fn no_time_at_all_leaves_parts_of_nothing() {
    let bench = noisy();
    let limits = Limits { time: Some(Duration::ZERO), size: None };
    let paths = names(&bench, 2);
    let report =
        into_parts(&bench, &paths, &Options { limits, ..options("0", "lzo", Format::Kdump) }).unwrap();
    assert_eq!(report.outcome, Outcome::TimeLimit);
    assert_eq!(report.pages_written, 0);
    assert_marked(&report, &bench.image);
}

/// The files of a capture that ended early are marked, and hold what the report says.
fn assert_marked(report: &CaptureReport, image: &Image) {
    let there: Vec<_> = report.parts.iter().filter(|part| part.exists).collect();
    let mut written = 0;
    for part in &there {
        let source = Source::open(Path::new(&part.output), MapPolicy::default()).unwrap();
        assert!(source.dumps()[0].is_incomplete());
        let alone = [PathBuf::from(&part.output)];
        assert_eq!(held(&alone, image).0.len() as u64, part.pages_written);
        written += part.pages_written;
    }
    assert_eq!(written, report.pages_written);
}

#[test]
fn each_output_is_held_to_what_one_is_held_to() {
    let bench = Bench::new(machine().build());
    let plain = options("31", "lzo", Format::Kdump);
    let refused = |paths: &[PathBuf], overwrite, options: &Options| {
        let target = Target::Parts { paths: paths.to_vec(), overwrite };
        match capture(&bench.source(), &target, options, &Progress::default()) {
            Err(CaptureError::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let [one, two] = [bench.path("one"), bench.path("two")];
    std::fs::write(&two, "precious").unwrap();
    let both = [one.clone(), two.clone()];
    assert!(refused(&both, false, &plain).contains("--force"));
    assert!(!one.exists(), "nothing was begun");
    let with_source = [two.clone(), bench.vmcore.clone()];
    assert!(refused(&with_source, true, &plain).contains("is the source itself"));
    assert_eq!(std::fs::read(&two).unwrap(), b"precious", "nothing was emptied");
    assert!(refused(&[one.clone(), one.clone()], false, &plain).contains("named twice"));
    let link = bench.path("link");
    std::os::unix::fs::symlink(&two, &link).unwrap();
    assert!(refused(&[two.clone(), link], true, &plain).contains("named twice"));
    let elf = Options { format: Format::Elf, ..plain.clone() };
    assert!(refused(&both, true, &elf).contains("elf format"));
    let many: Vec<_> = names(&bench, 17);
    assert!(refused(&many, false, &plain).contains("at most 16"));
    let checksums = Options { checksums: true, ..plain.clone() };
    let target = Target::Parts { paths: both.to_vec(), overwrite: true };
    assert_complete(&capture(&bench.source(), &target, &checksums, &Progress::default()).unwrap());
    assert_eq!(held(&both, &bench.image), (bench.image.expected(31), Vec::new()));
    for path in ["one.sums", "two.sums"] {
        assert!(bench.path(path).exists(), "{path}");
    }
}
