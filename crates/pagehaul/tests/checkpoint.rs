//! `pagehaul checkpoint` and `restart` with a stand-in for CRIU: what is kept, what is refused, and that a process goes on
//! when it could not be saved.
#![cfg(feature = "process")]

mod common {
    pub mod criu;
    pub mod limits;
    pub mod subject;
}

use std::fs;
use std::io::{PipeWriter, Read};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::criu::{can_track_writes, said, stand_in, with_criu};
use common::limits::no_threads;
use common::subject::{BINARY, Subject, tool};
use tempfile::tempdir;

/// CRIU's exit status alone is no proof that something runs.
#[test]
fn a_restart_that_started_nothing_is_a_failure() {
    let directory = tempdir().unwrap();
    let path = saved(directory.path(), FREE);
    let restart = |pretend: &str| {
        let mut command = with_criu("restart");
        command.arg("--json").arg(&path).env("TREE", FREE).env("RESTARTED", directory.path().join("marker"));
        command.env("PRETEND", pretend).output().unwrap()
    };
    let nothing = "CRIU ended with success but started no process";
    let dead = format!("process {FREE}, which it names as restarted, is not alive");
    let (free, me) = (format!("pid {FREE}"), std::process::id());
    for (pretend, part) in [
        ("idle", nothing),
        ("no-pid", nothing),
        ("pid 0", nothing),
        ("pid -1", nothing),
        ("pid of it", nothing),
        ("pid ", nothing),
        (&free, &dead),
    ] {
        let output = restart(pretend);
        assert_eq!(output.status.code(), Some(1), "{pretend}: {}", said(&output));
        assert!(said(&output).contains(part), "{pretend}: {}", said(&output));
        assert_eq!(output.stdout, b"", "{pretend}: there is a report");
    }
    let output = restart(&format!("pid {me}"));
    assert!(output.status.success(), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["pid"], me);
}

/// A number that no process has, and none will soon.
const FREE: &str = "4194303";

/// A process that sleeps, saved (so the tool believes) and ended.
fn saved(directory: &Path, tree: &str) -> PathBuf {
    let path = directory.join("checkpoint");
    let mut child = sleeper();
    let output = with_criu("checkpoint")
        .args(["--force", &child.id().to_string()])
        .arg(&path)
        .env("TREE", tree)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!child.wait().unwrap().success(), "it is ended once it is saved");
    path
}

fn sleeper() -> Child {
    Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()
}

fn restart(path: &Path, marker: &Path, tree: &str) -> Output {
    let _ = fs::remove_file(marker);
    with_criu("restart").arg(path).env("TREE", tree).env("RESTARTED", marker).output().unwrap()
}

#[test]
fn images_come_back_as_they_were() {
    let directory = tempdir().unwrap();
    let (path, marker) = (saved(directory.path(), FREE), directory.path().join("marker"));
    let output = restart(&path, &marker, FREE);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains(" runs again"));
    assert_eq!(fs::read_to_string(&marker).unwrap(), "whole");
    let output = tool(&["info"]).arg(&path).output().unwrap();
    for part in ["checkpoint of processes", "complete      yes", "(sleep)", "images        3 "] {
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
    }
    let output = tool(&["verify"]).arg(&path).output().unwrap();
    assert!(output.status.success() && said(&output).ends_with("\nintact\n"), "{}", said(&output));
    // A directory stands for the container in it.
    fs::create_dir(directory.path().join("directory")).unwrap();
    fs::rename(&path, directory.path().join("directory/checkpoint.pagehaul")).unwrap();
    assert!(restart(&directory.path().join("directory"), &marker, FREE).status.success());
    assert_eq!(fs::read_to_string(&marker).unwrap(), "whole");
}

