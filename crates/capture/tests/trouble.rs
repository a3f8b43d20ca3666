//! Captures that cannot be what they should: the dump says so, and holds what it can.

mod common;

use common::{Bench, Page, machine, options, read_all};
use pagehaul_capture::{CaptureError, Format, Limits, Options, Outcome, Target, capture};
use pagehaul_physmem::MapPolicy;
use pagehaul_run::{Phase, Progress};
use pagehaul_synth::{Content, Era, Machine};
use pagehaul_vmcore::Source;

/// A machine that takes a while: noise, which the slowest level tries hard to compress.
fn slow_machine() -> Machine {
    let mut machine = Machine::new(Era::V6_12);
    for pfn in 0x4000..0x6000 {
        machine.fill(pfn, Content::Random);
    }
    machine
}

/// Captures, and stops once pages are being packed.
fn stopped(bench: &Bench, name: &str, format: Format) -> pagehaul_capture::CaptureReport {
    let progress = Progress::default();
    let source = bench.source();
    let target = Target::File { path: bench.path(name), overwrite: false };
    let options = Options { threads: 1, ..options("0", "zstd:22", format) };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| capture(&source, &target, &options, &progress).unwrap());
        while !matches!(progress.current(), (Phase::Pack, 1.., _)) && !running.is_finished() {
            std::hint::spin_loop();
        }
        progress.cancel_token().cancel();
        running.join().unwrap()
    })
}

#[test]
fn a_stopped_capture_leaves_what_was_written() {
    let bench = Bench::new(slow_machine().build());
    for format in [Format::Kdump, Format::Flattened] {
        let report = stopped(&bench, format.name(), format);
        assert_eq!(report.outcome, Outcome::Cancelled);
        assert!(report.pages_written > 0 && report.pages_written < report.pages_kept, "{report:?}");
        let pages = read_all(&bench.path(format.name()), &bench.image);
        let mut held = 0;
        for (pfn, page) in &pages {
            if let Page::Holds(page) = page {
                assert!(**page == bench.image.page(*pfn), "PFN {pfn:#x} has other contents");
                held += 1;
            }
        }
        assert_eq!(held, report.pages_written, "{}", format.name());
        let source = Source::open(&bench.path(format.name()), MapPolicy::default()).unwrap();
        let again = Target::File { path: bench.path("again"), overwrite: true };
        let report =
            capture(&source, &again, &options("0", "lzo", Format::Kdump), &Progress::default()).unwrap();
        assert!(
            report.warnings.iter().any(|warning| warning.contains("incomplete")),
            "{:?}",
            report.warnings
        );
    }
}

#[test]
fn an_elf_dump_that_ended_early_describes_the_pages_it_holds() {
    let bench = Bench::new(slow_machine().build());
    let limits = Limits { size: Some(12 << 20), time: None };
    let options = Options { limits, ..options("0", "none", Format::Elf) };
    let (path, report) = bench.capture("elf", &options);
    assert_eq!(report.outcome, Outcome::SizeLimit);
    assert!(report.pages_written > 0 && std::fs::metadata(&path).unwrap().len() <= 12 << 20);
    let held = read_all(&path, &bench.image)
        .into_iter()
        .filter(|(pfn, page)| match page {
            Page::Holds(page) => {
                assert!(**page == bench.image.page(*pfn), "PFN {pfn:#x} has other contents");
                true
            }
            _ => false,
        })
        .count();
    assert_eq!(held as u64, report.pages_written);
}

#[test]
fn a_cut_source_loses_the_pages_behind_the_cut_and_no_others() {
    let bench = Bench::new(machine().build());
    let size = std::fs::metadata(&bench.vmcore).unwrap().len();
    std::fs::File::options().write(true).open(&bench.vmcore).unwrap().set_len(size - 100 * 4096 - 1).unwrap();
    let (path, report) = bench.capture("dump", &options("0", "lzo", Format::Kdump));
    assert!(matches!(report.outcome, Outcome::PagesUnreadable(_)), "{:?}", report.outcome);
    assert!(report.warnings.iter().any(|warning| warning.contains("truncated")), "{:?}", report.warnings);
    assert_eq!((report.unreadable_pages, report.pages_kept - report.pages_written), (101, 101));
    assert!(report.unreadable[0].why.contains("the file ends at"), "{:?}", report.unreadable);
    let mut lost = 0;
    for (pfn, page) in read_all(&path, &bench.image) {
        match page {
            Page::Holds(page) => assert!(*page == bench.image.page(pfn), "PFN {pfn:#x}"),
            Page::Lost => lost += 1,
            Page::Excluded => assert!(!bench.image.expected(0).contains(&pfn)),
        }
    }
    assert_eq!(lost, 101);
}

#[test]
fn outputs_are_not_overwritten_and_sources_never() {
    let bench = Bench::new(machine().build());
    let options = options("31", "lzo", Format::Kdump);
    let before = std::fs::read(&bench.vmcore).unwrap();
    let refused = |path: &std::path::Path, overwrite| {
        let target = Target::File { path: path.to_owned(), overwrite };
        match capture(&bench.source(), &target, &options, &Progress::default()) {
            Err(CaptureError::Refused(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let (dump, _) = bench.capture("dump", &options);
    assert!(refused(&dump, false).contains("--force"));
    assert!(refused(&bench.vmcore, true).contains("is the source itself"));
    let link = bench.path("link");
    std::os::unix::fs::symlink(&bench.vmcore, &link).unwrap();
    assert!(refused(&link, true).contains("is the source itself"));
    assert!(refused(bench.directory.path(), true).contains("is a directory; name a file"));
    assert!(std::fs::read(&bench.vmcore).unwrap() == before);
    let target = Target::File { path: dump, overwrite: true };
    assert_eq!(
        capture(&bench.source(), &target, &options, &Progress::default()).unwrap().outcome,
        Outcome::Complete
    );
}

#[test]
fn without_vmcoreinfo_only_levels_that_need_none_work() {
    let bench = Bench::new(machine().build());
    // A vmcore whose notes are there but name no kernel.
    let mut bytes = std::fs::read(&bench.vmcore).unwrap();
    let at = bytes.windows(11).position(|window| window == b"VMCOREINFO\0").unwrap();
    bytes[at] = b'X';
    std::fs::write(&bench.vmcore, bytes).unwrap();
    let target = Target::File { path: bench.path("dump"), overwrite: false };
    let error = capture(&bench.source(), &target, &options("31", "lzo", Format::Kdump), &Progress::default())
        .unwrap_err();
    assert!(error.to_string().contains("VMCOREINFO"), "{error}");
    assert!(!bench.path("dump").exists());
    let (_, report) = bench.capture("dump", &options("1", "lzo", Format::Kdump));
    assert_eq!(report.outcome, Outcome::Complete);
    assert_eq!(report.pages_excluded, 0);
    assert!(report.warnings[0].contains("VMCOREINFO"), "{:?}", report.warnings);
}

/// Most kernels do not export the type of unaccepted memory, and most machines have none.
#[test]
fn unaccepted_memory_is_mentioned_where_there_is_some() {
    for confidential in [false, true] {
        let mut machine = Machine::new(Era::V6_12);
        machine.kernel(0x4000);
        if confidential {
            machine.unaccepted(0x4400, 10);
        }
        let bench = Bench::new(machine.build());
        let (_, report) = bench.capture("dump", &options("31", "lzo", Format::Kdump));
        let said = report.warnings.iter().any(|warning| warning.contains("confidential guest"));
        assert_eq!(said, confidential, "{:?}", report.warnings);
    }
}
