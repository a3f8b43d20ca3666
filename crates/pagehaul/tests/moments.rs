//! Every moment of a command on processes: it is killed, signalled, or denied a system call or thread at any of its system
//! calls, and the process must be as it was before. `make test-full` runs 1,000 rounds.
#![cfg(feature = "process")]

mod common {
    pub mod subject;
}

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use common::subject::{BINARY, Subject};
use pagehaul_test_support::tracer::{Fault, HUNG, run};
use tempfile::tempdir;

/// One test at a time: copies of a process are told by its program, which all tests run.
static ALONE: Mutex<()> = Mutex::new(());

/// Rounds, unless PAGEHAUL_ROUNDS says otherwise.
const ROUNDS: usize = 100;
const SUBJECT: [&str; 3] = ["1", "2", "pending"];
const COMMANDS: [&[&str]; 6] = [
    &["core"],
    &["core", "--live"],
    &["core", "--snapshot"],
    &["checkpoint"],
    &["checkpoint", "--leave-running"],
    &["restart"],
];

/// xorshift64: the same moments in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// What a process has that no command may change: signals, mappings, descriptors, children.
fn state_of(pid: &str) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap();
    let status = read("status");
    let kept = ["TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Seccomp"];
    let mut out: Vec<String> = status
        .lines()
        .filter(|line| kept.iter().any(|key| line.starts_with(key)))
        .map(str::to_owned)
        .collect();
    out.push(read("maps"));
    for directory in ["fd", "task"] {
        for entry in fs::read_dir(format!("/proc/{pid}/{directory}")).unwrap() {
            let path = entry.unwrap().path();
            let children = fs::read_to_string(path.join("children")).unwrap_or_default();
            out.push(format!("{path:?} {:?} {children}", fs::read_link(&path).ok()));
        }
    }
    let is_stopped =
        status.lines().any(|line| line.starts_with("State:\tT") || line.starts_with("State:\tt"));
    out.push(format!("stopped: {is_stopped}"));
    out.join("\n")
}

/// Other processes of the subject's program: snapshots that were not killed.
fn left_over(pid: &str) -> Vec<String> {
    let exe = |pid: &str| fs::read_link(format!("/proc/{pid}/exe")).ok();
    let subject = exe(pid);
    let entries =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    entries.filter(|other| other != pid && subject.is_some() && exe(other) == subject).collect()
}

