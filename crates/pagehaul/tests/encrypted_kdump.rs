//! What pagehaul called as makedumpfile writes where a file names who can read it.

mod common {
    pub mod setup;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::setup::Setup;
use pagehaul_encryption::{Decrypted, Identity};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_synth::{Era, Machine, Message};

fn key(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data").join(name)
}

/// Runs it with a file of recipients.
fn makedumpfile(setup: &Setup, line: &str, recipients: &Path) -> Output {
    let words: Vec<&str> = ["makedumpfile"].into_iter().chain(line.split_whitespace()).collect();
    setup.command(&words).env("PAGEHAUL_RECIPIENTS", recipients).output().unwrap()
}

#[test]
fn dumps_are_streams_for_the_holders_of_the_keys() {
    let setup = Setup::with_noise(2);
    let recipients = key("ssh.pub");
    let both = setup.path("recipients");
    let age = fs::read_to_string(key("age.txt")).unwrap();
    let public = age.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    fs::write(&both, format!("# kdump\n{public}\n{}", fs::read_to_string(&recipients).unwrap())).unwrap();
    let plain = setup.command(&["makedumpfile", "-F", "-c", "-d", "31", "vmcore"]).output().unwrap().stdout;
    for line in ["-c -d 31 vmcore dump", "-c -d 31,31 --message-level 1 -f vmcore dump"] {
        let output = makedumpfile(&setup, line, &both);
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(read(&setup, "dump") == plain, "{line}");
    }
    let output = makedumpfile(&setup, "-F -c -d 31 vmcore", &both);
    assert!(output.status.success());
    fs::write(setup.path("stream"), &output.stdout).unwrap();
    assert!(read(&setup, "stream") == plain);
    // One that exists is replaced on request only, as in the clear.
    let output = makedumpfile(&setup, "-c -d 31 vmcore dump", &both);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn logs_are_encrypted_too() {
    let mut machine = Machine::new(Era::V6_12);
    let text = "Kernel panic - not syncing: sysrq triggered crash";
    machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
    let setup = Setup::new(&mut machine);
    let recipients = key("ssh.pub");
    assert!(makedumpfile(&setup, "--dump-dmesg vmcore log", &recipients).status.success());
    setup.succeeds(&["makedumpfile", "--dump-dmesg", "vmcore", "plain"]);
    let plain = fs::read(setup.path("plain")).unwrap();
    assert!(plain.windows(12).any(|part| part == b"Kernel panic"));
    assert_eq!(read(&setup, "log"), plain);
}

/// What the holder of a key of SSH reads.
fn read(setup: &Setup, name: &str) -> Vec<u8> {
    assert!(fs::read(setup.path(name)).unwrap().starts_with(b"age-encryption.org/v1\n"), "{name}");
    let file = PlainFile::open(&setup.path(name)).unwrap();
    let file = Decrypted::open(file, &Identity::read(&key("ssh")).unwrap()).unwrap();
    let mut text = vec![0; file.size() as usize];
    file.read_exact_at(0, &mut text).unwrap();
    text
}

#[test]
fn nothing_is_written_that_would_not_be_encrypted() {
    let setup = Setup::with_noise(2);
    let empty = setup.path("empty");
    fs::write(&empty, "# nobody\n").unwrap();
    let damaged = setup.path("damaged");
    fs::write(&damaged, "age1x\n").unwrap();
    let good = key("ssh.pub");
    for (line, recipients, why) in [
        ("-d 31 vmcore dump", &empty, "empty"),
        ("-d 31 vmcore dump", &damaged, "damaged"),
        ("-d 31 vmcore dump", &setup.path("absent"), "absent"),
        ("-d 31 vmcore dump", &PathBuf::new(), "PAGEHAUL_RECIPIENTS is empty"),
        ("--reassemble part other dump", &good, "use pagehaul convert --encrypt-to"),
        ("-R dump", &good, "use pagehaul convert --encrypt-to"),
        ("-F -d 31 vmcore", &setup.path("absent"), "absent"),
        ("--dump-dmesg vmcore dump", &setup.path("absent"), "absent"),
        ("-E -d 31 vmcore dump", &good, "-E cannot be encrypted"),
    ] {
        let output = makedumpfile(&setup, line, recipients);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why), "{line}: {output:?}");
        assert!(!setup.path("dump").exists() && !output.stdout.starts_with(b"makedumpfile"), "{line}");
        if !line.starts_with("--dump-dmesg") {
            // Fedora's kdumpctl asks before it loads the capture kernel.
            let asked = makedumpfile(&setup, &format!("--check-params {line}"), recipients);
            assert_eq!(asked.status.code(), Some(1), "{line}");
        }
    }
    assert!(makedumpfile(&setup, "--check-params -d 31 vmcore dump", &good).status.success());
}
