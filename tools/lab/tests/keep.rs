//! Keeps the pages of some owners in a guest, and searches its dumps for the pages of all.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it). The crashes are those of `erase.rs`.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use common::{pagehaul, succeeds};
use lab_guest::Class;
use lab_guest::pattern::{PAGE, PAGES, Pattern, TAG};
use lab_guest::stamp::{self, StampCheck};
use serde_json::Value;

/// Bytes that are read at once.
const CHUNK: usize = 16 << 20;
/// Classes of pages that are looked for.
const CLASSES: [Class; 4] = [Class::Cache, Class::CachePrivate, Class::HugeTlb, Class::Shmem];

fn json(arguments: &[&str], files: &[&Path]) -> Value {
    serde_json::from_str(&succeeds(arguments, files)).unwrap()
}

/// Passes on all places of a file where a word is, with the page behind it.
fn each_place(path: &Path, word: u64, mut found: impl FnMut(&[u8])) {
    let mut file = File::open(path).unwrap();
    let mut buffer = Vec::new();
    let word = word.to_le_bytes();
    loop {
        let read = file.by_ref().take(CHUNK as u64).read_to_end(&mut buffer).unwrap();
        let is_end = read < CHUNK;
        let end = if is_end { buffer.len() } else { buffer.len() - PAGE };
        for at in (0..end).step_by(8).filter(|at| buffer[*at..].starts_with(&word)) {
            found(&buffer[at..]);
        }
        if is_end {
            break;
        }
        buffer.drain(..end);
    }
}

/// Returns which patterns are in a file, all pages of them whole. Fails if there are some pages of a pattern only.
fn patterns(path: &Path) -> BTreeSet<Pattern> {
    let mut pages: BTreeMap<Pattern, BTreeSet<u64>> = BTreeMap::new();
    each_place(path, TAG, |bytes| {
        if let Some((pattern, page, is_whole)) = Pattern::find(bytes) {
            assert!(is_whole, "{}: a part of page {page} of {pattern:?}", path.display());
            pages.entry(pattern).or_default().insert(page);
        }
    });
    for (pattern, pages) in &pages {
        assert_eq!(pages.len() as u64, PAGES, "{}: {pattern:?}", path.display());
    }
    pages.into_keys().collect()
}

/// Returns which of `CLASSES` are in a file, by the stamps of their pages.
fn classes(path: &Path) -> Vec<Class> {
    let mut stamps = Vec::new();
    each_place(path, stamp::MAGIC, |bytes| {
        if let StampCheck::Intact(found) = stamp::identify(bytes.get(..PAGE).unwrap_or(bytes)) {
            stamps.push(found.class);
        }
    });
    CLASSES.into_iter().filter(|class| stamps.contains(class)).collect()
}

