//! Checkpoints that are based on others, with a stand-in for CRIU: every generation restarts exactly, and one whose base is lost,
//! changed or another is refused before anything is touched.
#![cfg(feature = "process")]

mod common {
    pub mod criu;
    pub mod generations;
    pub mod subject;
}

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use common::criu::{can_track_writes, said};
use common::generations::Generations;
use common::subject::tool;
use serde_json::Value;
use tempfile::tempdir;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_generation_restarts_exactly() {
    let mut generations = Generations::new(&["24", "2", "churn"]);
    let reports = generations.take_all(6, &[]);
    assert!(reports[0]["base"].is_null());
    for report in &reports[1..] {
        assert_eq!(report["base"]["way"], "compared", "{report}");
        // What it was filled with does not change.
        assert!(number(&report["base"]["unchanged_bytes"]) > 20 << 20, "{report}");
        assert!(number(&report["output_bytes"]) < number(&reports[0]["output_bytes"]) / 2, "{report}");
    }
    generations.end();
    (0..6).for_each(|number| generations.restarts_exactly(number));
    // Made whole in place, it needs none of the older ones, and the newer ones need none of them either.
    let (path, last) = (generations.path(3), generations.path(5));
    let output = tool(&["convert", "--force", "--json"]).args([&path, &path]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["checkpoints"], 4);
    (0..3).for_each(|number| fs::remove_file(generations.path(number)).unwrap());
    (3..6).for_each(|number| generations.restarts_exactly(number));
    let output = tool(&["verify"]).arg(&last).output().unwrap();
    assert!(output.status.success() && said(&output).ends_with("\nintact\n"), "{}", said(&output));
    let output = tool(&["info"]).arg(&last).output().unwrap();
    assert!(output.status.success() && said(&output).contains("complete      yes"), "{}", said(&output));
    for part in ["based on      ", "4.ckpt of ", "3.ckpt of ", "needs         3 files, "] {
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
    }
    let output = tool(&["info", "--json"]).arg(&last).output().unwrap();
    let info: Value = serde_json::from_slice(&output.stdout).unwrap();
    let chain: Vec<&str> =
        info["chain"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    let expected = [5, 4, 3].map(|number| generations.path(number));
    assert_eq!(chain, expected.each_ref().map(|path| path.to_str().unwrap()));
}

/// All memory comes from CRIU, and some is compressed before it is known what may be in the base.
#[test]
fn generations_of_memory_that_criu_saves_restart_exactly() {
    let mut generations = Generations::new(&["24", "2", "seccomp"]);
    for (count, report) in generations.take_all(3, &["--max-memory", "8M"]).iter().enumerate() {
        assert!(!report["no_pre_copy"].is_null() && report["base"].is_null() == (count == 0), "{report}");
    }
    let report = generations.take(3, Some(&generations.path(2)), &["--threads", "1"]);
    assert!(number(&report["base"]["unchanged_bytes"]) > 20 << 20, "{report}");
    generations.end();
    (0..4).for_each(|number| generations.restarts_exactly(number));
}

/// Memory for copies is too short: they are compared with the base and written while the process runs, or marks say what is in the base.
#[test]
fn generations_that_are_spilled_restart_exactly() {
    if !can_track_writes() {
        return;
    }
    let mut generations = Generations::new(&["24", "2", "churn"]);
    let short = ["--max-memory", "8M"];
    for (count, report) in generations.take_all(4, &short).iter().enumerate() {
        assert!(report["no_pre_copy"].is_null() && report["base"].is_null() == (count == 0), "{report}");
        let spilled = number(&report["pre_copy"]["spilled_bytes"]);
        if count == 0 {
            assert!(spilled > 20 << 20, "{report}");
        } else {
            assert!(number(&report["base"]["unchanged_bytes"]) > 10 << 20, "{report}");
        }
    }
    let kept = ["--max-memory", "8M", "--keep-marks"];
    generations.take(4, Some(&generations.path(3)), &kept);
    let report = generations.take(5, Some(&generations.path(4)), &kept);
    assert_eq!(report["base"]["way"], "marks", "{report}");
    // Of a base that the marks are not of, all is compared.
    let report = generations.take(6, Some(&generations.path(3)), &["--max-memory", "8M", "--threads", "1"]);
    assert_eq!(report["base"]["way"], "compared", "{report}");
    assert!(number(&report["base"]["unchanged_bytes"]) > 10 << 20, "{report}");
    generations.end();
    (0..7).for_each(|number| generations.restarts_exactly(number));
}

/// A small process, whose memory pagehaul leaves to CRIU.
#[test]
fn a_small_process_has_generations_too() {
    let mut generations = Generations::new(&["1", "1"]);
    let reports = generations.take_all(2, &[]);
    assert!(number(&reports[1]["base"]["unchanged_bytes"]) >= 1 << 20, "{}", reports[1]);
    generations.end();
    (0..2).for_each(|number| generations.restarts_exactly(number));
}

#[test]
fn bases_that_are_lost_changed_or_others_are_refused_before_anything_is_touched() {
    let mut generations = Generations::new(&["1", "1"]);
    generations.take_all(3, &[]);
    let mut other = Generations::new(&["1", "1"]);
    other.take_all(2, &[]);
    let base = generations.path(0);
    let good = fs::read(&base).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        Some(bytes)
    };
    let names = base.display().to_string();
    let cases = [
        (None, format!("its base {names} is missing")),
        (
            Some(fs::read(other.path(0)).unwrap()),
            format!("{names} is not the checkpoint that it is based on"),
        ),
        (Some(good[..good.len() - 9].to_vec()), format!("its base cannot be read: {names}: byte ")),
        (Some(good[..good.len() / 2].to_vec()), format!("its base cannot be read: {names}: byte ")),
        (Some(Vec::new()), format!("its base cannot be read: {names}: it is not a checkpoint")),
        (flipped(good.len() / 2), format!("{names}: bytes 0x")),
        (flipped(good.len() - 100), format!("its base cannot be read: {names}: bytes ")),
    ];
    let files = generations.files();
    for (content, part) in &cases {
        match content {
            Some(content) => fs::write(&base, content).unwrap(),
            None => fs::remove_file(&base).unwrap(),
        }
        let newest = generations.path(2);
        let whole = generations.directory.path().join("whole");
        let refused = |output: &Output, status: i32| {
            assert_eq!(output.status.code(), Some(status), "{}", said(output));
            assert!(said(output).contains(part.as_str()), "no {part:?} in {}", said(output));
        };
        refused(&generations.command(3, Some(&newest), &[]).output().unwrap(), 1);
        generations.subject.as_mut().unwrap().goes_on();
        let (output, was_touched) = generations.restart(2);
        refused(&output, 1);
        assert!(!was_touched);
        let output = tool(&["verify"]).arg(&newest).output().unwrap();
        // Without its base the file is not damaged: it cannot be verified.
        let is_there = part.contains("byte") || part.contains("cannot be read");
        refused(&output, if is_there { 3 } else { 1 });
        assert_eq!(said(&output).contains("DAMAGED"), is_there, "{}", said(&output));
        refused(&tool(&["convert"]).args([&newest, &whole]).output().unwrap(), 1);
        if !part.starts_with(&names) {
            refused(&tool(&["info"]).arg(&newest).output().unwrap(), 3);
        }
        assert_eq!(generations.files(), files - usize::from(content.is_none()), "a file is left");
    }
    fs::write(&base, &good).unwrap();
    // Of another process; no checkpoint; itself.
    let refused = |command: &mut Command, part: &str| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
    };
    let part = format!(
        "it is a checkpoint of process {} (subject), and no base for one of process {}; leave out --base",
        other.tree, generations.tree
    );
    refused(&mut generations.command(3, Some(&other.path(1)), &[]), &part);
    refused(&mut generations.command(3, Some(&generations.memory(0)), &[]), "it is not a checkpoint");
    refused(&mut generations.command(3, Some(&generations.path(9)), &[]), "cannot open");
    let path = generations.path(2);
    refused(&mut generations.command(2, Some(&path), &["--force"]), "is the source itself");
    refused(&mut generations.command(1, Some(&path), &["--force"]), "is the source itself");
    refused(tool(&["convert", "--force"]).args([&path, &generations.path(1)]), "is the source itself");
    assert_eq!(generations.files(), files);
    generations.subject.as_mut().unwrap().goes_on();
    generations.end();
    other.end();
    (0..3).for_each(|number| generations.restarts_exactly(number));
}

