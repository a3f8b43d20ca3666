//! Sources that lack pages: the mark in the file and the outcome in the report agree, in every layout.

mod common;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Bench, machine, options};
use pagehaul_capture::{CaptureReport, Format, Outcome, Target, capture};
use pagehaul_machine::{KernelMapping, PhysAddr};
use pagehaul_physmem::{MapPolicy, PAGE_SHIFT, PAGE_SIZE, PhysMemory, RangeMap, ReadError, View};
use pagehaul_run::{Phase, Progress};
use pagehaul_synth::{Era, Machine};
use pagehaul_vmcore::Source;

/// Memory of which some pages cannot be read.
struct Failing {
    source: Source,
    is_bad: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl PhysMemory for Failing {
    fn ranges(&self) -> &RangeMap {
        self.source.memory().ranges()
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        self.source.memory().mark_stored(from, bits)
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(FailingView { view: self.source.memory().view(), is_bad: Arc::clone(&self.is_bad) })
    }

    fn notes(&self) -> &[u8] {
        self.source.memory().notes()
    }

    fn files(&self) -> Vec<(u64, u64)> {
        self.source.memory().files()
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.source.memory().kernel_mapping()
    }
}

struct FailingView<'a> {
    view: Box<dyn View + 'a>,
    is_bad: Arc<dyn Fn(u64) -> bool + Send + Sync>,
}

impl View for FailingView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let first = paddr >> PAGE_SHIFT;
        if (self.is_bad)(first) {
            let source = std::io::Error::from_raw_os_error(5);
            return Err(ReadError::Io { path: PathBuf::from("memory"), offset: paddr, source });
        }
        let last = (paddr + len as u64 - 1) >> PAGE_SHIFT;
        let most = match (first..=last).find(|&pfn| (self.is_bad)(pfn)) {
            Some(bad) => ((bad << PAGE_SHIFT) - paddr) as usize,
            None => len,
        };
        self.view.window(paddr, most)
    }
}

/// A way to lay out a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    One(Format),
    Split,
}

const LAYOUTS: [Layout; 4] =
    [Layout::One(Format::Kdump), Layout::One(Format::Flattened), Layout::One(Format::Elf), Layout::Split];

/// Captures `source` and returns the files and the report.
fn dump(
    bench: &Bench,
    source: &Source,
    layout: Layout,
    level: &str,
    progress: &Progress,
) -> (Vec<PathBuf>, CaptureReport) {
    let (format, names) = match layout {
        Layout::One(format) => (format, &["dump"][..]),
        Layout::Split => (Format::Kdump, &["part-0", "part-1"][..]),
    };
    let paths: Vec<PathBuf> = names.iter().map(|name| bench.path(name)).collect();
    let target = match layout {
        Layout::One(_) => Target::File { path: paths[0].clone(), overwrite: true },
        Layout::Split => Target::Parts { paths: paths.clone(), overwrite: true },
    };
    let report = capture(source, &target, &options(level, "lzo", format), progress).unwrap();
    (paths, report)
}

/// Whether files are marked incomplete: all of them, or none.
fn is_marked(paths: &[PathBuf]) -> bool {
    let marked: Vec<bool> = paths.iter().map(|path| is_file_marked(path)).collect();
    assert!(marked.iter().all(|mark| *mark == marked[0]), "{paths:?}: {marked:?}");
    marked[0]
}

fn is_file_marked(path: &Path) -> bool {
    let source = Source::open(path, MapPolicy::default()).unwrap();
    match source.dumps() {
        [] => source.is_incomplete(),
        dumps => dumps[0].is_incomplete(),
    }
}

/// The number of pages that the dump holds, all with the right contents.
fn pages_held(paths: &[PathBuf], bench: &Bench) -> u64 {
    let source = Source::open_all(paths, MapPolicy::default()).unwrap();
    let mut view = source.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    let mut held = 0;
    for pfn in bench.image.pfns() {
        if let Ok(page) = view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
            assert!(*page == bench.image.page(pfn), "PFN {pfn:#x} has other contents");
            held += 1;
        }
    }
    held
}