fn check(vmcore: &Path, kernel: &str) {
    use Pattern::{Grouped, GroupedFile, Kept, Other};
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let report = |dump: &Path| json(&["triage", "--json", "--tasks", "--stacks"], &[dump]);
    let plain = path("plain");
    succeeds(&["convert", "-q", "-d", "0", "-f", "elf"], &[vmcore, &plain]);
    assert_eq!(patterns(&plain), Pattern::ALL.into(), "{kernel}");
    let before = report(&plain);
    let tasks = before["tasks"].as_array().unwrap();
    let pid = |name: &str| {
        tasks.iter().find(|task| task["comm"] == name).unwrap_or_else(|| panic!("no {name}"))["pid"]
            .to_string()
    };
    let (kept, grouped) = (pid("scene-kept"), pid("scene-grouped"));
    let cases: [(&[&str], &[Pattern]); 5] = [
        (&["--keep-pid", &kept], &[Kept]),
        (&["--keep-pid", &grouped], &[Grouped]),
        (&["--keep-cgroup", "/scene"], &[Grouped, GroupedFile]),
        (
            &["--keep-cgroup", "/scene/inner", "--keep-pid", &kept, "-d", "free"],
            &[Kept, Grouped, GroupedFile],
        ),
        (&["--drop-file-systems", "ramfs,tmpfs", "-d", "0"], &[Kept, Other, Grouped]),
    ];
    for (options, expected) in cases {
        let (after, dump, again) = (path("after"), path("dump"), path("again"));
        let elf: Vec<&str> =
            ["convert", "-q", "--force", "-f", "elf"].into_iter().chain(options.iter().copied()).collect();
        succeeds(&elf, &[vmcore, &after]);
        let expected: BTreeSet<Pattern> = expected.iter().copied().collect();
        assert_eq!(patterns(&after), expected, "{kernel}: {options:?}");
        assert!(report(&after) == before, "{kernel}: {options:?}");
        // By a capture, which has another process find them, in kdump format.
        let capture: Vec<&str> =
            ["capture", "-q", "--json", "--force"].into_iter().chain(options.iter().copied()).collect();
        let said = json(&capture, &[vmcore, &dump]);
        succeeds(&["convert", "-q", "--force", "-f", "elf"], &[&dump, &again]);
        assert_eq!(patterns(&again), expected, "{kernel}: {options:?}");
        assert!(report(&again) == before, "{kernel}: {options:?}");
        let count = |name: &str| said[name].as_u64().unwrap_or(0);
        let by_owner = count("other_owners") + count("dropped_file_systems");
        let classes = said["classes"].as_array().unwrap();
        let by_level: u64 = classes.iter().map(|class| class["excluded"].as_u64().unwrap()).sum();
        assert!(by_owner > 0 && by_owner + by_level == count("pages_excluded"), "{said}");
        let record = json(&["info", "--json"], &[&again]);
        let record = record["owners"].as_str().unwrap();
        // Names would outlast `--erase names`.
        assert!(!record.is_empty() && !record.contains("scene-"), "{record}");
    }
    // Pages of files on ext4, with and without buffer heads, of hugetlb, and of tmpfs, which the first process has.
    let after = path("after");
    for (options, expected) in [
        (&["-d", "0"][..], &CLASSES[..]),
        (&["--drop-file-systems", "ext4", "-d", "0"], &CLASSES[2..]),
        (&["--keep-pid", "1"], &CLASSES[2..]),
        (&["--keep-cgroup", "/scene"], &[]),
    ] {
        let elf: Vec<&str> =
            ["convert", "-q", "--force", "-f", "elf"].iter().chain(options).copied().collect();
        succeeds(&elf, &[vmcore, &after]);
        assert_eq!(classes(&after), expected, "{kernel}: {options:?}");
    }
    let small = path("small");
    succeeds(&["convert", "-q", "-d", "31"], &[vmcore, &small]);
    for (options, from, status, why) in [
        (["--keep-pid", "1", "-d", "31"], vmcore, 2, "would keep nothing"),
        (["--keep-pid", "1", "-d", "0"], &*small, 1, "without memory of user space"),
        (["--keep-pid", "999999", "-d", "0"], vmcore, 1, "no process has PID 999999"),
        (["--keep-pid", "2", "-d", "0"], vmcore, 1, "is a kernel thread"),
        (["--keep-cgroup", "/scene/none", "-d", "0"], vmcore, 1, "/scene/ has inner"),
        (["--keep-cgroup", "", "-d", "0"], vmcore, 1, "the path of a cgroup is empty"),
        (["--drop-file-systems", "xsf", "-d", "0"], vmcore, 1, "no file system type xsf; expected one of"),
    ] {
        let none = path("none");
        let arguments: Vec<&str> = ["convert"].into_iter().chain(options).collect();
        let output = pagehaul(&arguments, &[from, &none]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{options:?}: {said}");
        assert!(said.contains(why) && !none.exists(), "{options:?}: {said}");
    }
}

#[test]
fn only_pages_of_chosen_owners_are_in_the_dump() {
    // Its keys, and pages of processes, cgroups and files, are known.
    common::each_crash("keys", "", &["6.1", "6.12"], |kernel, vmcore| check(&vmcore, kernel));
}
