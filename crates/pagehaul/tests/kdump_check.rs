//! `pagehaul kdump check` and `kdump report` on copies of a machine's files. What it finds is tested in `crates/kdump-setup/tests`.
#![cfg(feature = "kdump-setup")]

#[path = "common/setup.rs"]
mod setup;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use setup::Setup;

const GOOD: &[(&str, &str)] = &[
    ("proc/cmdline", "crashkernel=256M"),
    ("proc/meminfo", "MemTotal: 8000000 kB\nMemFree: 8000000 kB\n"),
    ("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"),
    ("proc/sys/kernel/osrelease", "6.12.107+deb13-amd64"),
    ("proc/sys/kernel/panic_on_oops", "1"),
    ("proc/sys/kernel/softlockup_panic", "1"),
    ("sys/kernel/kexec_crash_size", "268435456"),
    ("sys/kernel/kexec_crash_loaded", "1"),
    ("sys/devices/system/cpu/online", "0-3"),
    ("etc/default/kdump-tools", "USE_KDUMP=1\n"),
    ("usr/bin/makedumpfile", "#!/bin/sh\nexec pagehaul makedumpfile \"$@\"\n"),
    ("usr/sbin/kexec", "#!/bin/sh\n"),
    ("usr/sbin/mkinitramfs", ""),
    ("boot/vmlinuz-6.12.107+deb13-amd64", "kernel"),
    ("usr/lib/udev/rules.d/50-kdump-tools.rules", ""),
    ("var/crash/README", ""),
];

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn good(root: &Path) {
    for (name, text) in GOOD {
        write(root, name, text);
    }
    for program in ["usr/bin/makedumpfile", "usr/sbin/kexec"] {
        fs::set_permissions(root.join(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // An archive with an init, as the kernel unpacks it.
    let entry = |name: &str| {
        let fields = (0..13).map(|field| format!("{:08x}", if field == 11 { name.len() + 1 } else { 0 }));
        let mut entry = format!("070701{}{name}\0", fields.collect::<String>());
        entry += &"\0".repeat(entry.len().next_multiple_of(4) - entry.len());
        entry
    };
    write(root, "var/lib/kdump/initrd.img", &(entry("init") + &entry("TRAILER!!!")));
}

fn check(root: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
    let output = command.args(["kdump", "check", "--root"]).arg(root).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_exit_status_says_how_bad_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    let (code, text) = check(root, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\nnot checked: units: no directory of systemd's units is there"), "{text}");
    assert!(text.starts_with("Linux 6.12.107+deb13-amd64, 7.9 GiB, 4 CPUs, kdump-tools"), "{text}");
    let (code, text) = check(root, &["--capture-cpus", "4"]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("warning  the capture kernel starts 1 of the 4 CPUs"), "{text}");
    // Whose dump is larger than it should be.
    write(root, "etc/default/kdump-tools", "USE_KDUMP=1\nMAKEDUMP_ARGS=\"-F -c -d x\"\n");
    let (code, text) = check(root, &[]);
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("warning  the dump level is x"), "{text}");
    write(root, "etc/default/kdump-tools", "USE_KDUMP=1\n");
    write(root, "sys/kernel/kexec_crash_loaded", "0");
    let (code, text) = check(root, &["--json"]);
    assert_eq!(code, Some(3), "{text}");
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["loaded"], false);
    assert_eq!(report["findings"][0]["id"], "not-loaded");
    assert_eq!(report["findings"][0]["severity"], "problem");
    assert_eq!(report["findings"][0]["fix"], "kdump-config unload; kdump-config load");
    assert_eq!(report["findings"][0]["link"], "kernel");
    assert_eq!(report["chain"].as_array().unwrap().len(), 10);
    assert_eq!(report["chain"][3]["state"], "broken");
}

#[test]
fn each_link_is_printed_with_its_evidence() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    let (code, text) = check(root, &["-v"]);
    assert_eq!(code, Some(0), "{text}");
    for line in [
        "firmware      ok\n              no UEFI",
        "reservation   ok\n              256M are reserved",
        "initramfs     ok\n              /var/lib/kdump/initrd.img has 1 files, and an init",
        "units         not checked\n",
        "not checked: the next boot: no configuration of GRUB",
        "program       ok\n              /usr/bin/makedumpfile is executable and whole",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    fs::write(root.join("var/lib/kdump/initrd.img"), "cut").unwrap();
    let (code, text) = check(root, &["-v"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("\ninitramfs     BROKEN\n"), "{text}");
}

#[test]
fn options_are_refused_as_in_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    for (options, reason) in [
        ("-c -d 31 --conf /etc/erase", "--config is refused: data cannot be erased"),
        ("-c -d 32", "Dump_level(32) is invalid."),
        ("-E -l", "do not go together"),
    ] {
        write(root, "etc/default/kdump-tools", &format!("USE_KDUMP=1\nMAKEDUMP_ARGS=\"{options}\"\n"));
        let (code, text) = check(root, &[]);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("[refused-option]") && text.contains(reason), "{text}");
    }
    // Only where dumps are to be encrypted.
    write(root, "etc/default/kdump-tools", "USE_KDUMP=1\nMAKEDUMP_ARGS=\"-E -d 31\"\n");
    assert!(!check(root, &[]).1.contains("refused-option"));
    write(root, "etc/pagehaul/recipients", include_str!("../../encryption/tests/data/ssh.pub"));
    let (code, text) = check(root, &[]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("[refused-option]") && text.contains("-E cannot be encrypted"), "{text}");
}

#[test]
fn recipients_that_lead_nowhere_are_no_recipients() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    write(root, "etc/pagehaul/other", "");
    std::os::unix::fs::symlink("nowhere", root.join("etc/pagehaul/recipients")).unwrap();
    let (code, text) = check(root, &[]);
    assert!(code == Some(3) && text.contains("it is a link to a file that does not exist"), "{text}");
    fs::remove_file(root.join("etc/pagehaul/recipients")).unwrap();
    let (code, text) = check(root, &[]);
    assert!(code == Some(0) && !text.contains("recipients"), "{text}");
}

