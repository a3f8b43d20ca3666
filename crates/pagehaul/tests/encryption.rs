//! Encrypted dumps: what their holders read, and what nobody else does.

mod common {
    pub mod faulty;
    pub mod keys;
    pub mod mounts;
    pub mod setup;
}

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::faulty::Faulty;
use common::keys::{decrypted, key, public, text};
use common::mounts::can_mount;
use common::setup::{self, Setup};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{Access, MapPolicy};
use pagehaul_synth::Content;
use pagehaul_test_support::server::{Response, Server};
use pagehaul_vmcore::Source;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;

/// A machine with `dump.age`, encrypted to a key of age and one of SSH, and `plain`, the same stream as it is.
fn encrypted() -> Setup {
    let setup = Setup::with_noise(2);
    setup.succeeds(&["capture", "-q", "-d", "0", "-f", "flattened", "vmcore", "plain"]);
    let (age, ssh) = (public(), text("ssh.pub"));
    setup.succeeds(&[
        "capture",
        "-q",
        "-d",
        "0",
        "--encrypt-to",
        &age,
        "--encrypt-to",
        &ssh,
        "vmcore",
        "dump.age",
    ]);
    setup
}

fn assert_decrypts_to_plain(setup: &Setup, encrypted: &str, identity: &str) {
    let convert = ["convert", "-q", "--force", "-f", "flattened", "--identity"];
    setup.succeeds(&[&convert[..], &[&text(identity), encrypted, "back"]].concat());
    assert!(fs::read(setup.path("back")).unwrap() == fs::read(setup.path("plain")).unwrap(), "{encrypted}");
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn holders_of_a_key_read_what_was_captured_and_nobody_else() {
    let setup = encrypted();
    let mode = fs::metadata(setup.path("dump.age")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut plain = json(&setup.succeeds(&["info", "--json", "plain"]));
    for identity in ["age.txt", "ssh"] {
        let mut found = json(&setup.succeeds(&["info", "--json", "--identity", &text(identity), "dump.age"]));
        assert_eq!(found["encrypted"], true);
        for of in [&mut found, &mut plain] {
            of["path"] = Value::Null;
            of["encrypted"] = Value::Null;
        }
        assert_eq!(found, plain);
        assert_decrypts_to_plain(&setup, "dump.age", identity);
    }
    let variable =
        setup.command(&["info", "dump.age"]).env("PAGEHAUL_IDENTITY", key("ssh")).output().unwrap();
    assert!(variable.status.success());
    assert!(setup.fails(&["info", "dump.age"], 1).contains("name the file of a secret key by --identity"));
    let other = setup.fails(&["info", "--identity", &text("other.txt"), "dump.age"], 1);
    assert!(other.contains("none of which is the identity given"), "{other}");
    let passphrase = setup.fails(&["info", "--identity", &text("ssh_passphrase"), "dump.age"], 1);
    assert!(passphrase.contains("has a passphrase"), "{passphrase}");
}

#[test]
fn an_encrypted_dump_is_intact_or_a_changed_byte_is_found() {
    let setup = encrypted();
    let identity = text("age.txt");
    let verify = ["verify", "--json", "--identity", &identity, "dump.age"];
    assert_eq!(json(&setup.succeeds(&verify))["intact"], true);
    let mut bytes = fs::read(setup.path("dump.age")).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(setup.path("dump.age"), &bytes).unwrap();
    let output = setup.run(&verify);
    assert_eq!(output.status.code(), Some(3));
    let found = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(found["intact"], false);
    assert!(found["faults"][0].as_str().unwrap().contains("is damaged or was changed"), "{found}");
}

#[test]
fn age_reads_what_is_captured_and_the_other_way_round() {
    if Command::new("age").arg("--version").output().is_err() {
        eprintln!("skipped: age is not installed");
        return;
    }
    let setup = encrypted();
    for identity in ["age.txt", "ssh"] {
        let private = setup.path("key");
        fs::copy(key(identity), &private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
        let age = Command::new("age")
            .arg("-d")
            .arg("-i")
            .arg(&private)
            .arg(setup.path("dump.age"))
            .output()
            .unwrap();
        assert!(age.status.success(), "{}", String::from_utf8_lossy(&age.stderr));
        assert_eq!(age.stdout, fs::read(setup.path("plain")).unwrap());
    }
    let ours = setup.succeeds(&["info", "--json", "plain"]);
    // A dump of any format, encrypted by hand to one recipient or to several.
    setup.succeeds(&["capture", "-q", "-d", "0", "vmcore", "kdump"]);
    for plain in ["kdump", "vmcore", "plain"] {
        let output = setup.path("by-age");
        let mut age = Command::new("age");
        age.args(["-r", &public(), "-R"]).arg(key("ssh.pub")).arg("-o").arg(&output).arg(setup.path(plain));
        assert!(age.status().unwrap().success());
        let found = json(&setup.succeeds(&["info", "--json", "--identity", &text("ssh"), "by-age"]));
        assert_eq!(found["release"], json(&ours)["release"], "{plain}");
        fs::remove_file(output).unwrap();
    }
}

#[test]
fn reports_next_to_an_encrypted_dump_are_encrypted() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "--facts", "--encrypt-to", &public(), "vmcore", "dump.age"]);
    let mut names: Vec<String> = fs::read_dir(setup.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["dump.age", "dump.age.facts.json.zst.age", "vmcore"]);
    let facts = setup.succeeds(&["facts", "--identity", &text("age.txt"), "dump.age.facts.json.zst.age"]);
    let of_dump = setup.succeeds(&["facts", "--identity", &text("age.txt"), "dump.age"]);
    assert_eq!(json(&facts)["crash_id"], json(&of_dump)["crash_id"]);
}