fn command(words: &[&str], subject: &Subject, directory: &Path) -> Command {
    let stand_in = std::env::current_exe().unwrap().parent().unwrap().join("../examples/criu_stand_in");
    let mut command = Command::new(BINARY);
    command.args(words).args(["--threads", "2"]);
    match words[0] {
        "core" => command.arg("--force").args([&subject.pid()]).arg(directory.join("core.zst")),
        "checkpoint" => command
            .arg("--force")
            .arg("--criu")
            .arg(stand_in)
            .arg(subject.pid())
            .arg(directory.join("checkpoint")),
        _ => command.arg("--criu").arg(stand_in).arg(directory.join("saved")),
    };
    command.env("PAGES", "1").env("TREE", "4194303").env("RESTARTED", directory.join("restarted"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts a process that has made its threads, and returns it with its state.
fn started() -> (Subject, String) {
    let mut subject = Subject::start(&SUBJECT);
    subject.goes_on();
    let state = state_of(&subject.pid());
    (subject, state)
}

/// Makes the checkpoint that is restarted.
fn save_for_restart(subject: &Subject, directory: &Path) {
    let trace = run(&mut command(&["checkpoint", "--leave-running"], subject, directory), 0, Fault::None);
    assert_eq!(trace.code, Some(0));
    fs::rename(directory.join("checkpoint"), directory.join("saved")).unwrap();
}

/// Blocks until no snapshot is left. The kernel does not wait for the end of those that it kills with their tracer.
fn await_end_of_snapshots(subject: &Subject, told: &str) {
    let begin = Instant::now();
    loop {
        let left = left_over(&subject.pid());
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < HUNG, "{told}: {left:?} are left");
        std::thread::yield_now();
    }
}

#[test]
fn at_any_moment_the_process_stays_as_it_was() {
    let rounds = std::env::var("PAGEHAUL_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut subject = Subject::start(&SUBJECT);
    save_for_restart(&subject, directory.path());
    let calls = COMMANDS.map(|words| {
        let trace = run(&mut command(words, &subject, directory.path()), 0, Fault::None);
        assert_eq!(trace.code, Some(0), "{words:?}");
        if words == ["checkpoint"] {
            subject = Subject::start(&SUBJECT);
        }
        trace.calls
    });
    subject.goes_on();
    let mut before = state_of(&subject.pid());
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for round in 0..rounds {
        let (words, calls) = (COMMANDS[round % COMMANDS.len()], calls[round % COMMANDS.len()]);
        let errors = [libc::EIO, libc::ENOMEM, libc::EAGAIN, libc::ENOSPC, libc::EPERM];
        let fault = match round / COMMANDS.len() % 4 {
            0 => Fault::Signal(libc::SIGKILL),
            1 => Fault::Signal([libc::SIGTERM, libc::SIGINT, libc::SIGHUP][random.below(3)]),
            _ => Fault::Error(errors[random.below(errors.len())]),
        };
        let moment = random.below(calls) + 1;
        let path = directory.path().join("checkpoint");
        let _ = fs::remove_file(&path);
        let trace = run(&mut command(words, &subject, directory.path()), moment, fault);
        let told = format!("round {round}: {words:?}, {fault:?} at call {moment} of {calls}, {trace:?}");
        let what = match fault {
            Fault::Error(_) => "failed system calls".into(),
            Fault::Signal(libc::SIGKILL) => "SIGKILL".into(),
            _ => "SIGTERM, SIGINT, SIGHUP".to_owned(),
        };
        // The number of calls varies: a late moment may never come.
        *counts.entry((words.join(" "), what)).or_default() += usize::from(trace.at.is_some());
        if words == ["checkpoint"] && path.exists() {
            // It is on the disk: they are ended, unless the command was killed or failed before it could end them.
            if subject.has_ended() {
                (subject, before) = started();
                continue;
            }
            assert_ne!(trace.code, Some(0), "{told}");
        }
        assert!(!subject.has_ended(), "{told}");
        assert_eq!(state_of(&subject.pid()), before, "{told}");
        await_end_of_snapshots(&subject, &told);
        subject.goes_on();
    }
    let mut out = std::io::stderr();
    for ((command, what), count) in counts {
        writeln!(out, "{command}: the process survived {what} at {count} moments").unwrap();
    }
}

/// What the kernel can answer to calls on a process that lives, or that a security module or a killed tracee makes it answer.
const CALLS: [(&str, i64, &[i32]); 8] = [
    ("ptrace", libc::SYS_ptrace, &[libc::ESRCH, libc::EPERM, libc::EIO]),
    ("wait4", libc::SYS_wait4, &[libc::EINTR, libc::ECHILD]),
    ("waitid", libc::SYS_waitid, &[libc::EINTR, libc::ECHILD]),
    ("kill", libc::SYS_kill, &[libc::ESRCH, libc::EPERM]),
    ("pidfd_send_signal", libc::SYS_pidfd_send_signal, &[libc::ESRCH, libc::EPERM]),
    ("close", libc::SYS_close, &[libc::EINTR, libc::EIO]),
    ("futex", libc::SYS_futex, &[libc::EINTR, libc::EAGAIN]),
    ("clock_nanosleep", libc::SYS_clock_nanosleep, &[libc::EINTR]),
];

/// Each call that holds, waits for, or ends a process fails once, at each place where a command makes it.
#[test]
fn a_failed_call_leaves_the_process_as_it_was() {
    // All of them with PAGEHAUL_ROUNDS; otherwise so many per command and call, spread over its places.
    let most = if std::env::var_os("PAGEHAUL_ROUNDS").is_some() { usize::MAX } else { 3 };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&SUBJECT);
    save_for_restart(&subject, directory.path());
    let mut before = state_of(&subject.pid());
    let path = directory.path().join("checkpoint");
    for words in COMMANDS {
        for (name, number, errors) in CALLS {
            // Counts them: no moment is so late.
            let count = |subject: &Subject| {
                let mut command = command(words, subject, directory.path());
                run(&mut command, usize::MAX, Fault::Call(number, 0)).calls
            };
            let calls = count(&subject);
            if subject.has_ended() {
                (subject, before) = started();
            }
            let step = (calls * errors.len()).div_ceil(most).max(1);
            let mut moments = 0;
            for place in (0..calls * errors.len()).step_by(step) {
                let (moment, error) = (place / errors.len() + 1, errors[place % errors.len()]);
                let _ = fs::remove_file(&path);
                let mut command = command(words, &subject, directory.path());
                let trace = run(&mut command, moment, Fault::Call(number, error));
                let told = format!("{words:?}: {name} {moment} of {calls} fails with {error}, {trace:?}");
                moments += usize::from(trace.at.is_some());
                assert!(!trace.hung, "{told}");
                if words == ["checkpoint"] && path.exists() {
                    assert!(subject.has_ended(), "{told}");
                    (subject, before) = started();
                    continue;
                }
                assert!(!subject.has_ended(), "{told}");
                // A thread that its tracer's end frees restores itself, then answers.
                subject.goes_on();
                assert_eq!(state_of(&subject.pid()), before, "{told}");
                await_end_of_snapshots(&subject, &told);
            }
            if moments > 0 {
                let command = words.join(" ");
                writeln!(std::io::stderr(), "{command}: the process survived {moments} failures of {name}")
                    .unwrap();
            }
        }
    }
}

/// `checkpoint` is killed when its file has its name, before it ends the process: both are whole.
#[test]
fn a_checkpoint_that_is_killed_before_it_ends_the_process_leaves_both() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&SUBJECT);
    let before = state_of(&subject.pid());
    let fault = Fault::KillAt(libc::SYS_pidfd_send_signal);
    let trace = run(&mut command(&["checkpoint"], &subject, directory.path()), 1, fault);
    assert_eq!((trace.at, trace.code), (Some(libc::SYS_pidfd_send_signal), None), "{trace:?}");
    assert!(!subject.has_ended());
    assert_eq!(state_of(&subject.pid()), before);
    subject.goes_on();
    fs::rename(directory.path().join("checkpoint"), directory.path().join("saved")).unwrap();
    let trace = run(&mut command(&["restart"], &subject, directory.path()), 0, Fault::None);
    assert_eq!(trace.code, Some(0));
    assert_eq!(fs::read_to_string(directory.path().join("restarted")).unwrap(), "whole");
}