#[test]
fn a_report_without_a_dump_names_the_newest_records_of_pstore() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    let report = || {
        let output = run_report(root);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = report();
    assert!(code == Some(1) && said.contains("no dump in /var/crash"), "{said}");
    assert!(!said.contains("pstore"), "{said}");
    // systemd-pstore's layout of EFI variables.
    for (event, seconds) in [("1700000000", 1_700_000_000), ("1700009999", 1_700_009_999)] {
        let name = format!("var/lib/systemd/pstore/{event}/001/dmesg-efi-{event}01001");
        write(root, &name, "Panic#1 Part1\n<0>[    1.0] Kernel panic - not syncing: sysrq\n");
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        fs::File::options().write(true).open(root.join(name)).unwrap().set_modified(time).unwrap();
        write(root, &format!("var/lib/systemd/pstore/{event}/001/dmesg.txt"), "later");
    }
    // Neither of these is one.
    write(root, "sys/fs/pstore/dmesg-efi-empty", "");
    write(root, "sys/fs/pstore/dmesg-efi-other", "random");
    fs::create_dir(root.join("sys/fs/pstore/dmesg-directory")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", root.join("sys/fs/pstore/dmesg-link")).unwrap();
    let (code, said) = report();
    assert_eq!(code, Some(1), "{said}");
    let record =
        format!("{}/var/lib/systemd/pstore/1700009999/001/dmesg-efi-170000999901001", root.display());
    assert!(said.contains("written 2023-11-15"), "{said}");
    assert!(said.contains(&format!("`pagehaul triage {record}`")), "{said}");
    // Without kdump, too.
    let config = root.join("etc/default/kdump-tools");
    let content = fs::read(&config).unwrap();
    fs::remove_file(&config).unwrap();
    let (code, said) = report();
    assert!(code == Some(1) && said.contains("no kdump of a distribution is installed"), "{said}");
    assert!(said.contains(&format!("`pagehaul triage {record}`")), "{said}");
    fs::write(&config, content).unwrap();
    // The pattern of several is not also that of a directory.
    let second = record.replace("01001", "01002");
    fs::copy(&record, &second).unwrap();
    let parent = Path::new(&record).parent().unwrap();
    let (_, said) = report();
    assert!(said.contains(&format!("`pagehaul triage {}/dmesg-*`", parent.display())), "{said}");
    fs::create_dir(parent.join("dmesg-directory")).unwrap();
    let (_, said) = report();
    assert!(said.contains(&format!("`pagehaul triage {record} {second}`")), "{said}");
    fs::remove_dir(parent.join("dmesg-directory")).unwrap();
    fs::remove_file(&second).unwrap();
    // A part that was written in the second before is of the same event, and one of another event of the boot is not.
    let before = record.replace("1700009999", "1700009998").replace("01001", "02001");
    for path in [&before, &before.replace("/001/", "/002/")] {
        fs::create_dir_all(Path::new(path).parent().unwrap()).unwrap();
        fs::copy(&record, path).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_009_998);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let (_, said) = report();
    assert!(said.contains(&format!("`pagehaul triage {record} {before}`")), "{said}");
    fs::remove_dir_all(root.join("var/lib/systemd/pstore/1700009998")).unwrap();
    // What systemd-pstore makes of it is read in its place, and a word of the shell has quotes.
    fs::remove_file(&record).unwrap();
    let kept = root.join("var/lib/systemd/pstore/it's odd");
    fs::rename(root.join("var/lib/systemd/pstore/1700009999"), &kept).unwrap();
    fs::write(kept.join("001/dmesg.txt"), "Panic#1 Part1\n<0>[    1.0] Kernel panic - not syncing: sysrq\n")
        .unwrap();
    let (_, said) = report();
    assert!(said.contains("/pstore/it'\\''s odd/001/dmesg.txt'`"), "{said}");
}

#[test]
fn an_encrypted_dump_is_reported_as_far_as_its_key_is_there() {
    let setup = Setup::small();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data");
    let recipient = keys.join("ssh.pub");
    setup.succeeds(&["capture", "-q", "--encrypt-to", recipient.to_str().unwrap(), "vmcore", "whole"]);
    let whole = fs::read(setup.path("whole")).unwrap();
    fs::create_dir_all(root.join("var/crash/1")).unwrap();
    let report = |identity: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
        command.env("PAGEHAUL_IDENTITY", identity).args(["kdump", "report", "--json", "--root"]);
        let output = command.arg(root).output().unwrap();
        let json = serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default();
        (output.status.code(), json["complete"].clone(), json["encrypted"].clone())
    };
    let none = Path::new("");
    let header = whole.windows(5).position(|text| text == b"\n--- ").unwrap() + 49;
    for (bytes, name, identity, expected) in [
        (whole.len(), "dump.1", none, (Some(4), Value::Null, true.into())),
        (whole.len(), "dump.1", &*keys.join("ssh"), (Some(0), true.into(), true.into())),
        (whole.len() / 2, "dump.1", &*keys.join("ssh"), (Some(3), false.into(), true.into())),
        (whole.len() / 2, "dump.1", none, (Some(4), Value::Null, true.into())),
        (whole.len(), "dump-incomplete", none, (Some(3), false.into(), true.into())),
        (whole.len(), "dump.1", &*keys.join("other.txt"), (Some(4), Value::Null, true.into())),
        // Cut in its header, behind it, and in its first piece, which a key alone shows.
        (100, "dump.1", none, (Some(3), false.into(), true.into())),
        (100, "dump.1", &*keys.join("ssh"), (Some(3), false.into(), true.into())),
        (header + 20, "dump.1", none, (Some(3), false.into(), true.into())),
        (header + 2000, "dump.1", &*keys.join("ssh"), (Some(3), false.into(), true.into())),
    ] {
        let dump = root.join("var/crash/1").join(name);
        fs::write(&dump, &whole[..bytes]).unwrap();
        assert_eq!(report(identity), expected, "{bytes} {name} {}", identity.display());
        fs::remove_file(dump).unwrap();
    }
}

