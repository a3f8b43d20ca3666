//! Whatever fails, a capture leaves a dump that is whole, one that is marked incomplete, or none; and says so in one
//! sentence. Disks that fill up and limits are in `cli.rs`, power cuts in the lab's `power.rs`.

mod common {
    pub mod faulty;
    pub mod setup;
}

use std::process::{Command, Stdio};

use common::faulty::{Faulty, Plan};
use common::setup::{BINARY, Setup};

/// Whether the dump claims to be whole, whatever became of the capture: then it has all pages. None of them may be wrong.
fn assert_honest(setup: &Setup, name: &str) -> bool {
    let Some(complete) = setup.is_complete(name) else { return false };
    let held = setup.right_pages(name);
    if complete {
        assert_eq!(held, setup.image.expected(0).len() as u64, "{name} claims to be whole");
    }
    complete
}

fn assert_one_sentence(said: &str, parts: &[&str]) {
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "no \"{part}\" in {said}");
    }
}

#[test]
fn a_capture_that_is_killed_leaves_a_whole_dump_or_a_marked_one() {
    let setup = Setup::noisy();
    for (number, mib) in [0, 1, 5, 9, 17, 25, 31].into_iter().enumerate() {
        let name = format!("dump-{number}");
        let mut child = setup
            .command(&["capture", "-q", "-d", "0", "-c", "lzo", "vmcore", &name])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let size = || std::fs::metadata(setup.path(&name)).map_or(0, |meta| meta.len());
        while size() <= mib << 20 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        // It may have ended meanwhile: then the dump is whole.
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        // Nothing else is left of it.
        let complete = assert_honest(&setup, &name);
        assert!(!ended.success() || complete, "{name} ended well, and is marked incomplete");
        std::fs::remove_file(setup.path(&name)).unwrap();
        assert_eq!(
            std::fs::read_dir(setup.directory.path()).unwrap().count(),
            1,
            "more than the vmcore is left"
        );
    }
}

/// Captures to the faulty file system, and brings what is left of the dump out of it, if anything is.
fn capture_to(
    faulty: &Faulty,
    setup: &Setup,
    format: &str,
    plan: Plan,
) -> (Option<i32>, String, bool, (usize, usize)) {
    faulty.fail(plan);
    let output = setup.run(&["capture", "-q", "-d", "0", "-c", "lzo", "-f", format, "vmcore", "disk/dump"]);
    let done = faulty.fail(Plan::default());
    let left = faulty.take("dump");
    let there = left.as_ref().is_some_and(|bytes| !bytes.is_empty());
    std::fs::write(setup.path("dump"), left.unwrap_or_default()).unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap(), there, done)
}

/// Asserts that a run whose fault never came is like one without. A capture that takes longer saves its tables more often (each
/// second), so that the number of writes and flushes varies.
fn assert_unharmed(setup: &Setup, what: &str) {
    assert!(assert_honest(setup, "dump"), "exit status 0, and not complete: {what}");
}

/// A dozen of `0..count`, the first and the last among them.
fn some(count: usize) -> impl Iterator<Item = usize> {
    let step = count.div_ceil(10).max(1);
    (0..count).filter(move |n| n % step == 0 || n + 3 > count)
}

#[test]
fn a_capture_killed_after_any_write_leaves_a_whole_dump_or_a_marked_one() {
    let setup = Setup::with_noise(6);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let (code, said, _, (writes, _)) = capture_to(&faulty, &setup, "kdump", Plan::default());
    assert_eq!(code, Some(0), "{said}");
    assert!(assert_honest(&setup, "dump"));
    let mut killed = 0;
    for kill in some(writes) {
        let plan = Plan { kill: Some(kill + 1), ..Plan::default() };
        let (code, said, _, (done, _)) = capture_to(&faulty, &setup, "kdump", plan);
        let what = format!("killed after write {kill} of {writes}: {code:?} {said}");
        if code.is_some() {
            assert!(done <= kill, "it survived: {what}");
            assert_unharmed(&setup, &what);
            continue;
        }
        let complete = assert_honest(&setup, "dump");
        // The last write is the one that removes the mark.
        assert!(!complete || kill > writes / 2, "{what}");
        killed += 1;
    }
    assert!(killed > 3, "{killed} captures were killed");
}

