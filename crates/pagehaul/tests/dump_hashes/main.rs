//! Dumps stay byte for byte the same: the size and XXH3 hash of every output of about 200 captures and
//! conversions must equal those recorded in `tests/golden/dump-hashes.txt`.
//!
//! The sources are synthetic and identical on every machine ([`sources`]); [`cases`] lists the commands. Most
//! cases run with 1, 2 and 7 threads, which must write the same bytes.
//!
//! `PAGEHAUL_BLESS=1 cargo test -p pagehaul --test dump_hashes` records the list again. Do this only in a
//! commit that changes the output on purpose and says so. Updates of libdeflate, zstd and snap may change it
//! too. When an option is renamed, edit the names in the list instead, so that the diff shows that no hash
//! changed.
//!
//! Not covered, because the bytes depend on timing:
//! - `-c auto` chooses codec and level by the disk bandwidth, and the parts of a split set meet where the
//!   disks' speeds make them meet. Both are covered indirectly: the test converts them to one file with a
//!   fixed codec.
//! - `--time-limit`, signals and full disks can end a capture at any page.
//! - `core` and `checkpoint` save live processes.
//!
//! Nothing in a dump depends on the machine that writes it: host name and times are those of the crashed
//! kernel, and encoders write the same bytes with and without AVX2 and BMI2. One thing depends on the file
//! system: a kdump file that ends early has a hole in place of its first tables, which keep their contents
//! where holes cannot be punched.

mod cases;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cases::Case;
use twox_hash::XxHash3_64;

/// Cases that run concurrently. More than there are CPUs, because a case spends most of its time in fsync.
const WORKERS: usize = 4;

/// Size and hash of an output.
type Digest = (usize, u64);

#[test]
fn outputs_match_the_recorded_hashes() {
    let directory = tempfile::tempdir().unwrap();
    sources::write_all(directory.path());
    let cases = cases::all();
    let next = AtomicUsize::new(0);
    let digests = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (cases, next, digests, directory) = (&cases, &next, &digests, directory.path());
            scope.spawn(move || {
                let scratch = directory.join(format!("out-{worker}"));
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for (name, digest) in run(case, directory, &scratch) {
                        let known = digests.lock().unwrap().insert(name.clone(), digest);
                        assert_eq!(known, None, "two cases have the name {name}");
                    }
                }
            });
        }
    });
    compare(&render(&digests.into_inner().unwrap()));
}

/// Runs a case with each number of threads and returns its outputs by name.
fn run(case: &Case, sources: &Path, scratch: &Path) -> Vec<(String, Digest)> {
    let mut runs = case.threads.iter().map(|threads| (threads, outputs(case, threads, sources, scratch)));
    let (first, digests) = runs.next().unwrap();
    for (threads, run) in runs {
        assert_eq!(run, digests, "{}: {threads} threads and {first} write different bytes", case.name);
    }
    digests
}

/// Runs a case once in a new directory `scratch` and returns its outputs by name.
fn outputs(case: &Case, threads: &str, sources: &Path, scratch: &Path) -> Vec<(String, Digest)> {
    std::fs::create_dir(scratch).unwrap();
    let mut stdout = Vec::new();
    for (step, expected) in &case.steps {
        let mut arguments: Vec<PathBuf> = ["-q", "-t", threads].iter().map(PathBuf::from).collect();
        arguments.extend(step[1..].iter().map(|argument| match argument.strip_prefix('@') {
            Some(name) => scratch.join(name),
            None => argument.into(),
        }));
        let output = Command::new(env!("CARGO_BIN_EXE_pagehaul"))
            .arg(&step[0])
            .args(&arguments)
            .current_dir(sources)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(*expected), "{}: {step:?}: {said}", case.name);
        stdout.extend(output.stdout);
    }
    let mut digests = Vec::new();
    for suffix in ["", ".sums"] {
        if let Ok(bytes) = std::fs::read(scratch.join(format!("dump{suffix}"))) {
            digests.push((format!("{}{suffix}", case.name), digest(&bytes)));
        }
    }
    if !stdout.is_empty() {
        digests.push((case.name.clone(), digest(&stdout)));
    }
    assert!(!digests.is_empty(), "{} has no output", case.name);
    std::fs::remove_dir_all(scratch).unwrap();
    digests
}

fn digest(bytes: &[u8]) -> Digest {
    (bytes.len(), XxHash3_64::oneshot(bytes))
}

/// Formats one line per output.
fn render(digests: &BTreeMap<String, Digest>) -> String {
    let mut text = String::new();
    for (name, (size, hash)) in digests {
        writeln!(text, "{name:<56} {size:>10} {hash:016x}").unwrap();
    }
    text
}

/// Compares `text` with the recorded list, or records it.
fn compare(text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/dump-hashes.txt");
    if std::env::var_os("PAGEHAUL_BLESS").is_some() {
        std::fs::write(path, text).unwrap();
        return;
    }
    let golden = std::fs::read_to_string(path).unwrap();
    let only_in = |one: &str, other: &str, sign| {
        let lines = one.lines().filter(|line| !other.lines().any(|known| known == *line));
        lines.map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    let (old, new) = (only_in(&golden, text, '-'), only_in(text, &golden, '+'));
    assert!(
        old.is_empty() && new.is_empty(),
        "outputs differ from tests/golden/dump-hashes.txt:\n{old}{new}"
    );
}