/// Neither the text of the log nor a name of a task is in any file of the directory of the dump.
#[test]
fn no_report_next_to_an_encrypted_dump_is_in_the_clear() {
    let setup = Setup::crashed();
    let capture = |options: &[&str], name: &str| {
        let line = [&["capture", "-q", "--facts", "--triage=60s"], options, &["vmcore", name]].concat();
        setup.succeeds(&line);
    };
    let in_the_clear = |name: &str| {
        let bytes = fs::read(setup.path(name)).unwrap();
        ["sysrq triggered", "writer"]
            .iter()
            .any(|word| bytes.windows(word.len()).any(|at| at == word.as_bytes()))
    };
    capture(&[], "plain");
    assert!(in_the_clear("plain.triage"));
    let before: Vec<_> =
        fs::read_dir(setup.directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    capture(&["--encrypt-to", &public()], "dump.age");
    let mut names: Vec<String> = fs::read_dir(setup.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| !before.contains(path))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["dump.age", "dump.age.facts.json.zst.age", "dump.age.triage.age"]);
    for name in names {
        assert!(fs::read(setup.path(&name)).unwrap().starts_with(b"age-encryption.org/v1\n"), "{name}");
        assert!(!in_the_clear(&name), "{name}");
    }
    let report = decrypted(&setup.path("dump.age.triage.age"));
    assert!(String::from_utf8(report).unwrap().contains("sysrq triggered"));
}

#[test]
fn what_cannot_be_encrypted_writes_nothing() {
    let setup = Setup::small();
    let one = public();
    for (options, why) in [
        (&["--encrypt-to", "age1notakey"][..], "expected a recipient"),
        (&["--encrypt-to", "/nonexistent/keys"], "cannot read the recipients in /nonexistent/keys"),
        (&["--encrypt-to", &one, "--checksums"], "leave out --checksums"),
        (&["--encrypt-to", &one, "-f", "kdump"], "leave out --format"),
    ] {
        let said = setup.fails(&[&["capture", "vmcore", "out"], options].concat(), 2);
        assert!(said.contains(why), "{said}");
        assert!(!setup.path("out").exists());
    }
    fs::write(setup.path("out"), "precious").unwrap();
    assert!(setup.fails(&["capture", "--encrypt-to", &one, "vmcore", "out"], 1).contains("exists"));
    // What is no vmcore replaces nothing.
    fs::write(setup.path("broken"), [0; 4096]).unwrap();
    setup.fails(&["capture", "--force", "--encrypt-to", &one, "broken", "out"], 1);
    assert_eq!(fs::read_to_string(setup.path("out")).unwrap(), "precious");
}

#[test]
fn a_file_of_recipients_is_named_with_its_line() {
    let setup = Setup::small();
    fs::write(setup.path("keys"), format!("# analysts\n{}\nage1wrong\n", public())).unwrap();
    let said = setup.fails(&["capture", "--encrypt-to", "keys", "vmcore", "out"], 2);
    assert!(said.contains("keys, line 3: expected a recipient"), "{said}");
    fs::write(setup.path("keys"), "# none\n").unwrap();
    let said = setup.fails(&["capture", "--encrypt-to", "keys", "vmcore", "out"], 2);
    assert!(said.contains("keys has no recipient"), "{said}");
    rustix::fs::mkfifoat(rustix::fs::CWD, setup.path("pipe"), rustix::fs::Mode::from_raw_mode(0o600))
        .unwrap();
    let said = setup.fails(&["capture", "--encrypt-to", "pipe", "vmcore", "out"], 2);
    assert!(said.contains("pipe has no recipient"), "{said}");
}

