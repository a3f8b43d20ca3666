//! What a process can still do from inside the sandbox: compute, and write its answer. Everything else is tried, as root and as
//! nobody, with and without outputs, and must be refused.
//!
//! Each attempt is first made without the sandbox, as root: one that fails there, too, would show nothing. Where success would
//! harm the machine, its arguments are invalid, so that the kernel gives another error than a refusal.

mod attempt;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use attempt::{ATTEMPTS, Fixture, INHERITED};
use pagehaul_sandbox::{Gap, Sandbox};

const NOBODY: u32 = 65534;
/// In the environment of the process inside, and of its victim.
const SECRET: &str = "planted-secret-0123456789";

/// Files of a test, and a process of the same user with the same secret.
struct Scene {
    directory: tempfile::TempDir,
    program: PathBuf,
    victim: Child,
    user: u32,
}

impl Scene {
    fn new(user: u32) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        // Where nobody can run it.
        let program = at("program");
        // Not by this process: another thread's child would have the file open for writing until it runs its own.
        let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status().unwrap();
        assert!(copied.success());
        for name in ["files", "out"] {
            fs::create_dir(at(name)).unwrap();
            std::os::unix::fs::chown(at(name), Some(user), None).unwrap();
        }
        for name in ["files/input", "files/secret"] {
            fs::write(at(name), name).unwrap();
            std::os::unix::fs::chown(at(name), Some(user), None).unwrap();
        }
        let mut victim = Command::new("sleep");
        let victim =
            victim.arg("600").env_clear().env("AWS_SECRET_ACCESS_KEY", SECRET).uid(user).spawn().unwrap();
        Self { directory, program, victim, user }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the ignored test `name` as the user.
    fn run(&self, name: &str, writes: bool) -> Output {
        let secret = OpenOptions::new().read(true).write(true).open(self.path("files/secret")).unwrap();
        let secret_fd = secret.as_raw_fd();
        let mut command = Command::new(&self.program);
        command
            .args(["--exact", name, "--ignored", "--nocapture", "--test-threads", "1"])
            .env("SCENE", self.directory.path())
            .env("VICTIM", self.victim.id().to_string())
            .env("WRITES", if writes { "1" } else { "" })
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .stdin(Stdio::null())
            .uid(self.user)
            .gid(self.user);
        // SAFETY: no pointers.
        let inherit = move || match unsafe { libc::dup2(secret_fd, INHERITED) } {
            INHERITED => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        };
        // SAFETY: one system call, which is allowed between fork and exec.
        unsafe { command.pre_exec(inherit) };
        command.output().unwrap()
    }