#[test]
fn a_checkpoint_is_no_stream() {
    let directory = tempdir().unwrap();
    for words in [&["checkpoint", "1", "-"][..], &["checkpoint", "--base", "-", "1", "new"]] {
        let output = tool(words).current_dir(&directory).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("stream; name "), "{}", said(&output));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}

#[test]
fn the_file_of_a_chain_whose_base_is_lost_is_named() {
    let mut generations = Generations::new(&["1", "1"]);
    generations.take_all(4, &[]);
    generations.end();
    fs::remove_file(generations.path(1)).unwrap();
    let expected =
        format!("{}: its base {} is missing", generations.path(2).display(), generations.path(1).display());
    for (command, status) in [("verify", 1), ("info", 3)] {
        let output = tool(&[command]).arg(generations.path(3)).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        assert!(said(&output).contains(&expected), "{command}: {}", said(&output));
    }
    let newest = generations.path(3);
    let verify = || {
        let output = tool(&["verify"]).arg(&newest).output().unwrap();
        (output.status.code(), said(&output))
    };
    let cannot = "cannot be verified without its base; its own blocks are intact";
    let told = format!("pagehaul: {} {cannot}: {expected}; copy it to that path\n", newest.display());
    assert_eq!(verify(), (Some(1), told));
    // A base that cannot be opened may be whole.
    std::os::unix::fs::symlink(generations.path(1), generations.path(1)).unwrap();
    let (code, text) = verify();
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(cannot) && text.contains("its base cannot be read: cannot open "), "{text}");
    fs::remove_file(generations.path(1)).unwrap();
    // Damage of the file itself is found all the same.
    let mut bytes = fs::read(&newest).unwrap();
    bytes[40] ^= 1;
    fs::write(&newest, &bytes).unwrap();
    let (code, text) = verify();
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("fault: bytes 0x18 to ") && text.contains(&expected), "{text}");
}

