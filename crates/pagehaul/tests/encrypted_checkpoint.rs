//! Encrypted checkpoints, with a stand-in for CRIU: holders of a key restart them exactly, everybody else is refused before anything is
//! touched, and nothing of one is ever in a file in the clear.
#![cfg(feature = "process")]

mod common {
    pub mod criu;
    pub mod generations;
    pub mod subject;
}

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use common::criu::{can_track_writes, said, stand_in, with_criu};
use common::generations::Generations;
use common::subject::{BINARY, Subject, tool, with_small_disk};
use serde_json::Value;
use tempfile::tempdir;

/// What a container begins and ends with.
const MAGIC: &[u8] = b"PAGEHAUL-CKPT";

fn key(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data").join(name);
    path.to_str().unwrap().to_owned()
}

/// The public key of a file of `age-keygen`.
fn public(name: &str) -> String {
    let secret = fs::read_to_string(key(name)).unwrap();
    secret.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap().to_owned()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Checks that a command was refused, with one sentence.
fn refused(output: &Output, part: &str) {
    assert_eq!(output.status.code(), Some(1), "{}", said(output));
    assert!(said(output).contains(part), "no {part:?} in {}", said(output));
    assert_eq!(said(output).trim_end().lines().count(), 1, "{}", said(output));
}

/// A key, and a file that has it and that of another.
fn two_keys(directory: &Path) -> String {
    let both = directory.join("both");
    let text = ["age.txt", "other.txt"].map(|name| fs::read_to_string(key(name)).unwrap()).concat();
    fs::write(&both, text).unwrap();
    both.to_str().unwrap().to_owned()
}

#[test]
fn holders_of_the_keys_restart_chains_of_encrypted_files_and_others() {
    let mut generations = Generations::new(&["24", "2", "churn"]);
    let keys = tempdir().unwrap();
    let both = two_keys(keys.path());
    let identity = ["--identity", both.as_str()];
    let to = [public("age.txt"), public("other.txt")].map(|key| ["--encrypt-to".to_owned(), key]);
    let take = |number: usize, options: &[&str]| {
        let base = number.checked_sub(1).map(|base| generations.path(base));
        generations.take(number, base.as_deref(), options)
    };
    let [one, other] = to.each_ref().map(|to| to.each_ref().map(String::as_str));
    assert_eq!(take(0, &[&one[..], &["-c", "zstd:3"]].concat())["encrypted"], true);
    assert_eq!(take(1, &[&one[..], &identity].concat())["encrypted"], true);
    let report = take(2, &identity);
    assert!(report["encrypted"] == false && report["notes"].to_string().contains("--encrypt-to"), "{report}");
    take(3, &[&one[..], &other, &identity].concat());
    let report = take(4, &[&other[..], &identity].concat());
    assert!(report["base"]["unchanged_bytes"].as_u64().unwrap() > 20 << 20, "{report}");
    generations.end();
    for number in [0, 1, 3, 4] {
        let bytes = fs::read(generations.path(number)).unwrap();
        assert!(bytes.starts_with(b"age-encryption.org/v1\n") && !has(&bytes, MAGIC), "{number}");
        let mode = fs::metadata(generations.path(number)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    (0..5).for_each(|number| generations.restarts_exactly_with(number, &identity));
    let newest = generations.path(4);
    let output = tool(&["verify"]).args(identity).arg(&newest).output().unwrap();
    assert!(output.status.success() && said(&output).ends_with("\nintact\n"), "{}", said(&output));
    let output = tool(&["info"]).args(identity).arg(&newest).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for part in ["encrypted (age), checkpoint of processes", "complete      yes", ", encrypted (age), "] {
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
    }
    let info = json(&tool(&["info", "--json"]).args(identity).arg(&newest).output().unwrap());
    let encrypted: Vec<&Value> =
        info["chain"].as_array().unwrap().iter().map(|file| &file["encrypted"]).collect();
    assert_eq!(encrypted, [true, true, false, true, true]);
    assert_eq!(info["file_bytes"], fs::metadata(&newest).unwrap().len());
    // One file of all: for another key, in place, and then in the clear, by a key from a pipe.
    let convert = ["convert", "--force", "--json", "--encrypt-to", &key("ssh.pub")];
    let report = json(&tool(&convert).args(identity).args([&newest, &newest]).output().unwrap());
    assert_eq!((&report["checkpoints"], &report["encrypted"]), (&5.into(), &true.into()));
    (0..4).for_each(|number| fs::remove_file(generations.path(number)).unwrap());
    assert!(!has(&fs::read(&newest).unwrap(), MAGIC));
    generations.restarts_exactly_with(4, &["--identity", &key("ssh")]);
    fs::rename(&newest, generations.path(3)).unwrap();
    let mut child = tool(&["convert", "-q", "--identity", "/dev/stdin"])
        .args([generations.path(3), newest])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(key("ssh")).unwrap()).unwrap();
    assert!(child.wait().unwrap().success());
    generations.restarts_exactly(4);
}

#[test]
fn a_key_from_a_pipe_opens_all_of_a_chain() {
    let mut generations = Generations::new(&["1", "1"]);
    generations.take_all(1, &["--encrypt-to", &key("ssh.pub")]);
    let base = generations.path(0);
    generations.take(1, Some(&base), &["--encrypt-to", &key("ssh.pub"), "--identity", &key("ssh")]);
    generations.end();
    let mut child = tool(&["verify", "--identity", "/dev/stdin"])
        .arg(generations.path(1))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&fs::read(key("ssh")).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).ends_with("\nintact\n"), "{}", said(&output));
    // Named by the environment.
    let output = tool(&["verify"]).arg(generations.path(1)).env("PAGEHAUL_IDENTITY", key("ssh")).output();
    assert!(output.unwrap().status.success());
    // By its directory.
    let directory = generations.directory.path().join("directory");
    fs::create_dir(&directory).unwrap();
    fs::rename(&base, directory.join("checkpoint.pagehaul")).unwrap();
    let output = tool(&["info", "--identity", &key("ssh")]).arg(&directory).output().unwrap();
    assert!(said(&output).contains("encrypted (age), checkpoint of processes"), "{}", said(&output));
    let output = tool(&["verify", "--identity", &key("ssh")]).arg(&directory).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    fs::remove_file(generations.path(1)).unwrap();
    fs::create_dir(generations.path(1)).unwrap();
    fs::rename(directory.join("checkpoint.pagehaul"), generations.path(1).join("checkpoint.pagehaul"))
        .unwrap();
    fs::rename(generations.memory(0), generations.memory(1)).unwrap();
    generations.restarts_exactly_with(1, &["--identity", &key("ssh")]);
}