    /// Checks that nothing has changed.
    fn is_unharmed(&mut self) {
        for name in ["files/input", "files/secret"] {
            let meta = fs::metadata(self.path(name)).unwrap();
            assert_eq!(fs::read_to_string(self.path(name)).unwrap(), name);
            assert_eq!((meta.permissions().mode() & 0o7777, meta.uid(), meta.nlink()), (0o644, self.user, 1));
        }
        assert_eq!(fs::read_dir(self.path("files")).unwrap().count(), 2);
        assert!(self.victim.try_wait().unwrap().is_none(), "the victim is dead");
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// The users to try: only root can become nobody.
fn users() -> Vec<u32> {
    match rustix::process::geteuid().as_raw() {
        0 => vec![0, NOBODY],
        user => vec![user],
    }
}

fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn every_attempt_is_refused() {
    assert!(ATTEMPTS.len() >= 40);
    for (user, writes) in users().into_iter().flat_map(|user| [(user, false), (user, true)]) {
        let mut scene = Scene::new(user);
        let output = scene.run("inside", writes);
        let text = text(&output);
        assert!(output.status.success(), "user {user}, writes {writes}: {text}");
        assert_eq!(text.matches("refused: ").count(), ATTEMPTS.len(), "user {user}: {text}");
        scene.is_unharmed();
    }
}

/// Without the sandbox, the same attempts reach the kernel.
#[test]
fn the_attempts_are_real() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new(0);
    let text = text(&scene.run("outside", false));
    for attempt in ATTEMPTS {
        let tried = ["reached", "absent"].map(|how| text.contains(&format!("{how}: {}", attempt.name)));
        assert!(tried.contains(&true), "{}: {text}", attempt.name);
    }
    // Few kernels lack more.
    assert!(text.matches("absent: ").count() <= 4, "{text}");
    println!("{text}");
}

#[test]
fn the_confined_process_computes_and_writes() {
    for (user, writes) in users().into_iter().flat_map(|user| [(user, false), (user, true)]) {
        let mut scene = Scene::new(user);
        let output = scene.run("working", writes);
        assert!(output.status.success(), "user {user}, writes {writes}: {}", text(&output));
        assert_eq!(fs::read(scene.path("out/answer")).ok(), writes.then(|| b"42".to_vec()));
        scene.is_unharmed();
    }
}

#[test]
fn no_secret_is_left_in_memory() {
    let output = Scene::new(users()[0]).run("environment", false);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn threads_that_were_there_are_filtered_too() {
    let output = Scene::new(users()[0]).run("threads", false);
    assert!(output.status.success(), "{}", text(&output));
}

#[test]
fn a_process_that_aborts_dies_of_it() {
    let output = Scene::new(users()[0]).run("aborting", false);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{}", text(&output));
}

/// System calls of 32-bit programs have other numbers: a filter for this architecture would take one for another.
#[test]
#[cfg(target_arch = "x86_64")]
fn calls_of_another_architecture_are_fatal() {
    let output = Scene::new(users()[0]).run("of_32_bits", false);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{}", text(&output));
}

// What follows runs in the process that `Scene::run` starts.

fn variable(name: &str) -> String {
    std::env::var(name).expect("run by another test")
}

fn is_refusal(error: i32, name: &str) -> bool {
    matches!(error, libc::ENOSYS | libc::EPERM | libc::EACCES)
        || (error == libc::EBADF && name.contains("inherited"))
}

/// Returns the files, the sandbox for them, and the output if there is one.
fn fixture() -> (Fixture, Sandbox, Option<PathBuf>) {
    let scene = PathBuf::from(variable("SCENE"));
    let files = scene.join("files");
    let output = (!variable("WRITES").is_empty()).then(|| scene.join("out/answer"));
    let (input, secret) = (files.join("input"), files.join("secret"));
    let victim = variable("VICTIM").parse().unwrap();
    let sandbox = Sandbox::reading([&input]).writing(&output);
    (Fixture { held: File::open(&input).unwrap(), files, input, secret, victim }, sandbox, output)
}

#[test]
#[ignore = "confines its process"]
fn inside() {
    let (fixture, sandbox, _) = fixture();
    // The attempts run in the thread that enters: the harness has one more, which waits.
    let gaps = sandbox.enter().unwrap();
    let has_landlock = !gaps.contains(&Gap::Files);
    for attempt in ATTEMPTS {
        match (attempt.run)(&fixture) {
            _ if attempt.is_about_files && !has_landlock => {
                println!("refused: {} (untried: no Landlock)", attempt.name)
            }
            Err(error) if is_refusal(error, attempt.name) => {
                println!("refused: {}", attempt.name)
            }
            other => println!("REACHED: {}: {other:?}", attempt.name),
        }
    }
}

#[test]
#[ignore = "does what the sandbox prevents"]
fn outside() {
    let (fixture, ..) = fixture();
    for attempt in ATTEMPTS {
        match (attempt.run)(&fixture) {
            Err(error) if is_refusal(error, attempt.name) => println!("absent: {}", attempt.name),
            done => println!("reached: {}: {done:?}", attempt.name),
        }
    }
}

#[test]
#[ignore = "confines its process"]
fn working() {
    let (fixture, sandbox, output) = fixture();
    sandbox.enter().unwrap();
    assert_eq!(fs::read_to_string(&fixture.input).unwrap(), "files/input");
    let held = pagehaul_physmem::file::open_regular(&fixture.input).unwrap();
    assert_eq!(held.metadata().unwrap().len(), 11);
    assert!(fs::read_to_string("/proc/meminfo").unwrap().contains("MemAvailable:"));
    assert!(fs::read_to_string("/proc/self/status").unwrap().contains("RssAnon:"));
    assert!(std::thread::available_parallelism().is_ok());
    assert!(rustix::param::page_size() >= 4096);
    // Memory that grows, in threads with names.
    let workers: Vec<_> = (0..8)
        .map(|number| {
            let grow = move || {
                let mut bytes = Vec::new();
                (0..1 << 20).for_each(|at| bytes.push(u64::from(at as u32)));
                bytes.iter().sum::<u64>()
            };
            std::thread::Builder::new().name(format!("worker {number}")).spawn(grow).unwrap()
        })
        .collect();
    workers.into_iter().for_each(|worker| assert!(worker.join().unwrap() > 0));
    // A panic, with its backtrace, in a thread.
    let panics = std::thread::spawn(|| panic!("of the test")).join();
    assert!(panics.is_err());
    let _: std::collections::HashMap<u8, u8> = std::collections::HashMap::new();
    std::thread::sleep(std::time::Duration::from_millis(1));
    if let Some(output) = output {
        let mut file = tempfile::NamedTempFile::new_in(output.parent().unwrap()).unwrap();
        file.write_all(b"42").unwrap();
        file.as_file().sync_all().unwrap();
        file.persist(&output).unwrap();
    }
    println!("done");
}

#[test]
#[ignore = "confines its process"]
fn environment() {
    let (_, sandbox, _) = fixture();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
    // Fields 50 and 51 of proc_pid_stat(5): env_start, env_end. The first here is field 3.
    let [start, end] = [47, 48].map(|field| fields[field].parse::<usize>().unwrap());
    // SAFETY: the kernel has put the environment there, on a stack that stays mapped.
    let block =
        || unsafe { std::slice::from_raw_parts(std::hint::black_box(start) as *const u8, end - start) };
    let has = |needle: &str| block().windows(needle.len()).any(|bytes| bytes == needle.as_bytes());
    assert!(has(SECRET));
    sandbox.enter().unwrap();
    assert!(!has(SECRET) && !has("VICTIM"));
    assert_eq!(std::env::var_os("AWS_SECRET_ACCESS_KEY"), None);
    assert!(std::env::vars_os().all(|(name, _)| name != "SCENE"));
}

#[test]
#[ignore = "confines its process"]
fn threads() {
    let (_, sandbox, _) = fixture();
    let (go, may_go) = std::sync::mpsc::channel::<()>();
    let early = std::thread::spawn(move || {
        may_go.recv().unwrap();
        std::os::unix::net::UnixDatagram::unbound().map_err(|error| error.raw_os_error())
    });
    assert!(sandbox.enter().unwrap().contains(&Gap::Threads));
    go.send(()).unwrap();
    assert_eq!(early.join().unwrap().err(), Some(Some(libc::ENOSYS)));
    let late = std::thread::spawn(|| std::os::unix::net::UnixDatagram::unbound().is_err());
    assert!(late.join().unwrap());
}

#[test]
#[ignore = "confines its process"]
fn aborting() {
    let (_, sandbox, _) = fixture();
    sandbox.enter().unwrap();
    std::process::abort();
}

#[test]
#[cfg(target_arch = "x86_64")]
#[ignore = "confines its process"]
fn of_32_bits() {
    let (_, sandbox, _) = fixture();
    sandbox.enter().unwrap();
    // SAFETY: getpid(2) of 32-bit programs takes no arguments; the filter ends the process.
    unsafe { std::arch::asm!("int 0x80", inlateout("eax") 20 => _) };
    println!("reached: {}", Path::new("x").as_os_str() == OsStr::new("x"));
}
