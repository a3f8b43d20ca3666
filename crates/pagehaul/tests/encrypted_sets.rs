//! Encrypted split sets: what their holders read, and what is claimed of sets that are not whole.

mod common {
    pub mod faulty;
    pub mod keys;
    pub mod setup;
    pub mod small_disk;
}

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use common::faulty::Faulty;
use common::keys::{decrypted, key, public, text};
use common::setup::{BINARY, Setup};
use common::small_disk::with_disk_of;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Era, Machine};
use pagehaul_vmcore::Source;
use serde_json::Value;

const PARTS: [&str; 3] = ["1.age", "2.age", "3.age"];

fn capture(setup: &Setup, options: &[&str], names: &[&str]) {
    setup.succeeds(
        &[&["capture", "-q", "-d", "0", "--encrypt-to", &public()], options, &["vmcore"], names].concat(),
    );
}

/// A machine with some MiB of noise, and an encrypted set of it in [`PARTS`].
fn set() -> Setup {
    let setup = Setup::with_noise(12);
    capture(&setup, &[], &PARTS);
    setup
}

/// Runs a command on files with the key of age.
fn with_key(setup: &Setup, command: &[&str], files: &[&str]) -> Output {
    setup.run(&[command, &["--identity", &text("age.txt")], files].concat())
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What is in an encrypted file, by `age` if it is there, and by pagehaul otherwise.
fn decrypt(setup: &Setup, name: &str, to: &str) -> bool {
    let private = setup.path("key");
    fs::copy(key("age.txt"), &private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    let mut age = Command::new("age");
    age.arg("-d").arg("-i").arg(&private).arg("-o").arg(setup.path(to)).arg(setup.path(name));
    match age.status() {
        Ok(status) => {
            assert!(status.success(), "{name}");
            true
        }
        Err(_) => false,
    }
}

/// Asserts that a file has every page of the machine, and is complete.
fn assert_whole(setup: &Setup, names: &[&str]) {
    let pages = setup.image.expected(0).len() as u64;
    assert_eq!(setup.right_pages_of(names).unwrap(), (pages, true), "{names:?}");
}

#[test]
fn holders_of_the_key_read_a_set_and_nobody_else() {
    let setup = set();
    for part in PARTS {
        let bytes = fs::read(setup.path(part)).unwrap();
        assert!(bytes.starts_with(b"age-encryption.org/v1\n"));
        assert_eq!(fs::metadata(setup.path(part)).unwrap().permissions().mode() & 0o777, 0o600);
        // Each has a file key of its own, so that no wrapped key occurs in two of them.
        let header = bytes.split(|byte| *byte == b'\n').nth(2).unwrap().to_vec();
        let others = PARTS.iter().filter(|other| **other != part);
        for other in others {
            assert!(!fs::read(setup.path(other)).unwrap().windows(header.len()).any(|at| at == header));
        }
    }
    let info = json(&with_key(&setup, &["info", "--json"], &PARTS));
    assert_eq!((&info["encrypted"], &info["complete"]), (&Value::Bool(true), &Value::Bool(true)), "{info}");
    let verified = json(&with_key(&setup, &["verify", "--json"], &PARTS));
    assert_eq!(verified["intact"], true, "{verified}");
    let page = |pfn: u64| format!("{:#x}", pfn << 12);
    for pfn in [0x4000, 0x4000 + 6 * 256, 0x4000 + 12 * 256 - 1] {
        let read =
            with_key(&setup, &["read", "--phys", &page(pfn), "--len", "4096", "--format", "raw"], &PARTS);
        assert!(read.stdout == setup.image.page(pfn), "{pfn:#x}: {read:?}");
    }
    let joined = with_key(&setup, &["convert", "-q"], &[&PARTS[..], &["whole"]].concat());
    assert!(joined.status.success(), "{joined:?}");
    assert_whole(&setup, &["whole"]);
    // The variable is for those who call makedumpfile.
    let mut reassemble = setup.command(&["makedumpfile", "--reassemble", "3.age", "1.age", "2.age", "again"]);
    let output = reassemble.env("PAGEHAUL_IDENTITY", key("age.txt")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_whole(&setup, &["again"]);
    let without = setup.fails(&[&["info"], &PARTS[..]].concat(), 1);
    assert!(without.contains("1.age") && without.contains("--identity"), "{without}");
}

#[test]
fn what_age_decrypts_is_a_set_and_what_age_encrypts_is_read() {
    let setup = set();
    let plain = ["1", "2", "3"];
    for (part, to) in PARTS.iter().zip(plain) {
        if !decrypt(&setup, part, to) {
            eprintln!("skipped: age is not installed");
            return;
        }
    }
    assert_whole(&setup, &plain);
    setup.succeeds(&[&["verify"], &plain[..]].concat());
    // Unflattened, as makedumpfile -R does it.
    let unflattened = plain.map(|name| format!("{name}.kdump"));
    for (name, to) in plain.iter().zip(&unflattened) {
        let mut command = setup.command(&["makedumpfile", "-R", to]);
        command.stdin(fs::File::open(setup.path(name)).unwrap());
        assert!(command.status().unwrap().success());
    }
    let unflattened = unflattened.each_ref().map(String::as_str);
    assert_whole(&setup, &unflattened);
    setup.succeeds(&[&["makedumpfile", "--reassemble"], &unflattened[..], &["joined"]].concat());
    assert_whole(&setup, &["joined"]);
    // A plain set that somebody encrypts part by part, flattened or not.
    setup.succeeds(&["capture", "-q", "-d", "0", "vmcore", "a", "b", "c"]);
    for set in [["a", "b", "c"], plain] {
        let encrypted = set.map(|name| format!("{name}.by-age"));
        for (name, to) in set.iter().zip(&encrypted) {
            let mut age = Command::new("age");
            age.args(["-R"]).arg(key("ssh.pub")).arg("-o").arg(setup.path(to)).arg(setup.path(name));
            assert!(age.status().unwrap().success());
        }
        let mut verify = vec!["verify", "--identity"];
        let ssh = text("ssh");
        verify.push(&ssh);
        verify.extend(encrypted.iter().map(String::as_str));
        setup.succeeds(&verify);
    }
}

/// The bytes of parts depend on the pages and their number, not on threads.
#[test]
fn parts_have_the_same_contents_at_any_number_of_threads() {
    let setup = Setup::with_noise(5);
    let contents = |threads: &str| -> Vec<Vec<u8>> {
        capture(&setup, &["--force", "--threads", threads], &PARTS[..2]);
        let read = |name: &&str| decrypted(&setup.path(name));
        PARTS[..2].iter().map(read).collect()
    };
    assert!(contents("1") == contents("4"));
}

#[test]
fn sets_that_are_not_whole_are_not_called_so() {
    let setup = set();
    let missing = with_key(&setup, &["info", "--json"], &PARTS[..2]);
    assert_eq!(missing.status.code(), Some(3));
    let found = json(&missing);
    assert_eq!(found["complete"], false);
    assert!(String::from_utf8_lossy(&missing.stdout).contains("is missing"), "{found}");
    // A part of another set.
    let mut other = Setup::new(&mut Machine::new(Era::V5_10));
    capture(&other, &[], &PARTS);
    fs::copy(other.path("2.age"), setup.path("other.age")).unwrap();
    let mixed = with_key(&setup, &["info"], &["1.age", "other.age", "3.age"]);
    assert_eq!(mixed.status.code(), Some(1), "{mixed:?}");
    assert!(String::from_utf8_lossy(&mixed.stderr).contains("are parts of different dumps"), "{mixed:?}");
    // A part for another key.
    other = Setup::with_noise(12);
    let (ssh, vmcore) = (text("ssh.pub"), ["vmcore", "1.age", "2.age", "3.age"]);
    other.succeeds(&[&["capture", "-q", "-d", "0", "--encrypt-to", &ssh], &vmcore[..]].concat());
    fs::copy(other.path("2.age"), setup.path("ssh.age")).unwrap();
    let wrong = with_key(&setup, &["info"], &["1.age", "ssh.age", "3.age"]);
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        wrong.status.code() == Some(1) && said.contains("ssh.age") && said.contains("none of which"),
        "{said}"
    );
    // A part that breaks off, and one with a byte that was changed.
    let whole = fs::read(setup.path("2.age")).unwrap();
    fs::write(setup.path("2.age"), &whole[..whole.len() / 2]).unwrap();
    let cut = with_key(&setup, &["info", "--json"], &PARTS);
    assert!(cut.status.code() == Some(3) && json(&cut)["complete"] == false, "{cut:?}");
    assert_eq!(with_key(&setup, &["verify"], &PARTS).status.code(), Some(3));
    let salvaged = with_key(&setup, &["convert", "-q"], &[&PARTS[..], &["salvaged"]].concat());
    assert_eq!(salvaged.status.code(), Some(3));
    setup.assert_incomplete("salvaged", 1..setup.image.expected(0).len() as u64);
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    fs::write(setup.path("2.age"), changed).unwrap();
    let verified = with_key(&setup, &["verify", "--json"], &PARTS);
    assert!(verified.status.code() == Some(3) && json(&verified)["intact"] == false, "{verified:?}");
    // One encrypted and the others not.
    fs::write(setup.path("2.age"), &whole).unwrap();
    fs::write(setup.path("plain"), decrypted(&setup.path("3.age"))).unwrap();
    assert!(with_key(&setup, &["verify"], &["1.age", "2.age", "plain"]).status.success());
}

/// Runs a capture of a set that may write files of so many blocks of 512 bytes.
fn limited(setup: &Setup, blocks: u64) -> Output {
    let limited = format!("ulimit -f {blocks}; exec \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limited, "sh", BINARY, "capture", "-d", "0", "--encrypt-to", &public(), "vmcore"]);
    command.args(PARTS).current_dir(setup.directory.path()).output().unwrap()
}

#[test]
fn full_disks_leave_an_incomplete_set() {
    let setup = Setup::with_noise(12);
    let output = limited(&setup, 3000);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("are marked incomplete and hold"), "{said}");
    let info = with_key(&setup, &["info", "--json"], &PARTS);
    assert!(info.status.code() == Some(3) && json(&info)["complete"] == false, "{info:?}");
    held_and_right(&setup, &PARTS);
    // There is room for no page.
    PARTS.iter().for_each(|part| fs::remove_file(setup.path(part)).unwrap());
    let output = limited(&setup, 64);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(PARTS.iter().all(|part| !setup.path(part).exists()));
}

#[test]
fn a_set_whose_capture_is_killed_opens_as_far_as_it_goes() {
    let setup = Setup::with_noise(48);
    let Some(disk) = Faulty::mount(&setup.path("disk")) else { return };
    let outputs = PARTS.map(|part| format!("disk/{part}"));
    let mut command = setup.command(&["capture", "-q", "-d", "0", "--encrypt-to", &public(), "vmcore"]);
    disk.killed(command.args(&outputs));
    for part in PARTS {
        fs::write(setup.path(part), disk.contents(part).unwrap_or_default()).unwrap();
    }
    // Of some, nothing may be on the disk yet.
    let is_there = |part: &&str| fs::metadata(setup.path(part)).unwrap().len() > 1 << 20;
    let parts: Vec<&str> = PARTS.into_iter().filter(|part| is_there(part)).collect();
    let info = with_key(&setup, &["info", "--json"], &parts);
    assert!(info.status.code() == Some(3) && json(&info)["complete"] == false, "{info:?}");
    held_and_right(&setup, &parts);
}

/// Asserts that some pages are there, and that none differs from memory.
fn held_and_right(setup: &Setup, names: &[&str]) {
    let salvaged = with_key(setup, &["convert", "-q", "--force"], &[names, &["held"]].concat());
    assert_eq!(salvaged.status.code(), Some(3), "{salvaged:?}");
    let pages = setup.image.expected(0).len() as u64;
    setup.assert_incomplete("held", 100..pages);
}

/// One disk of several is full: the others are whole, and none of them says that the set is.
#[test]
fn a_full_disk_ends_its_part_and_the_set_is_incomplete() {
    let setup = Setup::with_noise(12);
    let script = format!(
        "{BINARY} capture -d 0 --encrypt-to {} vmcore 1.age disk/2.age 3.age; code=$?; cp disk/2.age .; exit $code",
        public()
    );
    let output = with_disk_of("2M", setup.directory.path(), &script);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("cannot write to disk/2.age") && said.contains("are marked incomplete and hold"),
        "{said}"
    );
    let info = with_key(&setup, &["info", "--json"], &PARTS);
    assert!(info.status.code() == Some(3) && json(&info)["complete"] == false, "{info:?}");
    let alone = with_key(&setup, &["info", "--json"], &["1.age", "3.age"]);
    assert_eq!(json(&alone)["complete"], false);
    held_and_right(&setup, &PARTS);
}

#[test]
fn outputs_that_cannot_be_parts_are_refused() {
    let setup = Setup::small();
    let encrypt = ["capture", "--encrypt-to", &public(), "vmcore"];
    for (outputs, why) in [
        (&["out", "out"][..], "named twice"),
        (&["out", "./out"], "named twice"),
        (&["out", "-"], "parts have to be files"),
        (&["--checksums", "out", "more"], "leave out --checksums"),
        (&["-f", "kdump", "out", "more"], "leave out --format"),
        (&["out", "s3://bucket/more"], "name one URL"),
    ] {
        let output = setup.run(&[&encrypt[..], outputs].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)) && said.contains(why), "{outputs:?}: {said}");
        assert!(!setup.path("out").exists() && !setup.path("more").exists(), "{outputs:?}");
    }
    fs::write(setup.path("more"), "precious").unwrap();
    let said = setup.fails(&[&encrypt[..], &["out", "more"]].concat(), 1);
    assert!(said.contains("exists") && !setup.path("out").exists(), "{said}");
    assert_eq!(fs::read_to_string(setup.path("more")).unwrap(), "precious");
    // A directory that is not there: the other disk takes all.
    setup.succeeds(&[&encrypt[..], &["-d", "0", "there", "/nonexistent/part"]].concat());
    let found = json(&with_key(&setup, &["info", "--json"], &["there"]));
    assert_eq!(found["complete"], true, "{found}");
}