#[test]
fn marks_of_writes_belong_to_encrypted_checkpoints_too() {
    if !can_track_writes() {
        eprintln!("not run: this kernel does not track writes");
        return;
    }
    let mut generations = Generations::new(&["24", "2", "churn"]);
    let options = ["--encrypt-to", &key("ssh.pub"), "--identity", &key("ssh"), "--keep-marks"];
    for (number, report) in generations.take_all(3, &options).iter().enumerate() {
        assert!(number == 0 || report["base"]["way"] == "marks", "{report}");
    }
    generations.end();
    (0..3).for_each(|number| generations.restarts_exactly_with(number, &["--identity", &key("ssh")]));
}

#[test]
fn without_the_key_nothing_is_touched() {
    let mut generations = Generations::new(&["1", "1"]);
    let (own, wrong) = (["--identity", &key("age.txt")], ["--identity", &key("other.txt")]);
    let to = ["--encrypt-to", &public("age.txt")];
    generations.take(0, None, &to);
    // Readable itself, but its base is not.
    generations.take(1, Some(&generations.path(0)), &own);
    let files = generations.files();
    let none: &[&str] = &[];
    let whole = generations.directory.path().join("whole");
    for (options, part) in [
        (none, "encrypted (age) to one recipient; name the file of a secret key by --identity"),
        (&wrong[..], "encrypted (age) to one recipient, none of which is the identity given"),
        (&["--identity", "/nonexistent/key"], "cannot read the identity in /nonexistent/key"),
        (&["--identity", &key("ssh.pub")], "expected secret keys"),
    ] {
        for number in [0, 1] {
            let path = generations.path(number);
            let base = generations.command(2, Some(&path), options).output().unwrap();
            refused(&base, part);
            let (output, was_touched) = generations.restart_with(number, options);
            refused(&output, part);
            assert!(!was_touched);
            refused(&tool(&["verify"]).args(options).arg(&path).output().unwrap(), part);
            refused(&tool(&["convert"]).args(options).args([&path, &whole]).output().unwrap(), part);
        }
        refused(&tool(&["info"]).args(options).arg(generations.path(0)).output().unwrap(), part);
    }
    // What can be said without the key of the base.
    let output = tool(&["info"]).arg(generations.path(1)).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("complete      no: ") && said(&output).contains("--identity"));
    assert_eq!(generations.files(), files, "a file is left");
    generations.subject.as_mut().unwrap().goes_on();
    generations.end();
    (0..2).for_each(|number| generations.restarts_exactly_with(number, &own));
}