#[test]
fn damaged_checkpoints_are_refused_before_anything_is_restarted() {
    let directory = tempdir().unwrap();
    let (path, marker) = (saved(directory.path(), FREE), directory.path().join("marker"));
    let good = fs::read(&path).unwrap();
    let refused = |bytes: &[u8], at: usize| {
        fs::write(&path, bytes).unwrap();
        let output = tool(&["verify"]).arg(&path).output().unwrap();
        // One bit says that its writer did not finish; the others are damage, and placed.
        let told = |text: &str| text.contains("byte") || text.contains("incomplete");
        assert_eq!(output.status.code(), Some(3), "byte {at}: {}", said(&output));
        assert!(
            told(&said(&output)) && said(&output).contains("DAMAGED OR INCOMPLETE"),
            "byte {at}: {}",
            said(&output)
        );
        let output = restart(&path, &marker, FREE);
        assert_eq!(output.status.code(), Some(1));
        assert!(told(&said(&output)), "byte {at}: {}", said(&output));
        assert!(!marker.exists(), "byte {at}: CRIU was given images of it");
    };
    let ends = (0..24).step_by(5).chain(good.len() - 40..good.len());
    for (turn, at) in ends.chain((24..good.len()).step_by(good.len() / 40)).enumerate() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (turn % 8);
        refused(&bad, at);
    }
    for length in [good.len() - 1, good.len() / 2, 100, 64, 24] {
        refused(&good[..length], length);
    }
}

#[test]
fn pids_that_are_taken_are_named() {
    let directory = tempdir().unwrap();
    let mut child = sleeper();
    let pid = child.id().to_string();
    let tree = format!("{FREE},{pid}");
    let (path, marker) = (saved(directory.path(), &tree), directory.path().join("marker"));
    let output = restart(&path, &marker, &tree);
    assert_eq!(output.status.code(), Some(1));
    let expected =
        format!("PID {pid}, which the checkpoint needs, is in use as process {pid} (sleep); end that first");
    assert!(said(&output).contains(&expected), "{}", said(&output));
    assert!(!marker.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    let output = restart(&path, &marker, &tree);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn criu_that_is_missing_old_or_fails_gets_one_sentence() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["1", "1"]);
    let mut fails = |pretend: &str, program: &Path, part: &str| {
        let output = tool(&["checkpoint", "-q", "--criu"])
            .arg(program)
            .arg(subject.pid())
            .arg(&path)
            .env("PRETEND", pretend)
            .output()
            .unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(part), "no {part:?} in {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
        assert!(!path.exists());
        subject.goes_on();
    };
    fails(
        "",
        Path::new("/nonexistent/criu"),
        "/nonexistent/criu is not there: checkpoints need CRIU 4 or newer",
    );
    fails("version 3.17.1", &stand_in(), "is CRIU 3.17.1, which is too old");
    fails("version ", &stand_in(), "--version does not print CRIU's version, but \"Version:\"; is it CRIU?");
    fails("", Path::new("false"), "false --version does not print CRIU's version, but ");
    fails("fail", &stand_in(), "CRIU 4.1.1 cannot save it: (x.c:7): no such luck");
    let part = "it does not say why (signal: 9 (SIGKILL)); its last words are: (00.1) Seized task 7";
    fails("silent", &stand_in(), part);
    // A restart says the same.
    let file = saved(directory.path(), FREE);
    let output = tool(&["restart", "--criu", "/nonexistent/criu"]).arg(&file).output().unwrap();
    assert!(said(&output).contains("is not there: checkpoints need CRIU"), "{}", said(&output));
    // But of a file that is none, whether there is a CRIU or not.
    let output = tool(&["restart", "--criu", "/nonexistent/criu", "/nonexistent/file"]).output().unwrap();
    assert!(said(&output).contains("/nonexistent/file"), "{}", said(&output));
    let output = with_criu("restart").arg(&file).env("PRETEND", "fail").output().unwrap();
    assert!(said(&output).contains("cannot restart it: (x.c:7): no such luck"), "{}", said(&output));
}