/// The number of pages of `pfns` that a dump keeps.
fn kept(bench: &Bench, layout: Layout, level: &str, pfns: Range<u64>) -> u64 {
    // ELF files keep runs of excluded pages that are short, and drop only poisoned and offline pages of them.
    let level = if layout == Layout::One(Format::Elf) { 0 } else { level.parse().unwrap() };
    bench.image.expected(level).iter().filter(|pfn| pfns.contains(pfn)).count() as u64
}

fn assert_lost(bench: &Bench, layout: Layout, (paths, report): &(Vec<PathBuf>, CaptureReport), lost: u64) {
    let what = format!("{layout:?}: {:?}, {} unreadable", report.outcome, report.unreadable_pages);
    assert!(matches!(report.outcome, Outcome::PagesUnreadable(_)) && is_marked(paths), "{what}");
    assert_eq!(report.unreadable_pages, lost, "{what}");
    assert_eq!(report.pages_written, report.pages_kept - lost, "{what}");
    if layout != Layout::One(Format::Elf) {
        // An ELF file has zeros in their place.
        assert_eq!(pages_held(paths, bench), report.pages_written, "{what}");
    }
}

#[test]
fn a_dump_is_incomplete_if_pages_cannot_be_read() {
    let bench = Bench::new(machine().build());
    let bad = 0x5100..0x5180;
    for (layout, level) in LAYOUTS.into_iter().flat_map(|layout| [(layout, "0"), (layout, "31")]) {
        let bad = bad.clone();
        let memory = Failing { source: bench.source(), is_bad: Arc::new(move |pfn| bad.contains(&pfn)) };
        let source = Source::simulated(Path::new("memory"), Box::new(memory));
        let done = dump(&bench, &source, layout, level, &Progress::default());
        assert_lost(&bench, layout, &done, kept(&bench, layout, level, 0x5100..0x5180));
    }
}

#[test]
fn a_dump_is_incomplete_if_its_source_shrinks_meanwhile() {
    let bench = Bench::new(machine().build());
    for layout in LAYOUTS {
        let progress = Arc::new(Progress::default());
        let seen = Arc::clone(&progress);
        let is_bad = Arc::new(move |pfn| pfn >= 0x6000 && seen.current().0 == Phase::Pack);
        let memory = Failing { source: bench.source(), is_bad };
        let source = Source::simulated(Path::new("memory"), Box::new(memory));
        let done = dump(&bench, &source, layout, "0", &progress);
        assert_lost(&bench, layout, &done, kept(&bench, layout, "0", 0x6000..u64::MAX));
    }
}

#[test]
fn a_dump_of_an_incomplete_source_is_incomplete_even_if_it_lacks_no_page() {
    // Its last pages are free, and excluded.
    let mut machine = Machine::new(Era::V6_12);
    machine.ram(0x10_0000, 0x640_0000).sampler(0x4000).buddy(0x6000, 10);
    let bench = Bench::new(machine.build());
    let file = std::fs::File::options().write(true).open(&bench.vmcore).unwrap();
    let size = file.metadata().unwrap().len();
    for layout in LAYOUTS {
        for cut in [0, 300 * PAGE_SIZE as u64] {
            file.set_len(size - cut).unwrap();
            let (paths, report) = dump(&bench, &bench.source(), layout, "31", &Progress::default());
            let what = format!("{layout:?}: {:?}, cut by {cut}", report.outcome);
            match &report.outcome {
                Outcome::Complete => assert_eq!(cut, 0, "{what}"),
                Outcome::SourceIncomplete(why) => assert!(cut > 0 && why.contains("is truncated"), "{what}"),
                _ => panic!("{what}"),
            }
            assert_eq!(is_marked(&paths), cut > 0, "{what}");
            assert_eq!((report.unreadable_pages, report.pages_written), (0, report.pages_kept), "{what}");
            file.set_len(size).unwrap();
        }
    }
}
