//! A process to be saved (`examples/subject.rs`), and questions to it.

// Not every test uses all of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

#[path = "small_disk.rs"]
mod small_disk;
use small_disk::with_disk_of;

/// The program under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");

/// A command that runs it.
pub fn tool(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a shell script in a directory whose `disk` is one of 6 MiB that only the script sees.
pub fn with_small_disk(directory: &Path, script: &str) -> Output {
    with_disk_of("6m", directory, script)
}

pub struct Subject {
    child: Child,
    pid: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    rounds: u64,
    /// Where its known memory is, and how much.
    pub address: u64,
    pub bytes: u64,
    /// Where its threads count.
    pub counters: u64,
    pub workers: u64,
}

impl Subject {
    pub fn start(arguments: &[&str]) -> Self {
        Self::spawn(Command::new(Self::program()), arguments)
    }

    /// Starts a copy of it as another user, which only root can.
    pub fn start_as(user: u32, copy: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(copy);
        command.uid(user).gid(user);
        Self::spawn(command, arguments)
    }

    /// Starts it in a PID namespace of its own, which only root can.
    pub fn start_in_pid_namespace(arguments: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        // Not as the first process of the namespace.
        command
            .args(["-pf", "--kill-child", "--mount-proc", "sh", "-c", r#""$0" "$@"; exit"#])
            .arg(Self::program());
        let mut this = Self::spawn(command, arguments);
        let child = |pid: u32| {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            children.trim().parse().unwrap()
        };
        this.pid = child(child(this.pid));
        this
    }

    /// A command that runs the tool in a PID namespace of its own, with the /proc of this one. In that namespace, a process that
    /// sleeps has this subject's number. Only root can make it.
    pub fn tool_among_other_processes(&self, arguments: &[&str]) -> Command {
        // ns_last_pid is that of the namespace of the process that writes to it. The sleeper ends with the namespace.
        let script = r#"echo $(($0 - 1)) > /proc/sys/kernel/ns_last_pid
            sleep 600 < /dev/null > /dev/null 2>&1 &
            [ $! = $0 ] || exit 99
            "$@"; exit"#;
        let mut command = Command::new("unshare");
        command.args(["-pf", "--kill-child", "sh", "-c", script]).args([&self.pid(), BINARY]).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    /// Examples are built next to the tests' directory by `cargo test`, but not by `cargo test --test core`.
    pub fn program() -> PathBuf {
        std::env::current_exe().unwrap().parent().unwrap().join("../examples/subject")
    }

    fn spawn(mut command: Command, arguments: &[&str]) -> Self {
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let number = |word: usize| {
            let word = line.split_whitespace().nth(word).unwrap();
            u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap()
        };
        let (address, bytes, counters) = (number(2), number(3), number(4));
        let workers = arguments[1].parse().unwrap();
        let pid = child.id();
        Self { child, pid, input, output, rounds: 0, address, bytes, counters, workers }
    }

    pub fn pid(&self) -> String {
        self.pid.to_string()
    }

    /// Takes a core, which must succeed, and gives what was printed.
    pub fn core(&self, arguments: &[&str], path: &Path) -> String {
        let output = tool(&["core"]).args(arguments).arg(self.pid()).arg(path).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Asks it whether its memory is whole, and makes sure that its threads have got on since the last time.
    pub fn goes_on(&mut self) {
        loop {
            writeln!(self.input, "check").unwrap();
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            let rounds =
                line.trim().strip_prefix("ok ").unwrap_or_else(|| panic!("the subject says {line:?}"));
            let rounds: u64 = rounds.parse().unwrap();
            // A busy machine may not have run its threads in so short a time.
            if std::mem::replace(&mut self.rounds, rounds) < rounds {
                return;
            }
        }
    }

    /// Makes sure that no child of its, dead or alive, is left.
    pub fn has_no_children(&self) {
        for task in fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap() {
            let children = fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
            assert_eq!(children, "");
        }
    }

    /// What /proc tells of its threads' signals: which are pending, blocked, ignored and caught.
    pub fn signal_masks(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let statuses = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
        // Not SigQ, which counts signals of all the user's processes.
        let is_mask =
            |line: &&str| line.contains("Pnd:") || line.starts_with("Sig") && !line.starts_with("SigQ");
        statuses.map(|status| status.lines().filter(is_mask).collect::<Vec<_>>().join("\n")).collect()
    }

    pub fn signal(&self, signal: i32) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until its first thread is in a state: T stopped, t traced.
    pub fn wait_for_state(&self, letter: char) {
        while self.state() != letter {
            std::thread::yield_now();
        }
    }

    /// Whether it has ended, or is about to by SIGKILL.
    pub fn has_ended(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        let line = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or("").trim();
        // Bit 8 of the pending signals.
        let is_killed = |mask: &str| u64::from_str_radix(mask, 16).is_ok_and(|mask| mask >> 8 & 1 == 1);
        matches!(line("State:").chars().next(), None | Some('Z' | 'X'))
            || is_killed(line("ShdPnd:"))
            || is_killed(line("SigPnd:"))
    }

    /// Whether a signal has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.state() == 'T'
    }

    fn state(&self) -> char {
        letter(&fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap())
    }

    /// Waits until one of its threads is in a state.
    pub fn wait_for_any_thread_in_state(&self, wanted: char) {
        while !self.states().contains(&wanted) {
            std::thread::yield_now();
        }
    }

    /// Waits until it has so many threads.
    pub fn wait_for_threads(&self, count: usize) {
        while self.states().len() != count {
            std::thread::yield_now();
        }
    }

    fn states(&self) -> Vec<char> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().flatten();
        threads
            .filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok())
            .map(|stat| letter(&stat))
            .collect()
    }

    /// Does something while another process traces it: this one.
    pub fn while_traced(&self, action: impl FnOnce(&str)) {
        let pid = self.child.id() as i32;
        // SAFETY: numbers only.
        let request = |kind| unsafe { libc::ptrace(kind, pid, 0, 0) };
        assert_eq!(request(libc::PTRACE_SEIZE), 0);
        action(&self.pid());
        assert_eq!(request(libc::PTRACE_INTERRUPT), 0);
        // SAFETY: no status is asked for.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) }, pid);
        assert_eq!(request(libc::PTRACE_DETACH), 0);
    }
}

/// The state in a line of /proc/PID/stat.
fn letter(stat: &str) -> char {
    stat.rsplit(") ").next().unwrap().chars().next().unwrap()
}

impl Drop for Subject {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