#[test]
fn processes_that_cannot_be_saved_are_refused() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let fails = |pid: &str, part: &str| {
        let output = with_criu("checkpoint").arg(pid).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
        assert!(!path.exists());
    };
    fails("999999999", "there is no process");
    let mut zombie = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
    zombie.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    let stat = format!("/proc/{}/stat", zombie.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z") {
        std::thread::yield_now();
    }
    fails(&zombie.id().to_string(), "is a zombie");
    zombie.wait().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    subject.while_traced(|pid| fails(pid, "is traced by process"));
    subject.goes_on();
    fs::write(&path, "precious").unwrap();
    let output = with_criu("checkpoint").arg(subject.pid()).arg(&path).output().unwrap();
    assert!(said(&output).contains("--force"), "{}", said(&output));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_proc_of_another_pid_namespace_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can make PID namespaces");
        return;
    }
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["1", "1"]);
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(
            said(&output).contains("/proc is of another PID namespace; mount /proc here"),
            "{}",
            said(&output)
        );
    };
    let criu = stand_in();
    let mut command = subject.tool_among_other_processes(&["checkpoint", "--criu"]);
    refused(command.arg(&criu).arg(subject.pid()).arg(&path));
    assert!(!path.exists());
    subject.goes_on();
    let (path, marker) = (saved(directory.path(), FREE), directory.path().join("marker"));
    let mut command = subject.tool_among_other_processes(&["restart", "--criu"]);
    refused(command.arg(&criu).arg(&path).env("TREE", FREE).env("RESTARTED", &marker));
    assert!(!marker.exists(), "CRIU was started");
}

#[test]
fn what_criu_lacks_is_found_before_anything_is_stopped() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let save = |pid: u32, pretend: &str, arguments: &[&str], programs: Option<&Path>| {
        let mut command = with_criu("checkpoint");
        command.args(["--leave-running", "--force", &pid.to_string()]).arg(&path).env("PRETEND", pretend);
        if let Some(programs) = programs {
            command.env("PATH", programs);
        }
        let output = command.arg("--").args(arguments).output().unwrap();
        (output.status.success(), said(&output))
    };
    let nothing = directory.path().join("no programs");
    fs::create_dir(&nothing).unwrap();
    let connected = || {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let connection = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::from(OwnedFd::from(connection))).stdout(Stdio::null());
        let accepted = listener.accept().unwrap();
        (command.spawn().unwrap(), accepted)
    };
    // Inet sockets on Linux 6.16 and newer, with CRIU before 4.2.
    let (mut process, _connection) = connected();
    let lacks = UdpSocket::bind(("127.0.0.1", 0))
        .is_ok_and(|socket| rustix::net::sockopt::socket_passcred(&socket).is_err());
    let (is_saved, text) = save(process.id(), "", &[], None);
    assert_eq!(is_saved, !lacks, "{text}");
    let part =
        format!("process {} has inet sockets, which CRIU 4.1.1 cannot save on Linux 6.16", process.id());
    assert!(!lacks || text.contains(&part), "{text}");
    for pretend in ["version 4.2", "corrected"] {
        let (is_saved, text) = save(process.id(), pretend, &[], None);
        assert!(is_saved, "{text}");
    }
    // Without iptables nftables are used, if CRIU can; connections need neither if they are not kept.
    let (is_saved, text) = save(process.id(), "version 4.2", &["--tcp-established"], Some(&nothing));
    let part = format!(
        "CRIU locked the network by nftables: process {} has TCP connections, and iptables is not on PATH",
        process.id()
    );
    assert!(is_saved && text.contains(&part), "{text}");
    let iptables = ["--tcp-established", "--network-lock=iptables"];
    let (is_saved, text) = save(process.id(), "version 4.2", &iptables, Some(&nothing));
    let part = "has TCP connections, for which CRIU needs iptables on PATH; install it";
    assert!(!is_saved && text.contains(part), "{text}");
    process.kill().unwrap();
    process.wait().unwrap();
    // Nothing replaces `ip`, which is missing as well as iptables.
    let mut process = Command::new("unshare")
        .args(["--net", "--fork", "sh", "-c", "echo; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It is in its namespace once it speaks.
    let mut byte = [0];
    process.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", process.id());
    let child: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    let (is_saved, text) = save(child, "version 4.2", &[], Some(&nothing));
    let part = "has a network namespace of its own, for which CRIU needs ip on PATH; install it";
    assert!(!is_saved && text.contains(part), "{text}");
    assert!(Command::new("kill").arg(child.to_string()).status().unwrap().success());
    process.wait().unwrap();
    // System V shared memory.
    let mut subject = Subject::start(&["1", "1", "segment"]);
    let (is_saved, text) = save(subject.pid().parse().unwrap(), "", &[], None);
    let part =
        "has System V shared memory, which CRIU saves only of processes with an IPC namespace of their own";
    assert!(!is_saved && text.contains(part), "{text}");
    subject.goes_on();
    // What a check complains of need not matter.
    let mut process = sleeper();
    let (is_saved, text) = save(process.id(), "lacks", &[], None);
    assert!(is_saved && text.contains("note: `criu check` complains: (x.c:1): no such diagnosis"), "{text}");
    let (is_saved, text) = save(process.id(), "", &[], None);
    assert!(is_saved && !text.contains("criu check"), "{text}");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn arguments_that_would_lose_pages_are_refused() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["1", "1"]);
    for (argument, pretend, part) in [
        ("--track-mem", "", "does not track which pages change (CONFIG_MEM_SOFT_DIRTY is not set)"),
        ("--prev-images-dir=x", "tracks", "CRIU 4.1.1's image streamer takes no parents of images"),
        ("--page-server", "", "would keep images from pagehaul"),
    ] {
        let output = with_criu("checkpoint")
            .arg(subject.pid())
            .arg(&path)
            .args(["--", argument])
            .env("PRETEND", pretend)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
        assert!(!path.exists());
        subject.goes_on();
    }
}