/// `checkpoint` without its script: CRIU takes one that was killed for one that succeeded, and leaves the processes stopped.
#[test]
fn a_killed_script_of_a_checkpoint_leaves_no_process_stopped() {
    let step = if std::env::var_os("PAGEHAUL_ROUNDS").is_some() { 1 } else { 8 };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&SUBJECT);
    let mut before = state_of(&subject.pid());
    // Counts them, and saves the process.
    let run = |subject: &Subject, moment| {
        run(&mut command(&["checkpoint"], subject, directory.path()), moment, Fault::KillHelper)
    };
    let calls = run(&subject, usize::MAX).calls;
    assert!(calls > 10, "{calls}");
    let (mut moments, mut saved) = (0, true);
    for moment in (1..=calls).step_by(step) {
        if saved {
            (subject, before) = started();
        }
        let _ = fs::remove_file(&path);
        let trace = run(&subject, moment);
        let told = format!("call {moment} of {calls}, {trace:?}");
        moments += usize::from(trace.at.is_some());
        assert!(!trace.hung, "{told}");
        saved = path.exists();
        assert_eq!(subject.has_ended(), saved, "{told}");
        if !saved {
            assert_eq!(state_of(&subject.pid()), before, "{told}");
            subject.goes_on();
        }
    }
    writeln!(std::io::stderr(), "the process survived SIGKILL of helpers of checkpoint at {moments} moments")
        .unwrap();
}

