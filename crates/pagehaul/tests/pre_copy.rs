//! `pagehaul checkpoint`: what is copied while processes run is in the checkpoint as it was when they were frozen.
#![cfg(feature = "process")]

mod common {
    pub mod criu;
    pub mod subject;
}

use std::fs;
use std::path::Path;
use std::process::Command;

use common::criu::{can_track_writes, said, stand_in, with_criu};
use common::subject::{Subject, tool};
use tempfile::tempdir;

/// Saves a process that changes its memory in every way, and compares what a restart is given with what the stand-in saw.
fn saved_exactly(directory: &Path, options: &[&str], part: &str) {
    subject_saved_exactly(&["24", "2", "churn"], directory, options, part);
}

fn subject_saved_exactly(subject: &[&str], directory: &Path, options: &[&str], part: &str) {
    let (path, marker) = (directory.join("checkpoint"), directory.join("marker"));
    let memory = directory.join("memory");
    let subject = Subject::start(subject);
    let tree = subject.pid();
    let output = with_criu("checkpoint")
        .args(["--force", &tree])
        .args(options)
        .arg(&path)
        .env("TREE", &tree)
        .env("MEMORY", &memory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
    drop(subject);
    let _ = fs::remove_file(&marker);
    restarts_exactly(&path, &tree, &memory, &marker);
    assert_eq!(fs::read_to_string(&marker).unwrap(), "whole");
}

/// Restarts a checkpoint and compares its memory with what the stand-in saw while the processes were frozen.
fn restarts_exactly(checkpoint: &Path, tree: &str, memory: &Path, marker: &Path) {
    let output = with_criu("restart")
        .arg(checkpoint)
        .env("TREE", tree)
        .env("RESTARTED", marker)
        .env("MEMORY", memory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read_to_string(memory.with_extension("differences")).unwrap(), "");
}

#[test]
fn memory_that_changes_while_it_is_copied_is_saved_exactly() {
    let directory = tempdir().unwrap();
    let part =
        if can_track_writes() { "while running, in " } else { "note: all memory was copied while frozen" };
    for _ in 0..4 {
        saved_exactly(directory.path(), &[], part);
    }
    saved_exactly(directory.path(), &["--threads", "1"], part);
}

#[test]
fn copies_that_memory_is_too_short_for_are_written_before_the_freeze() {
    let directory = tempdir().unwrap();
    let part = if can_track_writes() {
        "were compressed and written while running"
    } else {
        "note: all memory was copied while frozen"
    };
    // Room for some rounds, and for none.
    for most in ["8M", "8M", "20M", "64K"] {
        saved_exactly(directory.path(), &["--max-memory", most], part);
    }
    saved_exactly(directory.path(), &["--max-memory", "8M", "--threads", "1"], part);
    let info = tool(&["info"]).arg(directory.path().join("checkpoint")).output().unwrap();
    assert_eq!(said(&info).contains("\nunused        "), can_track_writes(), "{}", said(&info));
}

#[test]
fn memory_that_is_hardly_written_to_is_compressed_before_the_freeze() {
    let directory = tempdir().unwrap();
    let part = if can_track_writes() {
        "were compressed and written while running"
    } else {
        "note: all memory was copied while frozen"
    };
    subject_saved_exactly(&["96", "1"], directory.path(), &[], part);
}

/// A mapping that is split by the tracking cannot be moved any more.
#[test]
fn a_program_that_moves_its_memory_goes_on() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["24", "2", "slots"]);
    for _ in 0..4 {
        let output = with_criu("checkpoint")
            .args(["--force", "--leave-running", &subject.pid()])
            .arg(directory.path().join("checkpoint"))
            .env("TREE", subject.pid())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
        subject.goes_on();
    }
}

#[test]
fn memory_that_can_change_without_marks_is_copied_again_when_frozen() {
    if !can_track_writes() {
        return;
    }
    // Not a tmpfs, which had no direct I/O before Linux 6.6.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let meet = directory.path().to_str().unwrap();
    let (path, memory, marker) = (
        directory.path().join("checkpoint"),
        directory.path().join("memory"),
        directory.path().join("marker"),
    );
    let subject = Subject::start(&["24", "1", "direct", meet]);
    let tree = subject.pid();
    let output = with_criu("checkpoint")
        .args(["--json", &tree])
        .arg(&path)
        .env("TREE", &tree)
        .env("MEET", meet)
        .env("MEMORY", &memory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let copy = &report["pre_copy"];
    let reason = copy["copied_again"][0].as_str().unwrap_or_else(|| panic!("no reason in {report}"));
    let expected = format!(
        "process {tree}: it has {meet}/direct open for direct I/O, which writes to memory without a mark"
    );
    assert_eq!(reason, expected);
    assert!(copy["frozen_bytes"].as_u64().unwrap() >= 20 << 20, "{report}");
    drop(subject);
    restarts_exactly(&path, &tree, &memory, &marker);
}

/// CRIU must suspend the filters of all processes of a tree, also of those that are too small to be copied before.
#[test]
fn seccomp_filters_of_a_small_process_of_the_tree_keep_criu_unwatched() {
    let directory = tempdir().unwrap();
    let ready = directory.path().join("ready");
    // The stand-in needs no filter suspended: only the note shows that it was not watched.
    let script = "\"$0\" 1 1 seccomp < \"$1\" > \"$2\" & exec \"$0\" 24 1 wait \"$2.parent\"";
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let program = stand_in().with_file_name("subject");
    let mut parent =
        Command::new("sh").args(["-c", script]).arg(program).args([&fifo, &ready]).spawn().unwrap();
    // Its child ends with this.
    let input = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    let is_ready = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'));
    while !is_ready(&ready) || !is_ready(&ready.with_extension("parent")) {
        std::thread::yield_now();
    }
    let output = with_criu("checkpoint")
        .args(["--leave-running", &parent.id().to_string()])
        .arg(directory.path().join("checkpoint"))
        .output()
        .unwrap();
    drop(input);
    parent.kill().unwrap();
    parent.wait().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let part = "has seccomp filters, which CRIU may not suspend while it is watched";
    assert!(said(&output).contains(part) || !can_track_writes(), "no {part:?} in {}", said(&output));
}