#[test]
fn options_that_pagehaul_sets_are_refused_by_name() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["1", "1"]);
    let refused = |output: Output, name: &str| {
        assert_eq!(output.status.code(), Some(2), "{name}: {}", said(&output));
        let part = format!("pagehaul sets CRIU's option {name} itself; leave it out");
        assert!(said(&output).contains(&part), "no {part:?} in {}", said(&output));
    };
    for (arguments, name) in [
        (&["--tree", "1"][..], "--tree"),
        (&["--shell-job", "-t1"], "-t"),
        (&["--images-dir=x"], "--images-dir"),
        (&["-D", "x"], "-D"),
        (&["--pid", "1"], "--pid"),
        (&["--action-script", "true"], "--action-script"),
        (&["-R"], "-R"),
        (&["--no-stream"], "--no-stream"),
    ] {
        let mut command = with_criu("checkpoint");
        command.arg(subject.pid()).arg(&path).arg("--").args(arguments);
        refused(command.output().unwrap(), name);
        assert!(!path.exists());
        subject.goes_on();
    }
    let (path, marker) = (saved(directory.path(), FREE), directory.path().join("marker"));
    for (argument, name) in
        [("--tree=1", "--tree"), ("-D", "-D"), ("--pidfile=x", "--pidfile"), ("-d", "-d"), ("-v0", "-v")]
    {
        let mut command = with_criu("restart");
        command.arg(&path).args(["--", argument]).env("TREE", FREE).env("RESTARTED", &marker);
        refused(command.output().unwrap(), name);
        assert!(!marker.exists(), "{argument}: CRIU was started");
    }
}

/// Bytes that a process has read ("rchar") or written ("wchar").
fn counted(pid: u32, what: &str) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let count = counts.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(": "));
    count.map_or(0, |count| count.parse().unwrap())
}

#[test]
fn a_signal_ends_it_and_the_process_goes_on() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["1", "1"]);
    let mut child = with_criu("checkpoint")
        .args(["-q", "--max-memory", "8M", &subject.pid()])
        .arg(&path)
        .env("PRETEND", "endless")
        .env("PAGES", "1")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Pages are coming: it has written a MiB of them, to a file that has no name yet.
    while counted(child.id(), "wchar") < 1 << 20 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was told to");
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("stopped before"), "{}", said(&output));
    assert!(!path.exists());
    subject.goes_on();
}

/// Runs a command until CRIU hangs, and sends it one SIGTERM. Returns what it said, and the PID that hangs.
fn terminated(command: &mut Command, pretend: &str) -> (String, i32) {
    let meet = tempdir().unwrap();
    let mut child =
        command.env("PRETEND", pretend).env("MEET", meet.path()).stderr(Stdio::piped()).spawn().unwrap();
    let hangs = meet.path().join("hangs");
    while !hangs.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before CRIU hung");
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    (said(&output), fs::read_to_string(hangs).unwrap().parse().unwrap())
}