#[test]
fn what_is_cut_or_changed_is_refused_before_anything_is_touched() {
    let mut generations = Generations::new(&["1", "1"]);
    let own = ["--identity", &key("age.txt")];
    generations.take(0, None, &["--encrypt-to", &public("age.txt"), "-c", "zstd:1"]);
    generations.take(1, Some(&generations.path(0)), &own);
    generations.end();
    let path = generations.path(0);
    let good = fs::read(&path).unwrap();
    // A piece of the age format, and what is before the first.
    let (piece, head) = ((64 << 10) + 16, 184);
    assert!(good.len() > head + piece && good.len() < head + 100 * piece);
    let cuts = [0, 10, head - 20, head + 100, head + piece, head + piece + 1, good.len() / 2, good.len() - 1];
    let cut = cuts.map(|length| good[..length].to_vec());
    let flips = (0..good.len()).step_by(good.len() / 20).chain([head + 5, good.len() - 1]);
    let flipped = flips.map(|at| {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    let more = [good.clone(), vec![0; 30]].concat();
    for (turn, bad) in cut.into_iter().chain(flipped).chain([more]).enumerate() {
        fs::write(&path, bad).unwrap();
        for number in [0, 1] {
            let (output, was_touched) = generations.restart_with(number, &own);
            refused(&output, "0.ckpt");
            assert!(!was_touched, "{turn}: CRIU was given images of it");
            let output = tool(&["verify"]).args(own).arg(generations.path(number)).output().unwrap();
            // 1 if it cannot be opened.
            assert!([Some(1), Some(3)].contains(&output.status.code()), "{turn}: {}", said(&output));
            let whole = generations.directory.path().join("whole");
            let convert = tool(&["convert"]).args(own).arg(generations.path(number)).arg(&whole).output();
            assert!(!convert.unwrap().status.success() && !whole.exists(), "{turn}");
        }
    }
    // Damage is named as such where the file can be opened.
    for (bad, part) in [
        (good[..good.len() - 1].to_vec(), "it is incomplete: the encrypted file (age) lacks its last piece"),
        (good[..head + piece].to_vec(), "it is incomplete: the encrypted file (age) lacks its last piece"),
        (
            [&good[..head + 50], &[good[head + 50] ^ 1], &good[head + 51..]].concat(),
            "is damaged or was changed",
        ),
    ] {
        fs::write(&path, bad).unwrap();
        let output = tool(&["verify"]).args(own).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", said(&output));
        assert!(said(&output).contains(part), "no {part:?} in {}", said(&output));
        refused(&generations.restart_with(0, &own).0, part);
    }
    fs::write(&path, good).unwrap();
    (0..2).for_each(|number| generations.restarts_exactly_with(number, &own));
}

/// Parts of the pages that the stand-in sends without end, which do not compress.
fn parts_of_pages() -> Vec<Vec<u8>> {
    let mut state = 1u64;
    let words = (0..2000).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let words: Vec<[u8; 8]> = words.collect();
    // The first have many zeros.
    words[1000..].chunks(8).step_by(10).map(<[_]>::concat).collect()
}

/// The first bytes of a file that may grow.
fn start_of(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = fs::File::open(path).and_then(|file| file.take(4 << 20).read_to_end(&mut bytes));
    bytes
}

/// What a process has in open files of a directory, which may have no names: the first bytes of each.
fn in_open_files(child: &Child, directory: &Path) -> Vec<u8> {
    let files = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten().map(|entry| entry.path());
    let is_file = |path: &PathBuf| fs::metadata(path).is_ok_and(|found| found.is_file());
    let is_below = |path: &PathBuf| fs::read_link(path).is_ok_and(|target| target.starts_with(directory));
    files.filter(|path| is_file(path) && is_below(path)).flat_map(|path| start_of(&path)).collect()
}

/// What is in files below a directory: the first bytes of each.
fn in_files(directory: &Path) -> Vec<u8> {
    let (mut all, mut next) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = next.pop() {
        match fs::read_dir(&path) {
            Ok(entries) => next.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) if path.is_file() => all.extend(start_of(&path)),
            Err(_) => {}
        }
    }
    all
}

#[test]
fn nothing_is_in_a_file_in_the_clear_and_a_signal_leaves_none() {
    let mut subject = Subject::start(&["1", "1"]);
    for is_encrypted in [false, true] {
        let (directory, temporary) = (tempdir().unwrap(), tempdir().unwrap());
        let path = directory.path().join("checkpoint");
        let mut command = with_criu("checkpoint");
        command.args(["-q", "--max-memory", "8M", &subject.pid()]).arg(&path).env("TMPDIR", temporary.path());
        if is_encrypted {
            command.args(["--encrypt-to", &key("ssh.pub")]);
        }
        let command = command.env("PRETEND", "endless").env("PAGES", "1");
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (written, temporary) = loop {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was told to");
            let written = in_open_files(&child, directory.path());
            if written.len() >= 4 << 20 {
                break (written, in_files(temporary.path()));
            }
            std::thread::yield_now();
        };
        let process = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(said(&output).contains("stopped before"), "{}", said(&output));
        // In a plain one, this finds both.
        assert_eq!(has(&written, MAGIC), !is_encrypted);
        let has_pages = |found: &[u8]| parts_of_pages().iter().any(|part| has(found, part));
        assert_eq!(has_pages(&written), !is_encrypted);
        assert!(!has_pages(&temporary));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "a file is left");
        subject.goes_on();
    }
}

