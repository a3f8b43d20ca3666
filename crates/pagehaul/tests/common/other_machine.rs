//! Runs the binary on the dump of a synthetic machine of another architecture.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Image, Machine};
use pagehaul_vmcore::Source;

/// A directory with the vmcore of a machine.
pub struct Setup {
    directory: tempfile::TempDir,
    /// The machine.
    pub image: Image,
}

impl Setup {
    /// Builds the machine, and writes its vmcore.
    pub fn of(machine: &Machine) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = machine.build();
        image.elf().write(&directory.path().join("vmcore")).unwrap();
        Self { directory, image }
    }

    /// Returns the path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs, expects `code`, and returns standard output and standard error.
    pub fn ends(&self, arguments: &[&str], code: i32) -> (Vec<u8>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
        let output =
            command.args(arguments).current_dir(self.directory.path()).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        (output.stdout, said)
    }

    /// Runs, and returns standard output.
    pub fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.ends(arguments, 0).0).unwrap()
    }

    /// Asserts that `verify` and `info` count this many pages of the machine.
    pub fn counts(&self, name: &str, pages: usize) {
        let json = |command| -> serde_json::Value {
            serde_json::from_str(&self.text(&[command, "--json", name])).unwrap()
        };
        let (verified, described) = (json("verify"), json("info"));
        assert_eq!(verified["page_size"], self.image.page_size(), "{name}");
        assert_eq!((&verified["present"], &described["pages"]), (&pages.into(), &pages.into()), "{name}");
    }

    /// Asserts that the file holds the pages `expected`, as they are in the machine, and no others.
    pub fn holds(&self, name: &str, expected: &[u64]) {
        let source = Source::open(&self.path(name), MapPolicy::default()).unwrap();
        assert_ne!(source.memory().platform().name(), "x86_64", "{name}");
        let mut view = source.memory().view();
        let size = self.image.page_size();
        let mut scratch = vec![0; size];
        let mut found = Vec::new();
        for pfn in self.image.pfns() {
            if let Ok(page) = view.block(pfn * size as u64, &mut scratch) {
                assert!(*page == self.image.page_bytes(pfn), "{name}: PFN {pfn:#x}");
                found.push(pfn);
            }
        }
        assert!(found == expected, "{name}: {} pages in place of {}", found.len(), expected.len());
    }
}
