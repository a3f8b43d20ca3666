//! Commands that get less memory than they need, by RLIMIT_AS or by the limit of a control group: each ends, without a panic.
//! With RUST_BACKTRACE=1, since Rust's handler of failed allocations may then wait for itself.
#![cfg(feature = "process")]

mod common {
    pub mod setup;
    pub mod subject;
}

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use common::setup::{BINARY, Setup};
use common::subject::Subject;

const MIB: u64 = 1 << 20;
/// How long a command may take before it counts as hung: it needs less than a second on a machine that is not busy.
const HUNG: Duration = Duration::from_secs(180);
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// What the stand-in for CRIU is to do.
const STAND_IN: [(&str, &str); 3] = [("PAGES", "1"), ("TREE", "4194303"), ("RESTARTED", "restarted")];

fn stand_in() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("../examples/criu_stand_in")
}

/// Files for all commands.
fn prepare() -> (Setup, Subject) {
    let setup = Setup::with_noise(8);
    setup.succeeds(&["capture", "-q", "-d", "0", "--checksums", "vmcore", "dump"]);
    for directory in ["man", "mnt", "root"] {
        fs::create_dir(setup.path(directory)).unwrap();
    }
    let subject = Subject::start(&["8", "2"]);
    subject.core(&[], &setup.path("process.core"));
    let mut save = Command::new(BINARY);
    save.args(["checkpoint", "-q", "--leave-running", "--criu"])
        .arg(stand_in())
        .args([&subject.pid(), "saved"]);
    assert!(save.envs(STAND_IN).current_dir(setup.directory.path()).status().unwrap().success());
    // What a mount shows when there is memory.
    run(&setup, "true", &["mount", "--background", "dump", "mnt"].map(str::to_owned));
    (setup, subject)
}

/// The commands, each of which writes to files of its own.
fn commands(pid: &str) -> Vec<Vec<String>> {
    let words = |line: &str| {
        let line =
            line.replace("PID", pid).replace("DATA", DATA).replace("CRIU", stand_in().to_str().unwrap());
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
        "restart --criu CRIU saved",
        "mount --background dump mnt",
        "bench read --time 10ms vmcore",
        "bench capture --rounds 1 --scratch . vmcore",
        "reclaim record --force -o recorded.pht -- true",
        "latency --force -o measured.pht --between sched:sched_process_fork,sched:sched_process_exit -- true",
        "vmalloc --duration 10ms",
        "facts dump",
        "reclaim report DATA/reclaim/tests/data/guest-6.12.pht",
        "reclaim compare DATA/reclaim/tests/data/guest-6.12.pht DATA/reclaim/tests/data/guest-7.2.pht",
        "latency --from DATA/latency/tests/data/functions-6.12.pht *",
        "vmalloc --from DATA/vmalloc/tests/data/vmalloc-6.12.pht",
        "kdump plan --root root",
        "kdump check --root root",
        "kdump report --root root",
        "kdump apply --dry-run --root root",
        "completions bash",
        "man man",
    ]
    .map(words)
    .to_vec()
}

/// How a command ended.
struct Ended {
    status: ExitStatus,
    said: String,
    pid: u32,
}

/// What is mounted for a command, and what is done with its output.
const SCRIPT: &str = r#"
case "$2 $3" in "reclaim record" | "latency --force" | "vmalloc --duration")
    mount -t tracefs tracefs /sys/kernel/tracing 2>/dev/null ;;
esac
# Only this shell and what it becomes are limited.
[ "$2" = mount ] || { eval "$0" && exec "$@"; exit 2; }
(eval "$0" && exec "$@")
status=$?
# What a mount returns without memory is right, or an error.
if [ $status = 0 ] && cat mnt/vmcore >copy 2>/dev/null; then
    [ -e mounted ] || cp copy mounted
    cmp copy mounted || status=99
fi
umount -l mnt 2>/dev/null
exit $status
"#;