#[test]
fn files_that_convert_cannot_use_are_named() {
    let mut generations = Generations::new(&["1", "1"]);
    generations.take_all(3, &[]);
    generations.end();
    let convert = |files: &[&Path]| {
        let output = tool(&["convert"]).args(files).current_dir(&generations.directory).output().unwrap();
        (output.status.code(), said(&output))
    };
    let newest = generations.path(2);
    let directory = generations.directory.path().join("directory");
    fs::create_dir(&directory).unwrap();
    let (code, text) = convert(&[&newest, &directory]);
    assert_eq!(code, Some(0), "{text}");
    assert!(directory.join("checkpoint.pagehaul").is_file());
    let (code, text) = convert(&[&newest, Path::new("-")]);
    assert!(code == Some(2) && text.contains("cannot be written to a stream"), "{text}");
    let (code, text) = convert(&[&generations.path(1), &newest, Path::new("whole")]);
    assert!(
        code == Some(2) && text.contains("is a checkpoint of processes, which is converted alone"),
        "{text}"
    );
    fs::remove_file(generations.path(1)).unwrap();
    fs::create_dir(generations.path(1)).unwrap();
    let (code, text) = convert(&[&newest, Path::new("whole")]);
    assert!(code == Some(1) && text.contains("1.ckpt is not a regular file"), "{text}");
}

#[test]
fn options_of_dumps_are_refused_for_checkpoints() {
    let generations = Generations::new(&["1", "1"]);
    generations.take_all(1, &[]);
    let whole = generations.directory.path().join("whole");
    for options in [&["-d", "31"][..], &["-f", "elf"], &["--checksums"], &["-c", "lzo"], &["-c", "auto"]] {
        let output = tool(&["convert"]).args(options).args([&generations.path(0), &whole]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", said(&output));
        assert!(said(&output).contains("checkpoint"), "{options:?}: {}", said(&output));
    }
    assert!(!whole.exists());
    let output = tool(&["convert", "-c", "zstd:3"]).args([&generations.path(0), &whole]).output().unwrap();
    assert!(
        output.status.success() && said(&output).contains(", from 1 checkpoint in "),
        "{}",
        said(&output)
    );
}

impl Generations {
    /// The process that keeps the marks.
    fn holder(&self) -> Option<i32> {
        let expected = format!("hold-marks\0{}\0", self.tree);
        let pids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let is_holder = |pid: &i32| {
            fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(&expected))
        };
        pids.into_iter().find(is_holder)
    }

    /// Whether writes to the process's memory are tracked.
    fn is_marked(&self) -> bool {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps", self.tree)).unwrap();
        smaps.lines().any(|line| line.starts_with("VmFlags:") && line.contains(" uw"))
    }

    fn kill_holder(&self) {
        let holder = rustix::process::Pid::from_raw(self.holder().expect("a holder")).unwrap();
        rustix::process::kill_process(holder, rustix::process::Signal::KILL).unwrap();
        while self.is_marked() {
            std::thread::yield_now();
        }
    }

    fn take_next(&self, number: usize, base: usize, options: &[&str], way: &str) -> Value {
        let report = self.take(number, Some(&self.path(base)), options);
        assert_eq!(report["base"]["way"], way, "{report}");
        assert_eq!(report["kept_marks"], options.contains(&"--keep-marks"), "{report}");
        assert!(number_of_unchanged(&report) > 20 << 20, "{report}");
        report
    }
}

fn number_of_unchanged(report: &Value) -> u64 {
    number(&report["base"]["unchanged_bytes"])
}