/// Whether a process has ended, or does soon: SIGKILL takes effect a moment after it was sent.
fn is_gone(pid: i32) -> bool {
    // A zombie's parent has yet to wait for it.
    let has_ended =
        || fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "));
    let last = Instant::now() + Duration::from_secs(10);
    while !has_ended() {
        if Instant::now() > last {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn one_sigterm_ends_a_checkpoint_whose_criu_hangs() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    for (pretend, expected) in
        [("hang", "did not end and was killed; process"), ("hang-check", "stopped before")]
    {
        for leave in [&["--leave-running"][..], &[]] {
            // The stand-in freezes by SIGSTOP, which only a checkpoint that ends the process undoes.
            if pretend == "hang" && !leave.is_empty() {
                continue;
            }
            let mut subject = Subject::start(&["1", "1"]);
            let mut command = with_criu("checkpoint");
            let (said, pid) =
                terminated(command.arg("-q").args(leave).arg(subject.pid()).arg(&path), pretend);
            assert!(said.contains(expected), "{pretend}: {said}");
            assert!(is_gone(pid) && !path.exists(), "{pretend}");
            subject.goes_on();
        }
    }
}

#[test]
fn one_sigterm_ends_a_restart_whose_criu_hangs() {
    let directory = tempdir().unwrap();
    let path = saved(directory.path(), FREE);
    let (said, pid) = terminated(with_criu("restart").arg(&path), "hang");
    assert!(said.contains("was killed with what it had restarted") || said.contains("stopped"), "{said}");
    assert!(is_gone(pid), "what was restarted runs");
}

#[test]
fn what_a_criu_that_was_killed_has_half_restored_is_killed() {
    let directory = tempdir().unwrap();
    let (path, made) = (saved(directory.path(), FREE), directory.path().join("made"));
    let mut command = with_criu("restart");
    let output = command.arg(&path).env("PRETEND", "killed").env("RESTARTED", &made).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("SIGKILL"), "{}", said(&output));
    assert!(is_gone(fs::read_to_string(made).unwrap().parse().unwrap()), "it waits for its CRIU");
}

/// A shell that starts a process every few milliseconds, all in a process group of their own, which goes away with this.
struct Forking(Child);

impl Forking {
    fn start() -> Self {
        // The kernel sends SIGHUP to stopped process groups whose last parent ends.
        let script = "trap '' HUP; while :; do sleep 20 & sleep 0.003; done";
        // Not a shell that uses vfork, whose parent cannot be stopped before the child's exec.
        let mut command = Command::new("bash");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        // None may be left.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

/// The state of a process, and its process group.
fn state_and_group(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
    Some((fields[0].chars().next()?, fields[2].parse().ok()?))
}

/// The states of the processes in a process group.
fn states(group: u32) -> Vec<char> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(state_and_group).filter(|found| found.1 == group).map(|found| found.0).collect()
}

#[test]
fn processes_made_while_the_tree_is_frozen_are_no_exception() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut root = Forking::start();
    let save = |root: &Forking, pretend: &str| {
        let mut command = with_criu("checkpoint");
        command.args(["--force", &root.0.id().to_string()]).arg(&path);
        command.env("GROWTH", "3").env("PRETEND", pretend).output().unwrap()
    };
    // They go on if the script by which CRIU holds them is killed before the file is written.
    for pretend in ["script-killed", ""] {
        let output = save(&root, pretend);
        let states = states(root.0.id());
        let count = |wanted: &[char]| states.iter().filter(|state| wanted.contains(state)).count();
        assert_eq!(count(&['T']), 0, "{pretend}: stopped, of {}", states.len());
        if output.status.success() {
            // X: its parent is waiting for it just now.
            assert_eq!(count(&['Z', 'X']), states.len(), "{pretend}: some are alive");
            root = Forking::start();
        } else {
            assert_eq!(pretend, "script-killed", "{}", said(&output));
        }
    }
}

/// Has the command, and what it starts, inherit the end of a pipe.
fn inheriting(command: &mut Command, end: PipeWriter) -> &mut Command {
    let inherit = move || {
        // SAFETY: numbers only; the descriptor is the closure's.
        match unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, 0) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: it makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(inherit) }
}