#[test]
fn convert_encrypts_and_decrypts_dumps_of_every_format() {
    let setup = encrypted();
    fs::write(setup.path("keys"), public()).unwrap();
    setup.succeeds(&["capture", "-q", "-d", "0", "vmcore", "kdump"]);
    for source in ["kdump", "vmcore", "plain"] {
        setup.succeeds(&["convert", "-q", "--force", "--encrypt-to", "keys", source, "out.age"]);
        assert_decrypts_to_plain(&setup, "out.age", "age.txt");
    }
    // To another key.
    let ssh = text("ssh.pub");
    setup.succeeds(&[
        "convert",
        "-q",
        "--identity",
        &text("age.txt"),
        "--encrypt-to",
        &ssh,
        "dump.age",
        "ssh.age",
    ]);
    setup.succeeds(&["info", "--identity", &text("ssh"), "ssh.age"]);
    setup.fails(&["info", "--identity", &text("age.txt"), "ssh.age"], 1);
}

#[test]
fn reports_of_a_replaced_dump_are_named() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "--facts", "vmcore", "dump"]);
    let output = setup.run(&["capture", "-q", "--force", "--encrypt-to", &public(), "vmcore", "dump"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success());
    assert_eq!(said, "pagehaul: dump.facts.json.zst is there from another dump, and not encrypted\n");
    // What age writes with --armor is text.
    fs::write(setup.path("armored"), "-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n").unwrap();
    assert!(setup.fails(&["info", "armored"], 1).contains("`age -d` decrypts it"));
}

#[test]
fn keys_are_not_replaced() {
    let setup = encrypted();
    let secret = fs::read(key("age.txt")).unwrap();
    fs::write(setup.path("key"), &secret).unwrap();
    fs::write(setup.path("keys"), public()).unwrap();
    let convert = setup.fails(&["convert", "--force", "--identity", "key", "dump.age", "key"], 2);
    assert!(convert.contains("key has the keys"), "{convert}");
    setup.fails(&["pages", "--force", "--identity", "key", "--html", "key", "dump.age"], 1);
    setup.fails(&["capture", "--force", "--encrypt-to", "keys", "vmcore", "keys"], 2);
    assert_eq!(fs::read(setup.path("key")).unwrap(), secret);
    assert_eq!(fs::read_to_string(setup.path("keys")).unwrap(), public());
}

#[test]
fn a_full_disk_leaves_an_incomplete_dump() {
    let setup = Setup::with_noise(2);
    let capture = |blocks: u32| {
        // Writing more fails, as on a full disk.
        let limited = format!(
            "ulimit -f {blocks}; exec \"$@\"; exit 9 # {}",
            "RLIMIT_FSIZE counts blocks of 512 bytes"
        );
        let arguments = ["-c", &limited, "sh", setup::BINARY, "capture", "-d", "0", "--encrypt-to"];
        let mut command = Command::new("sh");
        command.args(arguments).args([&public(), "vmcore", "cut.age"]).current_dir(setup.directory.path());
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = capture(4096);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("is an incomplete dump of what was written before"), "{said}");
    let info = setup.run(&["info", "--json", "--identity", &text("age.txt"), "cut.age"]);
    assert_eq!(info.status.code(), Some(3));
    fs::remove_file(setup.path("cut.age")).unwrap();
    // No page is in this.
    let (code, said) = capture(64);
    assert_eq!(code, Some(1), "{said}");
    assert!(!setup.path("cut.age").exists());
}