#[test]
fn on_a_full_disk_there_is_no_checkpoint_and_the_process_goes_on() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let script = format!(
        "cd disk && echo precious > ckpt && PAGES=12 {BINARY} checkpoint -q --force --criu {} --encrypt-to '{}' {} ckpt; \
         code=$?; cat ckpt; ls | wc -l; exit $code",
        stand_in().display(),
        key("ssh.pub"),
        subject.pid()
    );
    let output = with_small_disk(directory.path(), &script);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "precious\n1\n");
    subject.goes_on();
}

#[test]
fn what_cannot_be_encrypted_is_not_written() {
    let directory = tempdir().unwrap();
    let mut subject = Subject::start(&["1", "1"]);
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (keys, secret, empty) = (file("keys"), file("secret"), file("empty"));
    fs::copy(key("ssh.pub"), &keys).unwrap();
    fs::copy(key("age.txt"), &secret).unwrap();
    fs::write(&empty, "# none\n").unwrap();
    let output = file("checkpoint");
    for options in [
        &["--encrypt-to", "age1nonsense", &subject.pid(), &output][..],
        &["--encrypt-to", "/nonexistent/keys", &subject.pid(), &output],
        &["--encrypt-to", "", &subject.pid(), &output],
        &["--encrypt-to", &empty, &subject.pid(), &output],
        &["--encrypt-to", &keys, &subject.pid(), &keys],
        &["--encrypt-to", &keys, "--identity", &secret, &subject.pid(), &secret],
        &["--encrypt-to", &keys, &subject.pid(), "-"],
    ] {
        let output = with_criu("checkpoint").arg("--force").args(options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", said(&output));
    }
    assert!(!Path::new(&output).exists());
    assert_eq!(fs::read(keys).unwrap(), fs::read(key("ssh.pub")).unwrap());
    assert_eq!(fs::read(secret).unwrap(), fs::read(key("age.txt")).unwrap());
    subject.goes_on();
}

#[test]
fn age_decrypts_a_checkpoint_and_encrypts_one() {
    if Command::new("age").arg("--version").output().is_err() {
        eprintln!("skipped: age is not installed");
        return;
    }
    let mut generations = Generations::new(&["4", "1"]);
    generations.take(0, None, &["--encrypt-to", &public("age.txt"), "--encrypt-to", &key("ssh.pub")]);
    generations.end();
    let (encrypted, by_age) = (generations.directory.path().join("encrypted"), generations.path(0));
    for identity in ["age.txt", "ssh"] {
        fs::rename(&by_age, &encrypted).unwrap();
        let private = generations.directory.path().join("key");
        fs::copy(key(identity), &private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        let mut age = Command::new("age");
        age.args(["-d", "-i"]).arg(&private).arg("-o").args([&by_age, &encrypted]);
        assert!(age.status().unwrap().success());
        generations.restarts_exactly(0);
        // And the other way round.
        fs::rename(&by_age, &encrypted).unwrap();
        let mut age = Command::new("age");
        age.args(["-r", &public("age.txt"), "-R", &key("ssh.pub"), "-o"]).args([&by_age, &encrypted]);
        assert!(age.status().unwrap().success());
        generations.restarts_exactly_with(0, &["--identity", &key(identity)]);
    }
}
