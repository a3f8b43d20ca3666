//! libkdumpfile, the reader of drgn and others, as a judge of dumps.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Debian's package is for this one.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/libkdumpfile.py");

/// What it reads of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Pages that are right, that are zeros instead, that have other contents, and that cannot be read.
    Pages([u64; 4]),
    Refused,
    /// A signal ended the reader.
    Died(String),
}

/// A process that reads dumps of one vmcore.
pub struct Libkdumpfile {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// By a hash of the dump: many faults leave the same.
    known: HashMap<u64, Reading>,
}

impl Libkdumpfile {
    /// Starts it. Returns `None` where it is not installed.
    pub fn start(vmcore: &Path) -> Option<Self> {
        let mut python = Command::new(PYTHON);
        let is_there = python.args(["-c", "import kdumpfile"]).stderr(Stdio::null()).status();
        if !is_there.is_ok_and(|status| status.success()) {
            eprintln!("not judged by libkdumpfile: Debian's package python3-libkdumpfile is not installed");
            return None;
        }
        let mut python = Command::new(PYTHON);
        python.arg("-B").arg(SCRIPT).arg(vmcore).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Some(Self { child, input, output: BufReader::new(output), known: HashMap::new() })
    }

    /// Reads a dump, of which `bytes` are the contents.
    pub fn read(&mut self, path: &Path, bytes: &[u8]) -> Reading {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let key = hasher.finish();
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        writeln!(self.input, "{}", path.display()).unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let line = line.trim_end();
        let counts: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
        let reading = match counts.and_then(|counts| counts.try_into().ok()) {
            Some(counts) => Reading::Pages(counts),
            None if line == "refused" => Reading::Refused,
            None => Reading::Died(line.to_owned()),
        };
        self.known.insert(key, reading.clone());
        reading
    }

    /// How many different dumps it was given, and how many of them it reads.
    pub fn counts(&self) -> (usize, usize) {
        let read = self.known.values().filter(|reading| matches!(reading, Reading::Pages(_)));
        (self.known.len(), read.count())
    }
}

impl Drop for Libkdumpfile {
    fn drop(&mut self) {
        // It only reads.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