/// A damaged chunk of 64 KiB cannot be decrypted, though the dump says that it is complete.
#[test]
fn no_report_of_a_damaged_dump_claims_success() {
    let setup = Setup::crashed();
    setup.succeeds(&[
        "capture",
        "-q",
        "-d",
        "0",
        "-c",
        "none",
        "--encrypt-to",
        &public(),
        "vmcore",
        "whole.age",
    ]);
    let (whole, identity) = (fs::read(setup.path("whole.age")).unwrap(), text("age.txt"));
    let commands = [
        &["dmesg"][..],
        &["info"],
        &["triage"],
        &["triage", "--tasks"],
        &["facts"],
        &["pages"],
        &["pages", "--owners"],
    ];
    let run = |command: &[&str], name: &str| setup.run(&[command, &["--identity", &identity, name]].concat());
    let expected: Vec<Vec<u8>> = commands.iter().map(|command| run(command, "whole.age").stdout).collect();
    let mut found = 0;
    for at in (1..16).map(|part| whole.len() * part / 16) {
        let mut bytes = whole.clone();
        bytes[at..at + 64].fill(0x55);
        // Reports name the file.
        fs::write(setup.path("whole.age"), bytes).unwrap();
        for (command, expected) in commands.iter().zip(&expected) {
            let output = run(command, "whole.age");
            let differs = output.stdout != *expected;
            found += usize::from(differs);
            assert!(!differs || !output.status.success(), "{command:?}, byte {at}: {output:?}");
        }
    }
    assert!(found > 0, "nothing that is needed was damaged");
}

#[test]
fn a_capture_that_is_killed_leaves_a_dump_that_is_incomplete() {
    let setup = Setup::with_noise(8);
    let Some(disk) = Faulty::mount(&setup.path("disk")) else { return };
    disk.killed(&mut setup.command(&[
        "capture",
        "-q",
        "-d",
        "0",
        "--encrypt-to",
        &public(),
        "vmcore",
        "disk/cut.age",
    ]));
    fs::write(setup.path("cut.age"), disk.contents("cut.age").unwrap()).unwrap();
    assert!(fs::metadata(setup.path("cut.age")).unwrap().len() > 1 << 20);
    let identity = text("age.txt");
    let verify = setup.run(&["verify", "--identity", &identity, "cut.age"]);
    let said = String::from_utf8(verify.stdout).unwrap();
    assert!(
        said.contains("\nwhat is there is unchanged since") && said.ends_with("DAMAGED OR INCOMPLETE\n"),
        "{said}"
    );
    for command in ["info", "verify"] {
        setup.fails(&[command, "--identity", &identity, "cut.age"], 3);
    }
    let found = setup.run(&["info", "--json", "--identity", &identity, "cut.age"]);
    let found = json(&String::from_utf8(found.stdout).unwrap());
    assert_eq!(found["complete"], false, "{found}");
    if let Ok(age) =
        Command::new("age").args(["-d", "-i"]).arg(key("age.txt")).arg(setup.path("cut.age")).output()
    {
        assert!(!age.status.success());
    }
}

#[test]
fn a_variable_that_is_left_over_fails_only_what_needs_a_key() {
    let setup = encrypted();
    let info = |dump: &str| {
        let mut command = setup.command(&["info", dump]);
        command.env("PAGEHAUL_IDENTITY", "/nonexistent/key").output().unwrap()
    };
    assert!(info("plain").status.success());
    let said = String::from_utf8(info("dump.age").stderr).unwrap();
    assert!(said.contains("cannot read the identity in /nonexistent/key"), "{said}");
}

#[test]
fn a_changed_piece_costs_the_pages_in_it() {
    let setup = encrypted();
    let whole = fs::read(setup.path("dump.age")).unwrap();
    let identity = text("age.txt");
    // The first pieces have the headers and bitmaps.
    for at in (200_000..whole.len()).step_by(150_000).chain([whole.len() - 40_000, whole.len() - 20]) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(setup.path("cut.age"), &bytes).unwrap();
        let said = setup.fails(&["verify", "--identity", &identity, "cut.age"], 3);
        let info = setup.run(&["info", "--identity", &identity, "cut.age"]);
        assert!([Some(0), Some(3)].contains(&info.status.code()), "{at}: {said}");
        let salvaged = setup.run(&["convert", "-q", "--force", "--identity", &identity, "cut.age", "out"]);
        assert!([Some(0), Some(3)].contains(&salvaged.status.code()), "{at}");
    }
}

#[test]
fn an_encrypted_dump_on_a_server_is_fetched_once_to_verify_it() {
    let setup = Setup::with_noise(8);
    let (fetched, size) = fetched(&setup, &["verify"]);
    // Headers and the end are read ahead a second time.
    assert!((size..size + size / 2).contains(&fetched), "{fetched} of {size} bytes");
}

#[test]
fn of_an_encrypted_dump_on_a_server_only_what_is_needed_is_fetched() {
    let setup = Setup::with_noise(64);
    let (info, size) = fetched(&setup, &["info"]);
    let (page, _) = fetched(&setup, &["read", "--phys", "0x5000000", "--len", "4096"]);
    for fetched in [info, page] {
        assert!(fetched < size / 4, "{fetched} of {size} bytes");
    }
}

