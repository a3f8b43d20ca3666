//! Captures to an object store. What the store does wrong is tested in the crate that talks to it.

mod common {
    pub mod bucket;
    pub mod store;
}

use common::bucket;
use common::store::Store;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pagehaul_synth::{Era, Machine, Message};
use pagehaul_test_support::server::{Response, Server};

const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");
const SECRET: &str = "test-secret-key";

/// Runs a command that knows the store.
fn run(directory: &Path, store: &Server, arguments: &[&str]) -> Output {
    let output = command(directory, store, arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains(SECRET) && !told.contains("Signature="), "{told}");
    output
}

fn command(directory: &Path, store: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env_clear()
        .current_dir(directory)
        .env("HOME", directory)
        .env("NO_PROXY", "127.0.0.1");
    command.env("AWS_EC2_METADATA_DISABLED", "true").env("AWS_ENDPOINT_URL", store.url(""));
    command.env("AWS_ACCESS_KEY_ID", "AKID").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command
}

#[test]
fn a_capture_to_a_store_is_the_stream_that_a_pipe_gets() {
    let directory = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    machine.log(
        0x6000,
        &[Message { nanoseconds: 0, level: 0, caller: 7, text: "Kernel panic - not syncing: test" }],
    );
    machine.build().elf().write(&directory.path().join("vmcore")).unwrap();
    let store = Arc::new(Mutex::new(Store::default()));
    let shared = store.clone();
    let server = Server::start(move |request| shared.lock().unwrap().answer(request));
    let run = |arguments: &[&str]| run(directory.path(), &server, arguments);
    let url = "s3://crashes/host7/dump.flat";
    let told = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();

    // What fails leaves no object.
    store.lock().unwrap().denies = true;
    let denied = run(&["capture", "-d", "0", "vmcore", url]);
    assert_eq!(denied.status.code(), Some(1), "{}", told(&denied));
    assert!(told(&denied).contains("the same command continues there"), "{}", told(&denied));
    assert!(store.lock().unwrap().objects.is_empty());
    // Another try of an encrypted dump has another key.
    let recipients = concat!(env!("CARGO_MANIFEST_DIR"), "/../encryption/tests/data/ssh.pub");
    let denied = run(&["capture", "-d", "0", "--encrypt-to", recipients, "vmcore", url]);
    assert!(told(&denied).contains("the same command begins anew"), "{}", told(&denied));
    store.lock().unwrap().denies = false;

    let captured = run(&["capture", "-d", "0", "--facts", "vmcore", url]);
    assert!(captured.status.success(), "{}", told(&captured));
    let stream = run(&["capture", "-q", "-d", "0", "vmcore", "-"]).stdout;
    assert!(store.lock().unwrap().objects["/crashes/host7/dump.flat"] == stream);
    assert!(store.lock().unwrap().objects.contains_key("/crashes/host7/dump.flat.facts.json.zst"));
    let log = |dump: &str| run(&["dmesg", dump]).stdout;
    assert_eq!(log(url), log("vmcore"));

    // No dump replaces another.
    let again = run(&["capture", "-d", "0", "vmcore", url]);
    assert_eq!(again.status.code(), Some(1));
    assert!(told(&again).contains("none is replaced"), "{}", told(&again));
    assert!(store.lock().unwrap().objects["/crashes/host7/dump.flat"] == stream);

    for refused in [
        &["vmcore", url, "other"][..],
        &["--checksums", "vmcore", url],
        &["-f", "elf", "vmcore", "s3://crashes/x"],
    ] {
        let output = run(&[&["capture"], refused].concat());
        assert!(!output.status.success(), "{refused:?}");
    }
    assert_eq!(run(&["convert", "vmcore", "s3://crashes/x"]).status.code(), Some(2));
}

#[test]
fn a_signal_ends_an_upload_that_cannot_be_completed() {
    let directory = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    machine.build().elf().write(&directory.path().join("vmcore")).unwrap();
    let (arrive, arrived) = channel();
    let store = Mutex::new(Store::default());
    let server = Server::start(move |request| {
        if request.method == "POST" && request.target.contains("uploadId=") {
            let _ = arrive.send(());
            return Response::status(503, "<Error><Code>SlowDown</Code></Error>");
        }
        store.lock().unwrap().answer(request)
    });
    let mut capture = command(directory.path(), &server, &["capture", "-d", "0", "vmcore", "s3://b/dump"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    arrived.recv().unwrap();
    assert!(Command::new("kill").args(["-INT", &capture.id().to_string()]).status().unwrap().success());
    assert_eq!(capture.wait().unwrap().code(), Some(1));
    let mut told = String::new();
    capture.stderr.unwrap().read_to_string(&mut told).unwrap();
    assert!(
        told.contains("SlowDown; it is tried again") && told.contains("the same command continues there"),
        "{told}"
    );
}

/// Where nobody listens, the user hears of it before it is tried again.
#[test]
fn a_connection_that_is_refused_is_told_before_it_is_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    Machine::new(Era::V6_12).build().elf().write(&directory.path().join("vmcore")).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for arguments in [&["info", "s3://b/dump"][..], &["capture", "vmcore", "s3://b/dump"]] {
        let server = Server::start(|_| Response::status(500, ""));
        let mut command = command(directory.path(), &server, arguments);
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}"));
        let mut running = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(running.stderr.take().unwrap()).lines();
        let told = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("Connection refused")));
        let is_running = running.try_wait().unwrap().is_none();
        running.kill().unwrap();
        running.wait().unwrap();
        let told = told.unwrap().unwrap();
        assert!(is_running && told.contains("tried again"), "{arguments:?}: {told}");
    }
}

#[test]
fn secrets_in_urls_are_not_printed() {
    let directory = tempfile::tempdir().unwrap();
    Machine::new(Era::V6_12).build().elf().write(&directory.path().join("vmcore")).unwrap();
    for url in [
        "https://user:hunter2@127.0.0.1:1/dump",
        "s3://KEY:hunter2@bucket/dump",
        "ssh://user:hunter2@host/dump",
    ] {
        for arguments in [
            &["info", url][..],
            &["info", "--json", url],
            &["verify", url],
            &["verify", "--json", url],
            &["triage", url],
            &["triage", "--json", url],
            &["dmesg", url],
            &["facts", url],
            &["pages", url],
            &["read", url, "--phys", "0"],
            &["convert", url, "out"],
            &["convert", "vmcore", url],
            &["capture", "vmcore", url],
            &["capture", "--json", "vmcore", url],
            &["capture", url, "out"],
            &["mount", url, "mount"],
            &["triage", "diff", url, url],
        ] {
            let output = Command::new(BINARY)
                .args(arguments)
                .env_clear()
                .env("HOME", directory.path())
                .current_dir(directory.path())
                .output()
                .unwrap();
            let told = [output.stdout, output.stderr].concat();
            let told = String::from_utf8_lossy(&told);
            assert!(!output.status.success() && !told.contains("hunter2"), "{arguments:?}: {told}");
        }
    }
}

#[test]
fn the_guide_goes_from_a_crash_to_a_report() {
    let store = Arc::new(Mutex::new(Store::default()));
    let server = Server::start(move |request| store.lock().unwrap().answer(request));
    bucket::from_a_crash_to_a_report(&server.url(""), "AKID", SECRET);
}
