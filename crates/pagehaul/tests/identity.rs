//! Secret keys that are in no file: from a pipe, or from standard input.

mod common {
    pub mod keys;
    pub mod mounts;
    pub mod setup;
}

use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use common::keys::{key, public};
use common::mounts::can_mount;
use common::setup::{BINARY, Setup};
use pagehaul_test_support::server::{Response, Server};

/// A crashed machine with an encrypted dump, `dump.age`, an encrypted set, and both in the clear.
fn setup() -> Setup {
    let setup = Setup::crashed();
    setup.succeeds(&["capture", "-q", "-d", "0", "--encrypt-to", &public(), "vmcore", "dump.age"]);
    setup.succeeds(&["capture", "-q", "-d", "0", "--encrypt-to", &public(), "vmcore", "1.age", "2.age"]);
    setup.succeeds(&["capture", "-q", "-d", "0", "-f", "flattened", "vmcore", "plain"]);
    setup
}

/// How a key gets to a command: its option, and whether standard input has the key.
const WAYS: [(&str, bool); 4] =
    [("<(cat \"$KEY\")", false), ("-", true), ("/dev/stdin", true), ("/dev/fd/0", true)];

/// Runs `pagehaul COMMAND --identity WAY FILES`.
fn run(setup: &Setup, command: &str, way: (&str, bool), files: &str) -> Output {
    let line = format!("exec \"$PAGEHAUL\" {command} --identity {} {files}", way.0);
    let mut bash = Command::new("bash");
    bash.args(["-c", &line]).env("PAGEHAUL", BINARY).env("KEY", key("age.txt")).env("NO_PROXY", "127.0.0.1");
    bash.current_dir(setup.directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = bash.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if way.1 {
        stdin.write_all(&fs::read(key("age.txt")).unwrap()).unwrap();
    }
    drop(stdin);
    child.wait_with_output().unwrap()
}

#[test]
fn every_command_that_reads_dumps_takes_a_key_that_is_in_no_file() {
    let setup = setup();
    for way in WAYS {
        for command in
            ["info", "triage", "facts", "dmesg", "read --phys 0x4000000", "pages", "pages --owners", "verify"]
        {
            for files in ["dump.age", "1.age 2.age"] {
                let output = run(&setup, command, way, files);
                assert!(output.status.success(), "{command} {way:?} {files}: {output:?}");
                assert!(!output.stdout.is_empty(), "{command} {way:?} {files}");
            }
        }
        for command in ["triage diff", "pages diff"] {
            let output = run(&setup, command, way, "dump.age plain");
            assert!(output.status.success(), "{command} {way:?}: {output:?}");
        }
        let output = run(&setup, "convert -q --force", way, "dump.age out");
        assert!(output.status.success(), "{way:?}: {output:?}");
        assert_eq!(setup.succeeds(&["dmesg", "out"]), setup.succeeds(&["dmesg", "plain"]));
    }
    // The error names what has no key.
    for (way, name) in [(("<(echo none)", false), "/dev/fd/"), (("-", false), "standard input")] {
        let output = run(&setup, "info", way, "dump.age");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(name), "{said}");
    }
}

#[test]
fn dumps_on_servers_are_read_with_a_key_that_is_in_no_file() {
    let setup = setup();
    let dump = fs::read(setup.path("dump.age")).unwrap();
    let server = Server::start(move |request| Response::range(request, &dump, "v1"));
    let url = server.url("/dump.age");
    for way in WAYS {
        for command in ["info", "triage", "facts", "verify"] {
            let output = run(&setup, command, way, &url);
            assert!(output.status.success(), "{command} {way:?}: {output:?}");
        }
    }
}

#[test]
fn mounts_in_the_background_take_a_key_that_is_in_no_file() {
    if !can_mount() {
        return;
    }
    let setup = setup();
    fs::create_dir(setup.path("mnt")).unwrap();
    let expected = setup.succeeds(&["dmesg", "plain"]);
    for way in WAYS {
        for files in ["dump.age mnt", "1.age 2.age mnt"] {
            let output = run(&setup, "mount --background", way, files);
            assert!(output.status.success(), "{way:?} {files}: {output:?}");
            let log = fs::read_to_string(setup.path("mnt/dmesg"));
            let unmounted = Command::new("umount").arg("-l").arg(setup.path("mnt")).status().unwrap();
            assert!(unmounted.success());
            assert_eq!(log.unwrap(), expected, "{way:?} {files}");
        }
    }
}

/// A key is on no command line: an option that looks like one names a file that is not there.
#[test]
fn a_key_is_not_an_argument() {
    let setup = setup();
    let secret = fs::read_to_string(key("age.txt")).unwrap();
    let secret = secret.lines().find(|line| line.starts_with("AGE-SECRET-KEY-1")).unwrap().to_owned();
    let said = setup.fails(&["info", "--identity", &secret, "dump.age"], 1);
    assert!(!said.contains(&secret), "{said}");
}
