//! Keeps the pages of some owners in a guest, and searches its dumps for the pages of all.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it). The crashes of guests with one node are
//! those of `erase.rs`.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use common::{pagehaul, succeeds};
use lab::{Config, Crash, oracle, owned};
use lab_guest::Class;
use lab_guest::pattern::{IN_SWAP_CACHE, PAGE, PAGES, Pattern, TAG};
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

/// Returns which patterns are in a file, all pages of them whole that were in memory. Fails if there are some pages of a pattern only.
/// Free pages may have what was written to swap.
fn patterns(path: &Path, has_free: bool) -> BTreeSet<Pattern> {
    let mut pages: BTreeMap<Pattern, BTreeSet<u64>> = BTreeMap::new();
    each_place(path, TAG, |bytes| {
        if let Some((pattern, page, is_whole)) = Pattern::find(bytes) {
            assert!(is_whole, "{}: a part of page {page} of {pattern:?}", path.display());
            pages.entry(pattern).or_default().insert(page);
        }
    });
    for (pattern, pages) in &pages {
        let expected: BTreeSet<u64> = match pattern {
            Pattern::Swapped if has_free => IN_SWAP_CACHE.chain(pages.iter().copied()).collect(),
            Pattern::Swapped => IN_SWAP_CACHE.collect(),
            _ => (0..PAGES).collect(),
        };
        assert!(*pages == expected, "{}: {pattern:?}: {pages:?}", path.display());
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

fn check(crash: &Crash, kernel: &str, nodes: u32) {
    use Pattern::{Grouped, GroupedFile, GroupedHuge, Kept, Numa, Other, Swapped, Xfs};
    let vmcore = &*crash.vmcore();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    let report = |dump: &Path| json(&["triage", "--json", "--tasks", "--stacks"], &[dump]);
    let plain = path("plain");
    succeeds(&["convert", "-q", "-d", "0", "-f", "elf"], &[vmcore, &plain]);
    // A guest with one node has nothing to balance.
    let is_balanced = nodes > 1;
    let mut all = BTreeSet::from(Pattern::ALL);
    all.retain(|one| *one != Numa || is_balanced);
    assert_eq!(patterns(&plain, true), all, "{kernel}");
    let before = report(&plain);
    let tasks = before["tasks"].as_array().unwrap();
    let pid = |name: &str| {
        tasks.iter().find(|task| task["comm"] == name).unwrap_or_else(|| panic!("no {name}"))["pid"]
            .to_string()
    };
    let (kept, grouped, swapped) = (pid("scene-kept"), pid("scene-grouped"), pid("scene-swapped"));
    // Since 6.7 the guest has pages of hugetlb charged to cgroups, which cgroup v1 does not know.
    let charges_huge = kernel != "6.1";
    let mut cases: Vec<(Vec<&str>, Vec<Pattern>)> = vec![
        (vec!["--keep-pid", &kept], vec![Kept]),
        (vec!["--keep-pid", &grouped], vec![Grouped, GroupedHuge]),
        // It maps other pages only.
        (vec!["--keep-pid", &swapped], vec![]),
        (vec!["--keep-cgroup", "/scene"], vec![Grouped, GroupedFile, GroupedHuge, Swapped]),
        (vec!["--keep-cgroup", "/scene/swapped"], vec![Swapped]),
        (
            vec!["--keep-cgroup", "/scene/inner", "--keep-pid", &kept, "-d", "free"],
            vec![Kept, Grouped, GroupedFile, GroupedHuge],
        ),
        (
            vec!["--drop-file-systems", "ramfs,tmpfs", "-d", "0"],
            vec![Kept, Other, Grouped, GroupedHuge, Xfs, Swapped, Numa],
        ),
        (
            vec!["--drop-file-systems", "xfs", "-d", "0"],
            all.iter().copied().filter(|one| *one != Xfs).collect(),
        ),
    ];
    let numa = is_balanced.then(|| pid("scene-numa"));
    if let Some(pid) = &numa {
        cases.push((vec!["--keep-pid", pid], vec![Numa]));
    }
    for (options, mut expected) in cases {
        let is_of_cgroup = options.contains(&"--keep-cgroup");
        expected.retain(|one| {
            (*one != Numa || is_balanced) && (*one != GroupedHuge || !is_of_cgroup || charges_huge)
        });
        let has_free = options.contains(&"--drop-file-systems");
        let (after, dump, again) = (path("after"), path("dump"), path("again"));
        let elf: Vec<&str> =
            ["convert", "-q", "--force", "-f", "elf"].into_iter().chain(options.iter().copied()).collect();
        succeeds(&elf, &[vmcore, &after]);
        let expected: BTreeSet<Pattern> = expected.into_iter().collect();
        assert_eq!(patterns(&after, has_free), expected, "{kernel}: {options:?}");
        assert!(report(&after) == before, "{kernel}: {options:?}");
        // By a capture, which has another process find them, in kdump format.
        let capture: Vec<&str> =
            ["capture", "-q", "--json", "--force"].into_iter().chain(options.iter().copied()).collect();
        let said = json(&capture, &[vmcore, &dump]);
        succeeds(&["convert", "-q", "--force", "-f", "elf"], &[&dump, &again]);
        assert_eq!(patterns(&again, has_free), expected, "{kernel}: {options:?}");
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
        // What was dropped and read again may have left copies in free pages.
        (&["--drop-file-systems", "ext4", "-d", "free", "--exclude-per-cpu-lists"], &CLASSES[2..]),
        (&["--keep-pid", "1", "-d", "free", "--exclude-per-cpu-lists"], &CLASSES[2..]),
        (&["--keep-cgroup", "/scene", "-d", "free", "--exclude-per-cpu-lists"], &[]),
    ] {
        // An ELF dump would keep short runs of what the level excludes.
        let dump = path("dump");
        let capture: Vec<&str> = ["capture", "-q", "--force"].iter().chain(options).copied().collect();
        succeeds(&capture, &[vmcore, &dump]);
        succeeds(&["convert", "-q", "--force", "-f", "elf"], &[&dump, &after]);
        assert_eq!(classes(&after), expected, "{kernel}: {options:?}");
    }
    let small = path("small");
    succeeds(&["convert", "-q", "-d", "31"], &[vmcore, &small]);
    for (options, from, status, why) in [
        (["--keep-pid", "1", "-d", "31"], vmcore, 2, "would keep nothing"),
        (["--keep-pid", "1", "-d", "0"], &*small, 1, "without memory of user space"),
        (["--keep-pid", "999999", "-d", "0"], vmcore, 1, "no process has PID 999999"),
        (["--keep-pid", "2", "-d", "0"], vmcore, 1, "is a kernel thread"),
        (["--keep-cgroup", "/scene/none", "-d", "0"], vmcore, 1, "/scene/ has inner, swapped"),
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

/// Compares the ages of the LRU's generations and the swap of the guest's cgroups with what drgn finds.
fn compare_cgroups(crash: &Crash, kernel: &str) {
    let mut drgn = oracle::script("cgroups.py").unwrap();
    drgn.arg(lab::build::pagehaul_of_tests().unwrap()).args([crash.vmcore(), crash.vmlinux().unwrap()]);
    let output = drgn.output().unwrap();
    assert!(output.status.success(), "{kernel}: {output:?}");
}

#[test]
fn only_pages_of_chosen_owners_are_in_the_dump() {
    common::each_crash([&["6.12"], &["6.1", "6.12"]], owned::with_keys, |kernel, crash| {
        check(crash, kernel, 1)
    });
}

/// The last of Debian's kernels with the memory controller of cgroup v1 is 6.1.
#[test]
fn cgroups_of_v1_are_found() {
    let guest =
        |kernel: &str| Config { append: "lab.cgroups=v1".into(), nodes: 2, ..owned::with_patterns(kernel) };
    common::each_crash([&[], &["6.1"]], guest, |kernel, crash| {
        check(crash, kernel, 2);
        compare_cgroups(crash, kernel);
    });
}

#[test]
fn pages_that_are_balanced_among_nodes_are_kept() {
    let guest = |kernel: &str| Config { nodes: 2, ..owned::with_patterns(kernel) };
    common::each_crash([&[], &["6.12"]], guest, |kernel, crash| {
        check(crash, kernel, 2);
        compare_cgroups(crash, kernel);
    });
}
