//! Files that are made to harm whoever reads them: each command ends, in bounded time and memory.

mod common {
    pub mod setup;
}

use std::process::{Command, Stdio};

use common::setup::{BINARY, Setup};

/// Runs the program with these arguments in `setup`'s directory. Fails the test if it takes more than a minute or 1 GiB
/// of address space.
fn run(setup: &Setup, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1048576; exec timeout -s KILL 60 \"$@\"", "sh", BINARY]).args(arguments);
    let output = command.current_dir(setup.folder.path()).stdin(Stdio::null()).output().unwrap();
    let (out, said) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    assert!(
        ![Some(137), None, Some(101)].contains(&output.status.code()),
        "{arguments:?}: {:?} {said}",
        output.status
    );
    (output.status.code(), String::from_utf8_lossy(&out).into_owned(), said)
}

#[test]
fn a_pipe_is_refused_without_waiting_for_a_writer() {
    let setup = Setup::small();
    let pipe = setup.path("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    for arguments in [
        &["info", "pipe"][..],
        &["verify", "pipe"],
        &["dmesg", "pipe"],
        &["pages", "pipe"],
        &["read", "--phys", "0", "pipe"],
        &["mount", "pipe", "."],
        &["convert", "pipe", "out"],
        &["capture", "pipe", "out"],
        &["info", "pipe", "vmcore"],
    ] {
        let (code, _, said) = run(&setup, arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains("pipe: this is a pipe") && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}