/// A signal ends `checkpoint` while CRIU runs the action script. CRIU waits for the script, and the script for `checkpoint`.
#[test]
fn a_signal_while_the_script_of_a_checkpoint_runs_does_not_wait_for_criu() {
    let step = if std::env::var_os("PAGEHAUL_ROUNDS").is_some() { 1 } else { 8 };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let said = directory.path().join("said");
    for words in [&["checkpoint"] as &[&str], &["checkpoint", "--leave-running"]] {
        let run = |subject: &Subject, moment| {
            let mut command = command(words, subject, directory.path());
            command.stderr(fs::File::create(&said).unwrap());
            run(&mut command, moment, Fault::SignalAtHelper(libc::SIGTERM))
        };
        // Counts them: no moment is so late.
        let calls = run(&Subject::start(&SUBJECT), usize::MAX).calls;
        assert!(calls > 10, "{calls}");
        let (mut subject, mut before) = started();
        for moment in (1..=calls).step_by(step) {
            let trace = run(&subject, moment);
            let said = fs::read_to_string(&said).unwrap();
            let told = format!("{words:?}: call {moment} of {calls}, {trace:?}: {said}");
            assert!(!trace.hung && !said.contains("not end"), "{told}");
            if subject.has_ended() {
                // The checkpoint was on the disk before the signal was seen.
                assert_eq!((words.len(), trace.code), (1, Some(0)), "{told}");
                (subject, before) = started();
            }
            assert_eq!(state_of(&subject.pid()), before, "{told}");
            subject.goes_on();
        }
    }
}

/// The helper waits for one byte, and the command for its answer.
#[test]
fn a_helper_that_cannot_be_told_to_begin_is_not_waited_for() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&SUBJECT);
    let before = state_of(&subject.pid());
    let mut command = command(&["core", "--snapshot"], &subject, directory.path());
    let trace = run(&mut command, 0, Fault::FailWrite(1));
    assert_eq!((trace.at, trace.code), (Some(libc::SYS_write), Some(1)), "{trace:?}");
    assert!(!directory.path().join("core.zst").exists());
    assert_eq!(state_of(&subject.pid()), before);
    await_end_of_snapshots(&subject, "not told");
    subject.goes_on();
}

/// SIGKILL cannot be blocked. The process restores itself.
#[test]
fn a_killed_helper_leaves_the_process_as_it_was() {
    let step = if std::env::var_os("PAGEHAUL_ROUNDS").is_some() { 1 } else { 3 };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&SUBJECT);
    let before = state_of(&subject.pid());
    let words = ["core", "--snapshot"];
    // Counts them: no moment is so late.
    let calls = run(&mut command(&words, &subject, directory.path()), usize::MAX, Fault::KillHelper).calls;
    assert!(calls > 100, "{calls}");
    let mut moments = 0;
    for moment in (1..=calls).step_by(step) {
        let trace = run(&mut command(&words, &subject, directory.path()), moment, Fault::KillHelper);
        let told = format!("call {moment} of {calls}, {trace:?}");
        moments += usize::from(trace.at.is_some());
        // A process that answers has restored itself: its first thread answers, and makes the snapshot.
        subject.goes_on();
        assert_eq!(state_of(&subject.pid()), before, "{told}");
        await_end_of_snapshots(&subject, &told);
    }
    let path = directory.path().join("core.zst");
    subject.core(&["--snapshot", "--force"], &path);
    subject.goes_on();
    assert_eq!(state_of(&subject.pid()), before);
    writeln!(std::io::stderr(), "the process survived SIGKILL of the helper at {moments} moments").unwrap();
}

/// The same for a process that is at an arbitrary instruction of its own, with all registers in use.
#[test]
fn a_killed_helper_leaves_a_computing_process_as_it_was() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempdir().unwrap();
    let script = "trap 'done=1' TERM; i=0; echo; while [ -z \"$done\" ]; do i=$((i+1)); done; echo ended";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut [0]).unwrap();
    let pid = child.id().to_string();
    let core = || {
        let mut command = Command::new(BINARY);
        command.args(["core", "--snapshot", "--force", "--threads", "2", &pid]);
        command.arg(directory.path().join("core.zst")).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let calls = run(&mut core(), usize::MAX, Fault::KillHelper).calls;
    for moment in (1..=calls).step_by(7) {
        run(&mut core(), moment, Fault::KillHelper);
    }
    assert!(!state_of(&pid).contains("stopped: true"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert_eq!(said, "ended\n");
    assert!(child.wait().unwrap().success());
}