fn can_unshare() -> bool {
    static CAN: LazyLock<bool> = LazyLock::new(|| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "true"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    *CAN
}

/// Runs a command within a limit, which is a line of shell, to its end. Fails the test if it does not come.
fn run(setup: &Setup, limit: &str, arguments: &[String]) -> Ended {
    // What is mounted is hidden from others. Only root can, and not in every container.
    let mut command = Command::new(if can_unshare() { "unshare" } else { "sh" });
    command.args(can_unshare().then_some(["--mount", "sh"]).iter().flatten());
    command.args(["-c", SCRIPT, limit, BINARY]).args(arguments);
    command.current_dir(setup.directory.path()).env("RUST_BACKTRACE", "1").envs(STAND_IN);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let (number, pid) = (child.id(), rustix::process::Pid::from_child(&child));
    let (send, receive) = channel();
    thread::spawn(move || send.send(child.wait_with_output()));
    let Ok(output) = receive.recv_timeout(HUNG) else {
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        panic!("{arguments:?} in {limit} hangs");
    };
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked at"), "{arguments:?} in {limit}: {said}");
    assert_ne!(output.status.code(), Some(2), "{arguments:?} in {limit}: {said}");
    assert_ne!(output.status.code(), Some(99), "{arguments:?} in {limit}: a mount returned wrong bytes");
    Ended { status: output.status, said, pid: number }
}

/// What claims to be a complete dump is one.
fn assert_whole(setup: &Setup, arguments: &[String], told: &str) {
    if let Some(name @ ("out" | "summed")) = arguments.last().map(String::as_str) {
        let output = setup.run(&["verify", name]);
        assert!(output.status.success(), "{told}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn commands_end_in_a_small_address_space() {
    let (setup, mut subject) = prepare();
    let in_space = |bytes: u64| format!("ulimit -v {}", bytes >> 10);
    // What the program takes to begin.
    let begins = |bytes: &u64| run(&setup, &in_space(*bytes), &["--version".to_owned()]).status.success();
    let least = (8..512).map(|steps| steps * 2 * MIB).find(begins).unwrap();
    let (mut failed, mut pids) = (0, Vec::new());
    for arguments in commands(&subject.pid()) {
        for more in [0, 4, 12, 32, 96] {
            let Ended { status, said, pid } = run(&setup, &in_space(least + more * MIB), &arguments);
            let told = format!("{arguments:?}, {more} MiB more: {status} {said}");
            // The C library aborts where a new thread has no memory for its destructors.
            assert!(status.signal().is_none() || said.contains("Fatal glibc error"), "{told}");
            failed += usize::from(!status.success());
            if status.success() {
                assert_whole(&setup, &arguments, &told);
            }
            subject.goes_on();
            pids.push(pid);
        }
    }
    eprintln!("{failed} of {} runs had too little memory", pids.len());
    assert!(failed > 20);
    subject.has_no_children();
    let left = if can_unshare() { instances() } else { String::new() };
    assert!(!pids.iter().any(|pid| left.contains(&format!("pagehaul-{pid}-"))), "{left}");
}

/// The tracing instances of all programs, where there are any.
fn instances() -> String {
    let script = "mount -t tracefs tracefs /sys/kernel/tracing; ls /sys/kernel/tracing/instances";
    let output = Command::new("unshare").args(["--mount", "sh", "-c", script]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
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
    let (mut killed, mut runs) = (0, 0);
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
            let enter = format!("echo 0 >{}", group.0.join("cgroup.procs").display());
            let Ended { status, said, .. } = run(&setup, &enter, &arguments);
            let told = format!("{arguments:?} in {megabytes} MiB: {status} {said}");
            assert!(matches!(status.signal(), None | Some(libc::SIGKILL)), "{told}");
            killed += usize::from(status.signal().is_some());
            runs += 1;
            if status.success() {
                assert_whole(&setup, &arguments, &told);
            }
            subject.goes_on();
        }
    }
    subject.has_no_children();
    eprintln!("{killed} of {runs} commands were killed");
}
