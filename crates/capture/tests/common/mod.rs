//! What the tests of captures share.
#![allow(dead_code)] // each test file uses its own part

use std::path::{Path, PathBuf};

use pagehaul_capture::{CaptureReport, Format, Options, Outcome, Target, capture};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MapPolicy, PAGE_SIZE, ReadError};
use pagehaul_run::Progress;
use pagehaul_synth::{Content, Era, Image, Machine};
use pagehaul_vmcore::Source;

/// A directory with a vmcore in it.
pub struct Bench {
    pub directory: tempfile::TempDir,
    pub vmcore: PathBuf,
    pub image: Image,
}

/// A machine with some of everything.
pub fn machine() -> Machine {
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000).populate(0x5000, 0x1800, 7).fill(0x5003, Content::Zero);
    machine
}

impl Bench {
    pub fn new(image: Image) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let vmcore = directory.path().join("vmcore");
        image.elf().write(&vmcore).unwrap();
        Self { directory, vmcore, image }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn source(&self) -> Source {
        Source::open(&self.vmcore, MapPolicy::default()).unwrap()
    }

    /// Captures the vmcore into a new file.
    pub fn capture(&self, name: &str, options: &Options) -> (PathBuf, CaptureReport) {
        self.capture_from(&self.source(), name, options)
    }

    pub fn capture_from(&self, source: &Source, name: &str, options: &Options) -> (PathBuf, CaptureReport) {
        let path = self.path(name);
        let target = Target::File { path: path.clone(), overwrite: false };
        let report = capture(source, &target, options, &Progress::default()).unwrap();
        (path, report)
    }
}

pub fn options(level: &str, method: &str, format: Format) -> Options {
    Options { format, ..Options::new(level.parse().unwrap(), method.parse().unwrap(), 2) }
}

/// A dump as readers see it: what each page of the machine holds, or that it was excluded, or that it is lost.
#[derive(Debug, PartialEq, Eq)]
pub enum Page {
    Holds(Box<[u8; PAGE_SIZE]>),
    Excluded,
    Lost,
}

/// Every page of `image` as the dump at `path` has it.
pub fn read_all(path: &Path, image: &Image) -> Vec<(u64, Page)> {
    let source = Source::open(path, MapPolicy::default()).unwrap();
    let mut view = source.memory().view();
    let mut scratch = [0; PAGE_SIZE];
    let page = |pfn| {
        let page = match view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
            Ok(page) => Page::Holds(Box::new(*page)),
            Err(ReadError::NotInDump { .. }) => Page::Excluded,
            Err(ReadError::Damaged { .. } | ReadError::Missing { .. }) => Page::Lost,
            Err(other) => panic!("PFN {pfn:#x}: {other}"),
        };
        (pfn, page)
    };
    image.pfns().into_iter().map(page).collect()
}

/// Asserts that the dump at `path` holds just the pages in `kept`, with the contents `image` has.
pub fn assert_holds(path: &Path, image: &Image, kept: &[u64], what: &str) {
    let mut expected = kept.iter().copied().peekable();
    for (pfn, page) in read_all(path, image) {
        let wanted = expected.next_if_eq(&pfn).is_some();
        match page {
            Page::Holds(page) => {
                assert!(wanted, "{what}: PFN {pfn:#x} ({:?}) should be excluded", image.class(pfn));
                assert!(*page == image.page(pfn), "{what}: PFN {pfn:#x} has other contents");
            }
            Page::Excluded => assert!(!wanted, "{what}: PFN {pfn:#x} ({:?}) is excluded", image.class(pfn)),
            Page::Lost => panic!("{what}: PFN {pfn:#x} is lost"),
        }
    }
    assert_eq!(expected.next(), None, "{what}: pages the machine does not have");
}

pub fn assert_complete(report: &CaptureReport) {
    assert_eq!(report.outcome, Outcome::Complete);
    assert_eq!(report.pages_written, report.pages_kept);
}