#[test]
fn writes_that_fail_leave_a_marked_dump() {
    let setup = Setup::with_noise(6);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    for format in ["kdump", "elf", "flattened"] {
        let (code, said, _, (writes, _)) = capture_to(&faulty, &setup, format, Plan::default());
        assert_eq!(code, Some(0), "{format}: {said}");
        assert!(assert_honest(&setup, "dump"), "{format}");
        let mut marked = 0;
        for good in some(writes) {
            let plan = Plan { writes: Some(good), ..Plan::default() };
            let (code, said, there, _) = capture_to(&faulty, &setup, format, plan);
            let what = format!("{format}: {good} writes of {writes} succeed: {said}");
            if code == Some(0) {
                assert_unharmed(&setup, &what);
                continue;
            }
            assert!(said.contains("Input/output error") && said.contains("disk"), "{what}");
            assert_eq!(said.trim_end().lines().count(), 1, "{what}");
            match code {
                // So little is there that nothing is.
                Some(1) => assert!(!there, "{what}"),
                Some(3) => {
                    assert!(said.contains("marked incomplete"), "{what}");
                    assert!(!assert_honest(&setup, "dump"), "{what}");
                    marked += 1;
                }
                other => panic!("exit code {other:?}: {what}"),
            }
        }
        assert!(marked > 3, "{format}: {marked} of the dumps were left, marked");
    }
}

#[test]
fn flushes_that_fail_leave_a_marked_dump_or_none() {
    let setup = Setup::with_noise(2);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    for format in ["kdump", "elf", "flattened"] {
        let (code, said, _, (_, syncs)) = capture_to(&faulty, &setup, format, Plan::default());
        assert_eq!(code, Some(0), "{format}: {said}");
        for good in 0..syncs {
            let plan = Plan { syncs: Some(good), ..Plan::default() };
            let (code, said, there, _) = capture_to(&faulty, &setup, format, plan);
            let what = format!("{format}: {good} flushes of {syncs} succeed: {said}");
            if code == Some(0) {
                assert_unharmed(&setup, &what);
                continue;
            }
            assert_one_sentence(&said, &["Input/output error"]);
            match code {
                Some(1) => assert!(!there, "{what}"),
                Some(3) => assert!(!assert_honest(&setup, "dump"), "{what}"),
                other => panic!("exit code {other:?}: {what}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_read_of_the_source_is_lost_and_said_to_be() {
    let setup = Setup::with_noise(6);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let vmcore = std::fs::read(setup.path("vmcore")).unwrap();
    // 40 pages of noise, found by their contents.
    let first = setup.image.page(0x4100);
    let at = vmcore.chunks(4096).position(|page| page == first).unwrap() * 4096;
    faulty.put("vmcore", vmcore);
    faulty.fail(Plan { bad: at..at + 40 * 4096, ..Plan::default() });
    for (access, format) in [("--no-mmap", "kdump"), ("--map-size=64K", "kdump"), ("--no-mmap", "elf")] {
        let _ = std::fs::remove_file(setup.path("dump"));
        let command =
            ["capture", "--json", "-d", "0", "-c", "lzo", "-f", format, access, "disk/vmcore", "dump"];
        let output = setup.run(&command);
        let (report, said) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let what = format!("{access}, {format}: {report}{said}");
        assert_eq!(output.status.code(), Some(3), "{what}");
        assert!(said.contains("could not be read") && report.contains("pages-unreadable"), "{what}");
        let at = report.find("\"unreadable_pages\": ").unwrap() + 20;
        let lost: u64 = report[at..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        // What a request for several pages may span.
        assert!((40..=80).contains(&lost), "{what}");
        assert_eq!(setup.is_complete("dump"), Some(false), "{what}");
        if format == "kdump" {
            // Not as zeros: not at all.
            assert_eq!(setup.right_pages("dump"), setup.image.expected(0).len() as u64 - lost, "{what}");
        }
    }
    // Without its head there is nothing to capture.
    faulty.fail(Plan { bad: 0..4096, ..Plan::default() });
    let said = setup.fails(&["capture", "disk/vmcore", "none"], 1);
    assert_one_sentence(&said, &["disk/vmcore", "Input/output error"]);
    assert!(!setup.path("none").exists());
}

#[test]
fn a_stream_that_cannot_be_written_is_an_error() {
    let setup = Setup::small();
    let output = Command::new("sh")
        .args(["-c", &format!("{BINARY} capture -q vmcore - > /dev/full")])
        .current_dir(setup.directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(matches!(output.status.code(), Some(1 | 3)), "{said}");
    assert_one_sentence(&said, &["standard output", "No space left on device"]);
}
