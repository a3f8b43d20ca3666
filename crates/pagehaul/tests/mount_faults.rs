//! The process of a mount gets no threads, or is killed. It must not leave a mount that nobody serves, and it must end.
#![cfg(feature = "mount")]

mod common {
    pub mod setup;
}

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;

use common::setup::Setup;
use pagehaul_test_support::tracer::{Fault, HUNG, run};
use rustix::process::{Pid, Signal, kill_process};

/// A vmcore and a directory to mount it on; none where FUSE is not to be had.
fn setup() -> Option<Setup> {
    let fuse = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if fuse.is_err() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: /dev/fuse cannot be used here");
        return None;
    }
    let setup = Setup::small();
    fs::create_dir(setup.path("mnt")).unwrap();
    Some(setup)
}

/// In the foreground, with two threads that serve.
fn mount(setup: &Setup) -> Command {
    let mut command = setup.command(&["mount", "--threads", "2", "vmcore", "mnt"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn is_mounted(directory: &Path) -> bool {
    fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!(" {} ", directory.display()))
}

/// Ends what waits for the file system, too.
fn unmount(directory: &Path) {
    let _ = Command::new("umount").args(["--force", "--lazy"]).arg(directory).stderr(Stdio::null()).status();
}

#[test]
fn a_mount_that_gets_no_thread_is_unmounted() {
    let Some(setup) = setup() else { return };
    let directory = setup.path("mnt");
    // One that ends at once, one that serves, and two that it starts.
    for moment in 1..=4 {
        let trace = run(&mut mount(&setup), moment, Fault::Call(libc::SYS_clone3, libc::EAGAIN));
        let was_mounted = is_mounted(&directory);
        unmount(&directory);
        assert!(trace.at.is_some(), "thread {moment}: {trace:?}");
        assert_eq!((trace.code, was_mounted), (Some(1), false), "thread {moment}: {trace:?}");
    }
}

/// A process that waits for an answer that it would have to give itself cannot be ended. pagehaul must never ask its own mount.
#[test]
fn a_mount_that_is_killed_before_it_answers_ends() {
    let Some(setup) = setup() else { return };
    let (setup, directory) = (&setup, setup.path("mnt"));
    let (over, ended) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // All answers but the first, which lets it be mounted.
            let _ = over.send(run(&mut mount(setup), 2, Fault::KillAt(libc::SYS_writev)));
        });
        let asked = directory.join("vmcore");
        scope.spawn(move || {
            while fs::metadata(&asked).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
                thread::yield_now();
            }
        });
        let trace = ended.recv_timeout(HUNG);
        unmount(&directory);
        assert_ne!(trace.as_ref().err(), Some(&RecvTimeoutError::Timeout), "it waits for itself");
        let trace = trace.unwrap();
        assert_eq!((trace.at, trace.code), (Some(libc::SYS_writev), None), "{trace:?}");
    });
}

/// A file that is open is read to its end: only then does the process end.
#[test]
fn a_mount_in_use_is_served_until_its_last_file_is_closed() {
    let Some(setup) = setup() else { return };
    let directory = setup.path("mnt");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut child = setup
            .command(&["mount", "--threads", "2", "vmcore", "mnt"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("mounted on"), "{line}");
        let file = fs::File::open(directory.join("vmcore")).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        while is_mounted(&directory) && child.try_wait().unwrap().is_none() {
            thread::yield_now();
        }
        let was_mounted = is_mounted(&directory);
        // No page of it has been read yet.
        let read = io::copy(&mut &file, &mut io::sink());
        let size = file.metadata().unwrap().len();
        let early = child.try_wait().unwrap();
        drop(file);
        let ended = child.wait().unwrap();
        unmount(&directory);
        assert_eq!((was_mounted, read.ok(), early), (false, Some(size), None), "{signal:?}");
        assert!(ended.success(), "{signal:?}: {ended}");
        // Nothing is left of it.
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}
