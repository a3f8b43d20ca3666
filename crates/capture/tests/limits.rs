//! Pages in the order of their priority, and dumps that end when their room or time does.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{Bench, Page, assert_holds, machine, options, read_all};
use pagehaul_capture::{Format, Limits, Options, Outcome, Priority, Target, capture};
use pagehaul_physmem::MapPolicy;
use pagehaul_run::Progress;
use pagehaul_synth::{Class, Content, Era, Machine};
use pagehaul_vmcore::Source;

/// 32 MiB of noise among everything else, which no codec makes smaller.
fn noisy() -> Bench {
    let mut machine: Machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000).populate(0x5000, 0x1800, 7);
    for pfn in 0x8000..0xa000 {
        machine.fill(pfn, Content::Random);
    }
    Bench::new(machine.build())
}

fn limited(size: u64) -> Options {
    Options { limits: Limits { size: Some(size), time: None }, ..options("0", "lzo", Format::Kdump) }
}

#[test]
fn pages_are_stored_in_the_order_of_their_worth() {
    let bench = Bench::new(machine().build());
    let (path, report) = bench.capture("dump", &options("0", "lzo", Format::Kdump));
    assert_eq!(report.outcome, Outcome::Complete);
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let mut offsets: BTreeMap<u8, Vec<i64>> = BTreeMap::new();
    source.dumps()[0]
        .for_each_descriptor(|pfn, descriptor| {
            let group = match bench.image.class(pfn) {
                Class::Kernel => 0,
                Class::Cache | Class::CachePrivate => 1,
                Class::User => 2,
                Class::Free | Class::HwPoison | Class::Offline => 3,
            };
            // Pages of zeros share one page.
            if descriptor.size.get() != 4096 {
                offsets.entry(group).or_default().push(descriptor.offset.get());
            }
        })
        .unwrap();
    let groups: Vec<_> = offsets.into_values().collect();
    assert_eq!(groups.len(), 4);
    for pair in groups.windows(2) {
        assert!(
            pair[0].iter().max() < pair[1].iter().min(),
            "a page of higher priority follows one of lower"
        );
    }
}

#[test]
fn a_dump_within_its_room_holds_the_most_important_pages() {
    let bench = noisy();
    let (full, complete) = bench.capture("full", &options("0", "lzo", Format::Kdump));
    let whole = std::fs::metadata(full).unwrap().len();
    for percent in [30, 60, 90] {
        let limit = whole * percent / 100;
        let name = format!("dump-{percent}");
        let (path, report) = bench.capture(&name, &limited(limit));
        assert_eq!(report.outcome, Outcome::SizeLimit, "{percent} %");
        let taken = {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(&path).unwrap().blocks() * 512
        };
        assert!(taken <= limit, "{percent} %: {taken} bytes on disk");
        let held: Vec<u64> = read_all(&path, &bench.image)
            .into_iter()
            .filter(|(_, page)| matches!(page, Page::Holds(_)))
            .map(|(pfn, _)| pfn)
            .collect();
        // Bitmap and descriptors say exactly what is there: nothing is lost, all else is excluded.
        assert_holds(&path, &bench.image, &held, &name);
        assert_eq!(held.len() as u64, report.pages_written);
        let missing: u64 = report.unwritten.iter().map(|part| part.unwritten).sum();
        assert_eq!(report.pages_written + missing, complete.pages_kept);
        // No page is missing while a less important one is in.
        let first_unwritten = report.unwritten.iter().position(|part| part.unwritten > 0).unwrap();
        for part in &report.unwritten[first_unwritten + 1..] {
            assert_eq!(part.unwritten, part.kept, "{percent} %: {part:?}");
        }
        assert_eq!(report.unwritten[0].priority, Priority::KernelData);
        assert_eq!(report.unwritten[0].unwritten, 0, "{percent} %");
        let described = Source::open(&path, MapPolicy::default()).unwrap();
        assert!(described.is_incomplete());
    }
}

#[test]
fn limits_are_kept_at_any_number_of_threads_with_the_same_bytes() {
    let bench = noisy();
    let dump = |threads| {
        let options = Options { threads, ..limited(12 << 20) };
        let (path, _) = bench.capture(&format!("threads-{threads}"), &options);
        std::fs::read(path).unwrap()
    };
    let one = dump(1);
    assert!(dump(4) == one && dump(7) == one);
}

#[test]
fn no_time_at_all_leaves_a_dump_of_nothing() {
    let bench = Bench::new(machine().build());
    for format in [Format::Kdump, Format::Flattened, Format::Elf] {
        let limits = Limits { time: Some(Duration::ZERO), size: None };
        let options = Options { limits, ..options("0", "lzo", format) };
        let (path, report) = bench.capture(format.name(), &options);
        assert_eq!(report.outcome, Outcome::TimeLimit, "{}", format.name());
        assert_eq!(report.pages_written, 0);
        assert!(Source::open(&path, MapPolicy::default()).unwrap().is_incomplete(), "{}", format.name());
    }
}

#[test]
fn a_size_without_room_for_a_page_is_refused_with_the_smallest_that_has() {
    let bench = noisy();
    for format in [Format::Kdump, Format::Flattened, Format::Elf] {
        let path = bench.path(format.name());
        let run = |size| {
            let options = Options { format, ..limited(size) };
            let target = Target::File { path: path.clone(), overwrite: true };
            capture(&bench.source(), &target, &options, &Progress::default())
        };
        std::fs::write(&path, "another dump").unwrap();
        let refused = run(1024).unwrap_err().to_string();
        let known_before = format != Format::Elf;
        assert_eq!(
            std::fs::read(&path).is_ok_and(|bytes| bytes == b"another dump"),
            known_before,
            "{refused}"
        );
        // An ELF dump and a stream know their tables after the scan only.
        let least = (0..2).fold(1024, |size, _| match run(size) {
            Err(error) => {
                let (_, named) =
                    error.to_string().rsplit_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
                named.strip_suffix('K').unwrap().parse::<u64>().unwrap() << 10
            }
            Ok(_) => size,
        });
        let report = run(least).unwrap();
        assert_eq!(report.outcome, Outcome::SizeLimit, "{}", format.name());
        assert!(report.pages_written > 0, "{}", format.name());
        assert!(run(least - 1024).is_err(), "{}", format.name());
    }
}

#[test]
fn a_limit_that_is_never_reached_changes_nothing() {
    let bench = Bench::new(machine().build());
    let plain = options("31", "zstd", Format::Kdump);
    let limits = Limits { time: Some(Duration::from_secs(86_400)), size: Some(1 << 40) };
    let (one, _) = bench.capture("plain", &plain);
    let (other, report) = bench.capture("limited", &Options { limits, ..plain });
    assert_eq!(report.outcome, Outcome::Complete);
    assert!(report.unwritten.is_empty());
    assert!(std::fs::read(one).unwrap() == std::fs::read(other).unwrap());
}

#[test]
fn a_dump_that_ended_early_is_a_source_like_any_other() {
    let bench = noisy();
    let (path, first) = bench.capture("first", &limited(12 << 20));
    let source = Source::open(&path, MapPolicy::default()).unwrap();
    let target = Target::File { path: bench.path("again"), overwrite: false };
    let report =
        capture(&source, &target, &options("0", "zstd", Format::Kdump), &Progress::default()).unwrap();
    assert_eq!(report.pages_kept, first.pages_written);
    assert!(report.warnings.iter().any(|warning| warning.contains("incomplete")), "{:?}", report.warnings);
}
