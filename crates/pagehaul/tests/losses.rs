//! `pagehaul checkpoint`: what CRIU does not restore is in the report.
#![cfg(feature = "process")]

mod common {
    pub mod criu;
    pub mod subject;
}

use std::collections::BTreeMap;
use std::fs;
use std::mem::zeroed;
use std::os::unix::process::CommandExt;
use std::process::Command;

use common::criu::{can_track_writes, said, with_criu};
use common::subject::{Subject, tool};
use serde_json::Value;
use tempfile::tempdir;

/// A PID that no process has.
const FREE: &str = "4194303";

/// What a checkpoint's report says is lost, and whether CRIU got the flags of mappings without the kernel's look at each page.
fn lost(subject: &Subject, version: &str, saves_memory: bool) -> (BTreeMap<String, u64>, Vec<String>, bool) {
    let directory = tempdir().unwrap();
    let mut command = with_criu("checkpoint");
    command.args(["--leave-running", "--json", &subject.pid()]).arg(directory.path().join("checkpoint"));
    command.env("TREE", subject.pid()).env("PRETEND", format!("version {version}"));
    if saves_memory {
        command.env("MEMORY", directory.path().join("memory"));
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = report["lost"].as_array().unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let counts = all.iter().map(|one| (text(one, "property"), one["count"].as_u64().unwrap()));
    let notes = all.iter().map(|one| text(one, "note"));
    let walked = report["pre_copy"]["walked"].as_array();
    (counts.collect(), notes.collect(), walked.is_some_and(Vec::is_empty))
}

/// What the subject has of the kernel and of this user's rights. The C library may have droppable memory as well (glibc 2.41).
fn expected(mappings: &str) -> BTreeMap<String, u64> {
    let has = |flag: &str| {
        mappings.lines().filter(|line| line.starts_with("VmFlags:") && line.contains(flag)).count() as u64
    };
    let droppable = has(" dp");
    assert_eq!((has(" lf"), has(" wf") - droppable), (2, 1));
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let is_root = rustix::process::geteuid().is_root();
    let all = [
        ("mseal", has(" sl")),
        ("mlock_onfault", 2),
        ("madv_wipeonfork", 1),
        ("map_droppable", droppable),
        ("cpu_affinity", u64::from(cpus > 1)),
        ("timer_slack", u64::from(is_root)),
        ("io_priority", 1),
        ("coredump_filter", 1),
        ("personality", 1),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)).collect()
}

/// The last CPU that this process may run on.
fn last_cpu() -> usize {
    // SAFETY: a set of CPUs is a number of bits, which the kernel writes.
    unsafe {
        let mut cpus: libc::cpu_set_t = zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&cpus), &mut cpus), 0);
        (0..libc::CPU_SETSIZE as usize).rfind(|cpu| libc::CPU_ISSET(*cpu, &cpus)).unwrap()
    }
}

