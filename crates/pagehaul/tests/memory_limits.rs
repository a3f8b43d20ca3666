//! Commands that get less memory than they need, by RLIMIT_AS or by the limit of a control group: each ends, without a panic.
//! With RUST_BACKTRACE=1, since Rust's handler of failed allocations may then wait for itself.
#![cfg(feature = "process")]

mod common {
    pub mod setup;
    pub mod subject;
}

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::setup::{BINARY, Setup};
use common::subject::Subject;

const MIB: u64 = 1 << 20;
/// How long a command may take before it counts as hung: it needs less than a second on a machine that is not busy.
const HUNG: Duration = Duration::from_secs(180);
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Files for all commands.
fn prepare() -> (Setup, Subject) {
    let setup = Setup::with_noise(8);
    setup.succeeds(&["capture", "-q", "-d", "0", "--checksums", "vmcore", "dump"]);
    for directory in ["man", "mnt", "root"] {
        fs::create_dir(setup.path(directory)).unwrap();
    }
    let subject = Subject::start(&["8", "2"]);
    subject.core(&[], &setup.path("process.core"));
    (setup, subject)
}

/// The commands, each of which writes to files of its own.
fn commands(pid: &str) -> Vec<Vec<String>> {
    let stand_in = std::env::current_exe().unwrap().parent().unwrap().join("../examples/criu_stand_in");
    let words = |line: &str| {
        let line = line.replace("PID", pid).replace("DATA", DATA).replace("CRIU", stand_in.to_str().unwrap());
        line.split(' ').map(str::to_owned).collect()
    };
    [
        "capture --force -d 0 -t 4 vmcore out",
        "capture --force -d 31 -c auto --checksums vmcore summed",
        "capture --force -d 0 -f elf vmcore out",
        "capture --force --triage vmcore out",
        "capture --force -t 2 vmcore out.1 out.2",
        "capture -f flattened vmcore -",
        "convert --force dump out",
        "makedumpfile -f -l -d 31 vmcore out",
        "info --classes --notes dump",
        "dmesg dump",
        "triage vmcore",
        "read --phys 0x1000 dump",
        "pages --json dump",
        "verify dump",
        "verify process.core",
        "core --force PID core",
        "core --force -c zstd PID core.zst",
        "core --force --live PID core",
        "core --force --snapshot PID core",
        "checkpoint --force --leave-running --criu CRIU PID checkpoint",
        "reclaim report DATA/reclaim/tests/data/guest-6.12.pht",
        "reclaim compare DATA/reclaim/tests/data/guest-6.12.pht DATA/reclaim/tests/data/guest-7.2.pht",
        "latency --from DATA/latency/tests/data/functions-6.12.pht *",
        "vmalloc --from DATA/vmalloc/tests/data/vmalloc-6.12.pht",
        "kdump plan --root root",
        "kdump check --root root",
        "kdump report --root root",
        "kdump apply --root root",
        "completions bash",
        "man man",
    ]
    .map(words)
    .to_vec()
}

/// Runs a command to its end. Fails the test if it does not come.
fn run(command: &mut Command) -> (ExitStatus, String) {
    command.env("RUST_BACKTRACE", "1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env("PAGES", "1").env("TREE", "4194303");
    let told = format!("{command:?}");
    let child = command.spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let (send, receive) = channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    let Ok(output) = receive.recv_timeout(HUNG) else {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        panic!("{told} hangs");
    };
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked at"), "{told}: {said}");
    (output.status, said)
}

fn in_address_space(setup: &Setup, arguments: &[String], bytes: u64) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).current_dir(setup.directory.path());
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let set = move || {
        // SAFETY: the pointer is to a limit that lives through the call.
        match unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: it makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(set) };
    command
}