#[test]
fn sigkill_at_any_moment_leaves_the_processes_running() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["1", "1"]);
    // From its start to where everything is written and waits for the disk.
    for moment in 0..40 {
        let mut command = with_criu("checkpoint");
        command.args(["-q", "--max-memory", "64M", &subject.pid()]).arg(&path).stderr(Stdio::null());
        let (mut all_ended, write) = std::io::pipe().unwrap();
        let mut child = inheriting(&mut command, write).spawn().unwrap();
        drop(command);
        let transferred = || counted(child.id(), "rchar") + counted(child.id(), "wchar");
        while transferred() < moment << 17
            && state_and_group(child.id()).is_some_and(|(state, _)| state != 'Z')
        {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // CRIU and its script too.
        all_ended.read_to_end(&mut Vec::new()).unwrap();
        if path.exists() {
            fs::remove_file(&path).unwrap();
            subject = Subject::start(&["1", "1"]);
        }
        assert!(!subject.is_stopped(), "moment {moment}");
        subject.goes_on();
    }
}

/// CRIU puts memory into pipes without a copy: what a process writes before a pipe is read is in the image.
#[test]
fn processes_do_not_go_on_before_their_images_are_read() {
    let directory = tempdir().unwrap();
    let (path, marker) = (directory.path().join("checkpoint"), directory.path().join("marker"));
    for leave in [&["--leave-running"][..], &[]] {
        let mut subject = Subject::start(&["1", "1"]);
        let mut command = with_criu("checkpoint");
        command
            .args(leave)
            .args(["--force", &subject.pid()])
            .arg(&path)
            .env("PRETEND", "gift")
            .env("TREE", FREE);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        if !leave.is_empty() {
            subject.goes_on();
        }
        let mut command = with_criu("restart");
        command.arg(&path).env("TREE", FREE).env("RESTARTED", &marker).env("PRETEND", "gift");
        let output = command.output().unwrap();
        assert_eq!(fs::read_to_string(&marker).unwrap(), "whole", "{leave:?}: {}", said(&output));
    }
    // Without the script they go on too early.
    let mut subject = Subject::start(&["1", "1"]);
    let mut command = with_criu("checkpoint");
    command.args(["--leave-running", &subject.pid()]).arg(directory.path().join("none"));
    let output = command.env("PRETEND", "no-script").output().unwrap();
    assert!(said(&output).contains("went on before"), "{}", said(&output));
    assert!(!output.status.success() && !directory.path().join("none").exists(), "{}", said(&output));
    subject.goes_on();
}

#[test]
fn signals_do_not_end_criu_while_it_saves() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let output = with_criu("checkpoint")
        .args(["--leave-running", &subject.pid()])
        .arg(directory.path().join("checkpoint"))
        .env("PRETEND", "signalled")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    subject.goes_on();
}

#[test]
fn without_threads_nothing_is_saved_or_restarted_and_the_process_goes_on() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let path = directory.path().join("other");
    let mut command = with_criu("checkpoint");
    let output = no_threads(command.arg(subject.pid()).arg(&path)).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("cannot start a thread"), "{}", said(&output));
    assert!(!path.exists());
    subject.goes_on();
    let (path, marker) = (saved(directory.path(), FREE), directory.path().join("marker"));
    let output = no_threads(&mut tool(&["verify"])).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let mut command = with_criu("restart");
    let output = no_threads(command.arg(&path).env("TREE", FREE).env("RESTARTED", &marker)).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("Resource temporarily unavailable"), "{}", said(&output));
}

#[test]
fn a_full_disk_leaves_no_file_and_the_process_running() {
    let directory = tempdir().unwrap();
    fs::create_dir(directory.path().join("disk")).unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    // A disk of 2 MiB that only the command sees.
    let script = format!(
        "mount -t tmpfs -o size=2m none disk && {BINARY} checkpoint -q --criu {} {} disk/checkpoint; code=$?; \
         ls disk; exit $code",
        stand_in().display(),
        subject.pid()
    );
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .current_dir(directory.path())
        .env("PAGES", "8")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
    assert_eq!(output.stdout, b"", "a file is left");
    subject.goes_on();
}