/// A crashed machine with so much noise that what a report needs is a small part of it.
fn crashed_among_noise() -> Setup {
    Setup::crashed_with(|machine| {
        for pfn in (0x4100..0x4f00).chain(0x6100..0x6a00) {
            machine.fill(pfn, Content::Random);
        }
    })
}

#[test]
fn a_report_of_an_encrypted_dump_on_a_server_fetches_what_it_needs() {
    let setup = crashed_among_noise();
    for command in
        [&["triage"][..], &["facts"], &["dmesg"], &["read", "--phys", "0x4800000", "--len", "4096"]]
    {
        let (fetched, size) = fetched(&setup, command);
        assert!(size > 16 << 20 && fetched < size / 4, "{command:?}: {fetched} of {size} bytes");
    }
}

/// Bytes that a process has read.
fn read_by(pid: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn commands_on_an_encrypted_file_read_what_they_need() {
    let setup = crashed_among_noise();
    setup.succeeds(&["capture", "-q", "-d", "0", "--encrypt-to", &public(), "vmcore", "dump.age"]);
    let size = fs::metadata(setup.path("dump.age")).unwrap().len();
    let identity = text("age.txt");
    let read = |command: &[&str]| {
        let mut command = setup.command(&[command, &["--identity", &identity, "dump.age"]].concat());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // Its counters are there until it is waited for.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), options).unwrap();
        let read = read_by(child.id());
        assert!(child.wait().unwrap().success());
        read
    };
    for command in [&["info"][..], &["triage"], &["dmesg"], &["read", "--phys", "0x4800000", "--len", "4096"]]
    {
        let read = read(command);
        assert!(read < size / 4, "{command:?}: {read} of {size} bytes");
    }
    // The counters see what is read: this is all of it.
    let verified = read(&["verify"]);
    assert!(verified >= size, "{verified} of {size} bytes");
}

/// A mount that ends with its test, also one that fails: it would hold the outputs of the tests open.
struct Mount(Child);

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let _ = rustix::process::kill_process(Pid::from_child(&self.0), rustix::process::Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

#[test]
fn a_mount_of_an_encrypted_file_reads_what_is_read_of_it() {
    if !can_mount() {
        return;
    }
    let setup = crashed_among_noise();
    setup.succeeds(&["capture", "-q", "-d", "0", "--encrypt-to", &public(), "vmcore", "dump.age"]);
    let size = fs::metadata(setup.path("dump.age")).unwrap().len();
    let directory = setup.path("mnt");
    fs::create_dir(&directory).unwrap();
    let mut command = setup.command(&["mount", "--identity", &text("age.txt"), "dump.age", "mnt"]);
    let mut mount = Mount(command.stdout(Stdio::piped()).spawn().unwrap());
    let child = &mut mount.0;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("mounted on "), "{line}");
    let opened = read_by(child.id());
    let mounted =
        Source::open(&directory.join("vmcore"), MapPolicy { access: Access::Read, ..MapPolicy::default() });
    let mounted = mounted.unwrap();
    let mut scratch = [0; 4096];
    for pfn in [0x4800, 0x4c00] {
        let page = mounted.memory().view().page(PhysAddr::of_4k_page(pfn), &mut scratch).unwrap().to_vec();
        assert!(page == setup.image.page(pfn), "{pfn:#x}");
    }
    let read = read_by(child.id());
    drop(mounted);
    rustix::process::kill_process(Pid::from_child(child), rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(opened < size / 4, "{opened} of {size} bytes to mount it");
    assert!(read > opened && read < size / 4, "{read} of {size} bytes");
}

/// Runs a command on an encrypted dump on a server. Returns the bytes that it fetched, and those of the dump.
fn fetched(setup: &Setup, command: &[&str]) -> (u64, u64) {
    setup.succeeds(&["capture", "-q", "--force", "-d", "0", "--encrypt-to", &public(), "vmcore", "dump.age"]);
    let dump = fs::read(setup.path("dump.age")).unwrap();
    let size = dump.len() as u64;
    let fetched = Arc::new(AtomicU64::new(0));
    let count = fetched.clone();
    let server = Server::start(move |request| {
        if request.target != "/dump.age" {
            return Response::status(404, "");
        }
        let response = Response::range(request, &dump, "v1");
        count.fetch_add(response.body.len() as u64, Ordering::Relaxed);
        response
    });
    let url = server.url("/dump.age");
    let output = setup.run(&[command, &["--identity", &text("age.txt"), &url]].concat());
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    (fetched.load(Ordering::Relaxed), size)
}
