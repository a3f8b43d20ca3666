//! A directory with a vmcore in it, and the program under test run there.
#![allow(dead_code)] // each test file uses its own part

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Content, Era, Image, Inside, Machine, Message, Task};
use pagehaul_vmcore::{Source, SourceError};

/// The program under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");

pub struct Setup {
    pub directory: tempfile::TempDir,
    pub image: Image,
}

impl Setup {
    pub fn new(machine: &mut Machine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = machine.build();
        image.elf().write(&directory.path().join("vmcore")).unwrap();
        Self { directory, image }
    }

    pub fn small() -> Self {
        Self::new(Machine::new(Era::V6_12).sampler(0x4000))
    }

    /// A machine that panicked, with a task that waits for a disk.
    pub fn crashed() -> Self {
        Self::crashed_with(|_| {})
    }

    /// The same, with changes.
    pub fn crashed_with(change: impl FnOnce(&mut Machine)) -> Self {
        let mut machine = Machine::new(Era::V6_12);
        machine.sampler(0x4000);
        let text = "Kernel panic - not syncing: sysrq triggered crash";
        machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
        let stack = vec!["__schedule", "schedule", "io_schedule"];
        let task = Task { pid: 20, comm: "writer".into(), state: 2, ran: 1, stack, pages: Some(100) };
        machine.inside(0x5000, &Inside { tasks: vec![task], clock: 60, free: 1 << 17, ..Inside::default() });
        change(&mut machine);
        Self::new(&mut machine)
    }

    /// Noise that no codec shrinks: a dump of some 30 MiB.
    pub fn noisy() -> Self {
        Self::with_noise(32)
    }

    /// So many MiB of noise.
    pub fn with_noise(mib: u64) -> Self {
        let mut machine = Machine::new(Era::V6_12);
        for pfn in 0x4000..0x4000 + mib * 256 {
            machine.fill(pfn, Content::Random);
        }
        Self::new(&mut machine)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs, expects `code`, and gives what went to standard error.
    pub fn fails(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    }

    pub fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asserts that the dump is marked incomplete, holds `range` pages, and no page that differs from memory.
    pub fn assert_incomplete(&self, name: &str, pages: std::ops::Range<u64>) {
        assert_eq!(self.is_complete(name), Some(false), "{name}");
        let held = self.right_pages(name);
        assert!(pages.contains(&held), "{held} pages");
    }

    /// Whether the dump says that it is whole; none where it ends before its tables do, and is refused.
    pub fn is_complete(&self, name: &str) -> Option<bool> {
        let output = self.run(&["info", "--json", name]);
        if let Some(0 | 3) = output.status.code() {
            let described = String::from_utf8(output.stdout).unwrap();
            let (yes, no) =
                (described.contains("\"complete\": true"), described.contains("\"complete\": false"));
            assert!(yes != no && yes == output.status.success(), "{described}");
            return Some(yes);
        }
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.trim_end().lines().count()), (Some(1), 1), "{said}");
        assert!(["truncated", "empty", "neither"].iter().any(|why| said.contains(why)), "{said}");
        None
    }

    /// How many pages the dump holds; asserts that none differs from memory.
    pub fn right_pages(&self, name: &str) -> u64 {
        self.right_pages_of(&[name]).unwrap().0
    }

    /// How many pages files hold together, and whether they claim to be all; asserts that none differs from memory.
    pub fn right_pages_of(&self, names: &[&str]) -> Result<(u64, bool), SourceError> {
        let paths: Vec<_> = names.iter().map(|name| self.path(name)).collect();
        let source = Source::open_all(&paths, MapPolicy::default())?;
        let mut view = source.memory().view();
        let mut scratch = [0; 4096];
        let mut held = 0;
        for pfn in self.image.pfns() {
            if let Ok(page) = view.page(PhysAddr::of_4k_page(pfn), &mut scratch) {
                assert!(*page == self.image.page(pfn), "{names:?}: PFN {pfn:#x} has other contents");
                held += 1;
            }
        }
        Ok((held, !source.is_incomplete()))
    }
}