#[test]
fn limits_end_all_parts() {
    let setup = Setup::with_noise(12);
    let output = setup.run(
        &[&["capture", "-d", "0", "--size-limit", "2M", "--encrypt-to", &public(), "vmcore"], &PARTS[..]]
            .concat(),
    );
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    for part in PARTS {
        assert!(fs::metadata(setup.path(part)).unwrap().len() <= 2 << 20, "{part}");
    }
    held_and_right(&setup, &PARTS);
}

#[test]
fn facts_are_next_to_the_first_part() {
    let setup = Setup::small();
    capture(&setup, &["--facts"], &PARTS[..2]);
    assert!(setup.path("1.age.facts.json.zst.age").exists());
}

#[test]
fn makedumpfile_splits_for_the_holders_of_the_keys() {
    let setup = Setup::with_noise(8);
    let split = ["makedumpfile", "--split", "-c", "-d", "0", "vmcore", "a", "b"];
    let run =
        |line: &[&str]| setup.command(line).env("PAGEHAUL_RECIPIENTS", key("ssh.pub")).output().unwrap();
    let mut asked = split.to_vec();
    asked.insert(1, "--check-params");
    assert!(run(&asked).status.success());
    assert!(!setup.path("a").exists());
    let output = run(&split);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("The dumpfiles are saved to a, and b."), "{said}");
    let verified = setup.run(&["verify", "--identity", &text("ssh"), "a", "b"]);
    assert!(verified.status.success(), "{verified:?}");
    let joined = setup.run(&["convert", "-q", "--identity", &text("ssh"), "a", "b", "whole"]);
    assert!(joined.status.success(), "{joined:?}");
    assert_whole(&setup, &["whole"]);
}

/// The library reads parts page by page, as the Python package does.
#[test]
fn a_process_that_holds_the_keys_reads_the_set() {
    let setup = set();
    let paths = PARTS.map(|part| setup.path(part));
    pagehaul_encryption::hold(Some(&key("age.txt")), &paths).unwrap();
    let source = Source::open_all(&paths, MapPolicy::default()).unwrap();
    assert!(source.is_encrypted() && !source.is_incomplete());
    let mut view = source.memory().view();
    let mut scratch = [0; 4096];
    for pfn in setup.image.pfns() {
        let page = view.page(PhysAddr::of_4k_page(pfn), &mut scratch).unwrap();
        assert!(*page == setup.image.page(pfn), "{pfn:#x}");
    }
}