fn run_report(root: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
    command.args(["kdump", "report", "--root"]).arg(root).output().unwrap()
}

#[test]
fn a_truncated_dump_is_reported_as_incomplete() {
    let setup = Setup::small();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    setup.succeeds(&["makedumpfile", "-l", "-d", "0", "vmcore", "whole"]);
    let whole = fs::read(setup.path("whole")).unwrap();
    let record = "var/lib/systemd/pstore/1/dmesg-ramoops-0";
    write(root, record, "Panic#1 Part1\n<0>[    1.0] Kernel panic - not syncing: sysrq\n");
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_009_999);
    fs::File::options().write(true).open(root.join(record)).unwrap().set_modified(time).unwrap();
    for (bytes, code, word) in
        [(whole.len(), 0, "complete"), (whole.len() - 1, 3, "INCOMPLETE"), (whole.len() / 2, 3, "INCOMPLETE")]
    {
        fs::create_dir_all(root.join("var/crash/1")).unwrap();
        fs::write(root.join("var/crash/1/dump.1"), &whole[..bytes]).unwrap();
        let output = run_report(root);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{bytes} {text}");
        assert!(text.contains(&format!("/dump.1: {word}, ")), "{text}");
        // The log may be that of another crash.
        assert!(text.contains("a kernel's log, too, written 2023-11-15"), "{text}");
        assert!(text.contains(&format!("`pagehaul triage {}/{record}`", root.display())), "{text}");
    }
}

#[test]
fn a_dump_that_ends_in_its_headers_is_reported_as_incomplete() {
    let setup = Setup::small();
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    setup.succeeds(&["makedumpfile", "-l", "-d", "0", "vmcore", "whole"]);
    let whole = fs::read(setup.path("whole")).unwrap();
    fs::create_dir_all(root.join("var/crash/1")).unwrap();
    for (name, bytes, why) in [
        ("dump-incomplete", 0, "it is empty"),
        ("dump-incomplete", 1000, "it ends in its headers"),
        ("dump-incomplete", 5000, "it ends in its headers"),
        ("vmcore-incomplete", 5000, "it ends in its headers"),
        ("dump.1", 5000, "no page of it can be read"),
        ("dump.1", 0, "it is empty"),
    ] {
        let path = root.join("var/crash/1").join(name);
        fs::write(&path, &whole[..bytes]).unwrap();
        let output = run_report(root);
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(3), "{name} {bytes} {text}{said}");
        assert!(text.contains(&format!("/{name}: INCOMPLETE, ")), "{text}");
        assert!(text.lines().any(|line| line.starts_with(why)), "{name} {bytes} {text}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn line_ends_of_dos_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    good(root);
    fs::remove_file(root.join("etc/default/kdump-tools")).unwrap();
    write(root, "etc/kdump.conf", "path /var/crash\r\ncore_collector makedumpfile -l -d 31\r\n");
    let (_, text) = check(root, &["--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let found = report["findings"].as_array().unwrap();
    let found = found.iter().find(|finding| finding["id"] == "broken-configuration").unwrap();
    assert_eq!(found["severity"], "warning", "{text}");
    assert!(found["what"].as_str().unwrap().contains("/etc/kdump.conf, line 1: "), "{text}");
}
