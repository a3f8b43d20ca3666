//! Where the system allows no thread, as at pids.max: captures, conversions and checks work all the same.

mod common {
    pub mod limits;
    pub mod setup;
}

use std::fs;
use std::process::{Command, Output};

use common::limits::no_threads;
use common::setup::{BINARY, Setup};

fn run(setup: &Setup, arguments: &[&str]) -> Output {
    no_threads(&mut setup.command(arguments)).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).unwrap()
}

/// A capture kernel of 192 MiB has some 100 MiB left.
#[test]
fn a_capture_uses_no_more_threads_than_memory_allows() {
    let setup = Setup::small();
    std::fs::write(setup.path("meminfo"), "MemTotal: 196608 kB\nMemAvailable:  102400 kB\n").unwrap();
    let script = format!(
        "mount --bind meminfo /proc/meminfo && exec {BINARY} capture --json -v -t 32 --force vmcore dump"
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .current_dir(setup.directory.path())
        .output()
        .unwrap();
    let [report, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{said}");
    assert!(report.contains("\"threads\": 5,"), "{report}");
    assert!(said.contains("5 of 32 threads: there is not enough memory for more"), "{said}");
}

#[test]
fn dumps_are_the_same_without_threads() {
    let setup = Setup::with_noise(4);
    for format in ["kdump", "elf", "flattened"] {
        let arguments = |output: &'static str| {
            ["capture", "-q", "-d", "0", "-t", "4", "--format", format, "vmcore", output]
        };
        setup.succeeds(&arguments("with"));
        let output = run(&setup, &arguments("without"));
        assert!(output.status.success(), "{format}: {}", said(&output));
        let same = fs::read(setup.path("with")).unwrap() == fs::read(setup.path("without")).unwrap();
        assert!(same, "{format}: the dump is not what it is with threads");
        let output = run(&setup, &["verify", "without"]);
        assert!(output.status.success(), "{format}: {}", said(&output));
        let output = run(&setup, &["convert", "-q", "--force", "without", "converted"]);
        assert!(output.status.success(), "{format}: {}", said(&output));
        let output = run(&setup, &["capture", "-q", "--dry-run", "vmcore"]);
        assert!(output.status.success(), "{format}: {}", said(&output));
        for name in ["with", "without", "converted"] {
            fs::remove_file(setup.path(name)).unwrap();
        }
    }
}

/// A recipient, and the file with its secret key.
fn keys() -> (String, String) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../encryption/tests/data/age.txt");
    let secret = fs::read_to_string(file).unwrap();
    let public = secret.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    (public.to_owned(), file.to_owned())
}

#[test]
fn an_encrypted_dump_is_the_same_without_threads() {
    let setup = Setup::with_noise(4);
    let (public, secret) = keys();
    setup.succeeds(&["capture", "-q", "-d", "0", "-f", "flattened", "vmcore", "plain"]);
    let encrypt = ["capture", "-q", "-d", "0", "--encrypt-to", &public, "vmcore", "dump.age"];
    let output = run(&setup, &encrypt);
    assert!(output.status.success(), "{}", said(&output));
    setup.succeeds(&["convert", "-q", "-f", "flattened", "--identity", &secret, "dump.age", "back"]);
    let same = fs::read(setup.path("back")).unwrap() == fs::read(setup.path("plain")).unwrap();
    assert!(same, "the dump is not what it is in the clear");
}

#[test]
fn parts_that_cannot_be_written_for_lack_of_threads_are_refused_in_one_sentence() {
    let setup = Setup::with_noise(12);
    let output = run(&setup, &["capture", "-q", "vmcore", "a", "b"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("cannot create the threads that write to"), "{}", said(&output));
    assert_eq!(said(&output).trim_end().lines().count(), 1, "{}", said(&output));
    assert!(!setup.path("a").exists() && !setup.path("b").exists());
}

#[test]
#[cfg(feature = "census")]
fn pages_are_counted_without_threads() {
    let setup = Setup::small();
    let with = setup.succeeds(&["pages", "--json", "vmcore"]);
    let output = run(&setup, &["pages", "--json", "vmcore"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), with);
}