/// Has a command run on one CPU only.
fn pin(command: &mut Command, cpu: usize) {
    // SAFETY: a set on the stack, and a system call, which may be made between fork and exec.
    unsafe {
        command.pre_exec(move || {
            let mut cpus: libc::cpu_set_t = zeroed();
            libc::CPU_SET(cpu, &mut cpus);
            match libc::sched_setaffinity(0, size_of_val(&cpus), &cpus) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
}

/// What counts is where the process may run, not where pagehaul may.
#[test]
fn the_cpus_of_pagehaul_do_not_matter() {
    if std::thread::available_parallelism().map_or(1, usize::from) == 1 {
        return;
    }
    for (subject, expected) in [(Subject::start(&["1", "1"]), 0), (Subject::start(&["1", "1", "lossy"]), 1)] {
        let directory = tempdir().unwrap();
        let mut command = with_criu("checkpoint");
        command.args(["--leave-running", "--json", &subject.pid()]).arg(directory.path().join("checkpoint"));
        // Where the first thread of the lossy one may run, too.
        pin(&mut command, last_cpu());
        let output = command.env("TREE", subject.pid()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let lost = report["lost"].as_array().unwrap();
        let of_cpus = lost.iter().find(|lost| lost["property"] == "cpu_affinity");
        assert_eq!(of_cpus.map_or(0, |lost| lost["count"].as_u64().unwrap()), expected, "{report}");
    }
}

/// A restart on another day has to know it as well.
#[test]
fn what_a_restarted_process_lacks_is_in_the_checkpoint() {
    let subject = Subject::start(&["1", "1", "lossy"]);
    let directory = tempdir().unwrap();
    let (path, whole) = (directory.path().join("checkpoint"), directory.path().join("whole"));
    let mut command = with_criu("checkpoint");
    command.args(["--leave-running", "--json", &subject.pid()]).arg(&path).env("TREE", FREE);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes: Vec<&str> =
        report["lost"].as_array().unwrap().iter().map(|lost| lost["note"].as_str().unwrap()).collect();
    assert!(notes.len() >= 4, "{report}");
    let output = tool(&["convert"]).args([&path, &whole]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for path in [&path, &whole] {
        let output = tool(&["info", "--json"]).arg(path).output().unwrap();
        let info: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(info["lost"], report["lost"]);
        let output = tool(&["info"]).arg(path).output().unwrap();
        for note in &notes {
            assert!(
                said(&output).contains(&format!("not restored  {note}\n")),
                "no {note:?} in {}",
                said(&output)
            );
        }
        let restart = |arguments: &[&str]| {
            let mut command = with_criu("restart");
            command
                .args(arguments)
                .arg(path)
                .env("TREE", FREE)
                .env("RESTARTED", directory.path().join("restarted"));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            output
        };
        let restarted: Value = serde_json::from_slice(&restart(&["--json"]).stdout).unwrap();
        assert_eq!(restarted["lost"], report["lost"]);
        let output = restart(&[]);
        for note in &notes {
            assert!(said(&output).contains(&format!("note: {note}\n")), "no {note:?} in {}", said(&output));
        }
    }
}

#[test]
fn what_a_restarted_process_lacks_is_in_the_report() {
    let mut subject = Subject::start(&["64", "1", "lossy"]);
    let mappings = fs::read_to_string(format!("/proc/{}/smaps", subject.pid())).unwrap();
    let mut expected = expected(&mappings);
    // The stand-in does not read the flags of mappings: pagehaul does. With memory it does, and pagehaul answers.
    let saves_memory = can_track_writes();
    let (found, notes, _) = lost(&subject, "4.1.1", false);
    assert_eq!(found, expected);
    let note =
        "CRIU 4.1.1 does not restore the MLOCK_ONFAULT of 2 mappings: a restart locks all pages in memory";
    assert!(notes.iter().any(|other| other == note), "{notes:?}");
    let (found, _, is_fast) = lost(&subject, "4.1.1", saves_memory);
    assert_eq!(found, expected);
    // A seal is no reason to have the kernel look at each page.
    let (_, _, others_are_fast) = lost(&Subject::start(&["64", "1"]), "4.1.1", saves_memory);
    assert_eq!(is_fast, others_are_fast);
    // CRIU 4.2 restores some of it.
    assert!(expected.remove("madv_wipeonfork").is_some());
    expected.remove("map_droppable");
    assert_eq!(lost(&subject, "4.2", saves_memory).0, expected);
    subject.goes_on();
}

#[test]
fn a_process_that_loses_nothing_has_no_note() {
    let subject = Subject::start(&["64", "2"]);
    for saves_memory in [false, can_track_writes()] {
        assert_eq!(lost(&subject, "4.2", saves_memory).1, [""; 0]);
    }
}

/// CRIU would wait 10 s for it, with all other threads frozen.
#[test]
fn a_process_that_could_not_be_frozen_is_refused() {
    let directory = tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut subject = Subject::start(&["1", "2", "vfork", fifo.to_str().unwrap()]);
    subject.wait_for_any_thread_in_state('D');
    let path = directory.path().join("checkpoint");
    let save =
        || with_criu("checkpoint").args(["--leave-running", &subject.pid()]).arg(&path).output().unwrap();
    let output = save();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let sentence =
        format!("of process {} has been waiting in the kernel for 1 s and cannot be", subject.pid());
    assert!(said(&output).contains(&sentence), "{}", said(&output));
    assert!(!path.exists());
    // A frozen control group looks the same, and CRIU knows what to do.
    let mut command = with_criu("checkpoint");
    command.args(["--leave-running", &subject.pid()]).arg(&path).env("PRETEND", "fail");
    let output = command.args(["--", "--freeze-cgroup", "/sys/fs/cgroup"]).output().unwrap();
    assert!(said(&output).contains("no such luck"), "{}", said(&output));
    fs::write(&fifo, "go").unwrap();
    subject.goes_on();
}

#[test]
fn a_process_that_could_not_be_restarted_is_refused() {
    /// `struct sched_attr` of include/uapi/linux/sched/types.h, as it was first (Linux 3.14).
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const DEADLINE: u32 = 6;
    let subject = Subject::start(&["1", "1"]);
    let (runtime, period) = (1_000_000, 100_000_000);
    let attributes = Attributes {
        size: 48,
        policy: DEADLINE,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime,
        deadline: period,
        period,
    };
    let pid: i32 = subject.pid().parse().unwrap();
    // SAFETY: the kernel reads the struct.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, pid, &raw const attributes, 0) } != 0 {
        // Users without privileges, and CPUs that have no time for it.
        return;
    }
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let output = with_criu("checkpoint").arg(subject.pid()).arg(&path).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("is scheduled by SCHED_DEADLINE"), "{}", said(&output));
    assert!(!path.exists() && !subject.has_ended());
}