#[test]
fn kept_marks_find_all_that_was_written() {
    if !can_track_writes() {
        return;
    }
    let mut generations = Generations::new(&["24", "2", "churn"]);
    let keep = ["--keep-marks"];
    let report = generations.take(0, None, &keep);
    assert!(report["base"].is_null() && report["kept_marks"] == true, "{report}");
    for number in 1..8 {
        assert!(generations.is_marked() && generations.holder().is_some());
        generations.take_next(number, number - 1, &keep, "marks");
    }
    // Marks since another checkpoint say nothing.
    let report = generations.take_next(8, 5, &keep, "compared");
    assert!(number(&report["pre_copy"]["running_bytes"]) > 20 << 20, "copied while it runs: {report}");
    generations.take_next(9, 8, &keep, "marks");
    // Their holder is killed.
    generations.kill_holder();
    generations.take_next(10, 9, &keep, "compared");
    // A checkpoint that fails uses them up.
    let mut command = generations.command(11, Some(&generations.path(10)), &keep);
    let output = command.env("PRETEND", "fail").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!generations.is_marked() && generations.holder().is_none());
    generations.take_next(11, 10, &keep, "compared");
    // The last one ends the marks, whether it has a base or not.
    generations.take_next(12, 11, &[], "marks");
    assert!(!generations.is_marked() && generations.holder().is_none());
    generations.take(13, None, &keep);
    let report = generations.take(14, None, &[]);
    assert!(report["no_pre_copy"].is_null() && !generations.is_marked(), "{report}");
    assert!(number(&report["pre_copy"]["running_bytes"]) > 20 << 20, "copied while it runs: {report}");
    // The holder ends with the process.
    generations.take(15, None, &keep);
    assert!(generations.holder().is_some());
    generations.end();
    while generations.holder().is_some() {
        std::thread::yield_now();
    }
    (0..16).for_each(|number| generations.restarts_exactly(number));
}

#[test]
fn the_holder_of_marks_keeps_nothing_else_open() {
    if !can_track_writes() {
        return;
    }
    let mut generations = Generations::new(&["24", "2", "churn"]);
    let mut command = generations.command(0, None, &["--keep-marks"]);
    // As `3>&1` of a shell, or a lock of flock(1).
    let (reader, writer) = std::io::pipe().unwrap();
    let inherited = writer.as_raw_fd();
    // SAFETY: one system call, which may be made between fork and exec.
    unsafe {
        command.pre_exec(move || match libc::dup2(inherited, 100) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        })
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    drop((command, writer));
    let holder = generations.holder().expect("a process that holds the marks");
    let pipe = fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
    let open = fs::read_dir(format!("/proc/{holder}/fd")).unwrap();
    let open: Vec<_> = open.map(|entry| fs::read_link(entry.unwrap().path()).unwrap()).collect();
    assert!(!open.contains(&pipe), "{open:?}");
    generations.end();
}

#[test]
fn a_holder_of_marks_that_does_not_answer_is_named() {
    if !can_track_writes() {
        return;
    }
    let mut generations = Generations::new(&["24", "2", "churn"]);
    generations.take(0, None, &["--keep-marks"]);
    let holder = generations.holder().expect("a holder");
    let signal = |signal| {
        rustix::process::kill_process(rustix::process::Pid::from_raw(holder).unwrap(), signal).unwrap();
    };
    signal(rustix::process::Signal::STOP);
    let report = generations.take(1, None, &[]);
    let reason = report["no_pre_copy"].as_str().expect("a reason");
    assert!(reason.contains(&format!("process {holder}, which holds the marks")), "{reason}");
    signal(rustix::process::Signal::KILL);
    generations.end();
}

#[test]
fn sigkill_with_kept_marks_loses_no_write() {
    if !can_track_writes() {
        return;
    }
    let mut generations = Generations::new(&["24", "2", "churn"]);
    generations.take(0, None, &["--keep-marks"]);
    for number in 1..8 {
        let base = generations.path(number - 1);
        let mut command = generations.command(100, Some(&base), &["--keep-marks", "--force"]);
        // The stand-in reads no memory here: without an answer to its scan it ends, and leaves the process stopped.
        let mut child = command.env_remove("MEMORY").stdout(std::process::Stdio::null()).spawn().unwrap();
        let reads = |pid: u32| -> Option<u64> {
            let counts = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            counts.lines().find_map(|line| line.strip_prefix("syscr: "))?.parse().ok()
        };
        // Before and after the marks are used up.
        while reads(child.id()).is_some_and(|count| count < number as u64 * 90)
            && child.try_wait().unwrap().is_none()
        {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // CRIU has to let it go on.
        while generations.subject.as_ref().unwrap().is_stopped() {
            std::thread::yield_now();
        }
        while generations.is_marked() && generations.holder().is_none() {
            std::thread::yield_now();
        }
        generations.subject.as_mut().unwrap().goes_on();
        let report = generations.take(number, Some(&base), &["--keep-marks"]);
        assert!(number_of_unchanged(&report) > 20 << 20, "{report}");
    }
    generations.end();
    (0..8).for_each(|number| generations.restarts_exactly(number));
}