#[test]
fn commands_end_in_a_small_address_space() {
    let (setup, mut subject) = prepare();
    // What the program takes to begin.
    let version = ["--version".to_owned()];
    let least = (8..).map(|steps| steps * 2 * MIB).find(|&bytes| {
        let mut command = in_address_space(&setup, &version, bytes);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    let mut failed = 0;
    for arguments in commands(&subject.pid()) {
        for more in [0, 4, 12, 32, 96] {
            let (status, said) = run(&mut in_address_space(&setup, &arguments, least.unwrap() + more * MIB));
            let told = format!("{arguments:?}, {more} MiB more: {status} {said}");
            // The C library aborts where a new thread has no memory for its destructors.
            assert!(status.signal().is_none() || said.contains("Fatal glibc error"), "{told}");
            failed += usize::from(!status.success());
            if status.success()
                && let Some(name @ ("out" | "summed")) = arguments.last().map(String::as_str)
            {
                let output = setup.run(&["verify", name]);
                let report = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{told}: {report}");
            }
            subject.goes_on();
        }
    }
    assert!(failed > 20, "{failed} runs had too little memory");
    subject.has_no_children();
}

/// A control group with a limit of memory, removed when dropped. Only root can have one.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn new(bytes: u64) -> Option<Self> {
        let name = format!("pagehaul-test-{}", std::process::id());
        let versions = [("", "memory.max"), ("memory", "memory.limit_in_bytes")];
        versions.iter().find_map(|(directory, limit)| {
            let path = Path::new("/sys/fs/cgroup").join(directory).join(&name);
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            // Not created: where version 1 is mounted, the directory above is a tmpfs.
            let mut limit = fs::OpenOptions::new().write(true).open(group.0.join(limit)).ok()?;
            limit.write_all(bytes.to_string().as_bytes()).ok()?;
            Some(group)
        })
    }

    fn command(&self, setup: &Setup, arguments: &[String]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(setup.directory.path());
        let processes = fs::OpenOptions::new().write(true).open(self.0.join("cgroup.procs")).unwrap();
        let enter = move || {
            // SAFETY: one byte is written from a constant.
            match unsafe { libc::write(processes.as_raw_fd(), c"0".as_ptr().cast(), 1) } {
                1 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: it makes one system call, which is allowed between fork and exec.
        unsafe { command.pre_exec(enter) };
        command
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Not before the last process has left it.
        while fs::remove_dir(&self.0).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
            thread::yield_now();
        }
    }
}

/// The kernel may kill the command, and any process that it started. A process it works on stays as it was.
#[test]
fn commands_end_in_a_small_control_group() {
    let (setup, mut subject) = prepare();
    let mut killed = 0;
    for megabytes in [2, 4, 8, 24] {
        let Some(group) = ControlGroup::new(megabytes * MIB) else {
            eprintln!("not run: no control group with a limit of memory can be made");
            return;
        };
        for arguments in commands(&subject.pid()) {
            let is_checkpoint = arguments[0] == "checkpoint";
            // A stand-in for CRIU that is killed leaves stopped what it has stopped.
            let other = is_checkpoint.then(|| Subject::start(&["1", "1"]));
            let arguments: Vec<String> = match &other {
                Some(other) => {
                    arguments.iter().map(|word| word.replace(&subject.pid(), &other.pid())).collect()
                }
                None => arguments,
            };
            let (status, said) = run(&mut group.command(&setup, &arguments));
            let told = format!("{arguments:?} in {megabytes} MiB: {status} {said}");
            assert!(matches!(status.signal(), None | Some(libc::SIGKILL)), "{told}");
            killed += usize::from(status.signal().is_some());
            if status.success()
                && let Some(name @ ("out" | "summed")) = arguments.last().map(String::as_str)
            {
                let output = setup.run(&["verify", name]);
                let report = String::from_utf8_lossy(&output.stdout);
                assert!(output.status.success(), "{told}: {report}");
            }
            subject.goes_on();
        }
    }
    subject.has_no_children();
    eprintln!("{killed} commands were killed");
}