#[test]
fn a_failed_checkpoint_destroys_nothing() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let mut fails = |path: &Path, part: &str| {
        let output = with_criu("checkpoint")
            .args(["--force", &subject.pid()])
            .arg(path)
            .env("PRETEND", "fail")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
        subject.goes_on();
    };
    // The checkpoint that was to be replaced.
    let path = saved(directory.path(), FREE);
    let good = fs::read(&path).unwrap();
    fails(&path, "no such luck");
    assert!(fs::read(&path).unwrap() == good, "the previous checkpoint is not what it was");
    // A pipe, and a device, which only root can make.
    for kind in [&["p"][..], &["c", "1", "3"]] {
        let special = directory.path().join(kind[0]);
        if !Command::new("mknod").arg(&special).args(kind).output().unwrap().status.success() {
            assert!(kind.len() > 1 && !rustix::process::geteuid().is_root(), "mknod failed");
            continue;
        }
        fails(&special, "is a device or pipe; name a regular file");
        assert!(!fs::symlink_metadata(&special).unwrap().is_file());
        fs::remove_file(&special).unwrap();
    }
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [path], "a temporary file is left");
}

#[test]
fn sigkill_leaves_no_mark_and_no_descriptor() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let mut subject = Subject::start(&["24", "1"]);
    let descriptors =
        |subject: &Subject| fs::read_dir(format!("/proc/{}/fd", subject.pid())).unwrap().count();
    let before = descriptors(&subject);
    // Lets it go until it has made so many system calls that read.
    let run_to = |subject: &Subject, reads: u64| {
        let mut command = with_criu("checkpoint");
        command.args(["-q", "--leave-running", "--force", &subject.pid()]).arg(&path).stderr(Stdio::null());
        let (all_ended, write) = std::io::pipe().unwrap();
        let child = inheriting(&mut command, write).spawn().unwrap();
        drop(command);
        let mut made = 0;
        while made < reads && state_and_group(child.id()).is_some_and(|(state, _)| state != 'Z') {
            made = made.max(counted(child.id(), "syscr"));
        }
        (child, all_ended, made)
    };
    let (mut child, mut all_ended, most) = run_to(&subject, u64::MAX);
    child.wait().unwrap();
    all_ended.read_to_end(&mut Vec::new()).unwrap();
    let mut marked = 0;
    for moment in 0..30 {
        let (mut child, mut all_ended, _) = run_to(&subject, moment * most / 30);
        marked += u32::from(is_marked(&subject));
        child.kill().unwrap();
        child.wait().unwrap();
        all_ended.read_to_end(&mut Vec::new()).unwrap();
        assert!(!is_marked(&subject), "moment {moment}");
        assert_eq!(descriptors(&subject), before, "moment {moment}");
        subject.has_no_children();
        subject.goes_on();
    }
    assert!(marked > 0 || !can_track_writes(), "no moment had marks");
}

/// Whether writes to a process's memory are tracked.
fn is_marked(subject: &Subject) -> bool {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps", subject.pid())).unwrap();
    smaps.lines().any(|line| line.starts_with("VmFlags:") && line.contains(" uw"))
}

/// In a control group near its limit the kernel ends the process that is easiest to spare, or else the largest: the one that is saved.
#[test]
fn where_memory_runs_out_pagehaul_is_ended_before_the_process_that_it_saves() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let mut command = with_criu("checkpoint");
    command.args(["--leave-running", &subject.pid()]).arg(directory.path().join("checkpoint"));
    command.env("MEET", directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while !directory.path().join("announced").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    let read = |path: String| fs::read_to_string(path).unwrap_or_default();
    let adjustment = |pid: &str| read(format!("/proc/{pid}/oom_score_adj"));
    let pid = child.id().to_string();
    assert_eq!(adjustment(&pid), "1000\n");
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let children: Vec<String> = threads
        .flat_map(|thread| {
            let children = read(thread.path().join("children").display().to_string());
            children.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let is_criu = |pid: &&String| read(format!("/proc/{pid}/comm")).starts_with("criu_stand_in");
    let criu = children.iter().find(is_criu).expect("CRIU");
    // If pagehaul is ended, it lets the processes go on.
    assert_eq!(adjustment(criu), adjustment("self"));
    fs::write(directory.path().join("done"), "").unwrap();
    assert!(child.wait().unwrap().success());
    subject.goes_on();
}
