//! What the program says where something fails: the cause, once, and what to do.

mod common;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{OOPS, facts, fleet, machine, succeeds};
use pagehaul_synth::Era;
use serde_json::Value;

fn dump() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    machine(Era::V6_12, "billing", &OOPS).build().elf().write(&directory.path().join("oops")).unwrap();
    directory
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn causes_are_said_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("bad.json"), "{").unwrap();
    for arguments in [
        &["extract", "absent", "--to", "tables"][..],
        &["extract", "bad.json", "--to", "tables"],
        &["metrics", "absent"],
        &["compact", "absent"],
        &["report", "absent"],
        &["extract", "absent", "--to", "tables", "--redact", "absent"],
    ] {
        let said = said(&fleet(directory.path(), arguments));
        assert!(said.lines().count() == 1 && said.len() > 20, "{arguments:?}: {said}");
        for cause in ["No such file", "os error", "EOF", "absent: cannot open absent: "] {
            assert!(said.matches(cause).count() <= 1, "{arguments:?}: {said}");
        }
    }
}

/// What a damaged dump lacks is no failure; what could not be written of a dump is, as on a full disk.
#[test]
fn tables_that_cannot_be_written_are_a_failure() {
    let directory = dump();
    fs::create_dir(directory.path().join("tables")).unwrap();
    fs::write(directory.path().join("tables/page_classes"), "not a directory").unwrap();
    let output = fleet(directory.path(), &["extract", "oops", "--to", "tables", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("oops: cannot write tables/page_classes/"), "{}", said(&output));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(row["error"].as_str().unwrap().starts_with("cannot write "), "{row}");
    assert!(row["tables"].as_array().unwrap().iter().any(|made| made[0] == "dumps"), "{row}");
}

#[test]
fn a_dump_that_changes_while_it_is_read_is_a_failure() {
    let directory = dump();
    let path = directory.path().join("oops");
    let (done, changed) = (AtomicBool::new(false), Barrier::new(2));
    let output = thread::scope(|scope| {
        scope.spawn(|| {
            let mut dump = OpenOptions::new().append(true).open(&path).unwrap();
            dump.write_all(b"x").unwrap();
            changed.wait();
            while !done.load(Ordering::Relaxed) {
                dump.write_all(b"x").unwrap();
                thread::yield_now();
            }
        });
        changed.wait();
        let output = fleet(directory.path(), &["extract", "oops", "--to", "tables"]);
        done.store(true, Ordering::Relaxed);
        output
    });
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("oops: it changed while it was read"), "{}", said(&output));
}

#[test]
fn a_pipe_is_no_directory_of_tables() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let program = env!("CARGO_BIN_EXE_pagehaul-fleet");
    for arguments in [&["compact"][..], &["remove", "--host", "x"], &["report"], &["extract", "x", "--to"]] {
        // To wait for a writer would be forever.
        let output =
            Command::new("timeout").arg("60").arg(program).args(arguments).arg(&pipe).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn too_few_open_files_are_named_as_the_cause() {
    let directory = dump();
    let mut failed = 0;
    for most in 6..40 {
        let program = env!("CARGO_BIN_EXE_pagehaul-fleet");
        let output = Command::new("sh")
            .args(["-c", &format!("ulimit -n {most}; exec {program} extract oops -j 1 --to {most}")])
            .current_dir(directory.path())
            .output()
            .unwrap();
        let said = said(&output);
        failed += usize::from(!output.status.success());
        assert!(output.status.success() || said.contains("Too many open files"), "{most}: {said}");
        assert!(!said.contains("denied"), "{most}: {said}");
    }
    assert!((1..34).contains(&failed), "{failed}");
}

#[test]
fn compressed_and_encrypted_facts_are_taken_as_plain_ones() {
    let directory = tempfile::tempdir().unwrap();
    let text = facts(1, "6.12", "web1", 1_793_491_200, "tcp_ack");
    fs::write(directory.path().join("1.facts.json"), &text).unwrap();
    let mut compressed = Vec::new();
    pagehaul_codec::FrameCompressor::new(3).unwrap().compress(text.as_bytes(), &mut compressed).unwrap();
    fs::write(directory.path().join("1.facts.json.zst"), compressed).unwrap();
    succeeds(directory.path(), &["extract", "1.facts.json", "--to", "plain"]);
    succeeds(directory.path(), &["extract", "1.facts.json.zst", "--to", "compressed"]);
    // As `capture --facts --encrypt-to` writes them.
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data");
    let recipients = [keys.join("ssh.pub").to_str().unwrap().to_owned()];
    let recipients = pagehaul_encryption::Recipients::parse(&recipients).unwrap().unwrap();
    let stored = fs::read(directory.path().join("1.facts.json.zst")).unwrap();
    let encrypted = pagehaul_encryption::encrypt(&stored, &recipients).unwrap();
    fs::write(directory.path().join("1.facts.json.zst.age"), encrypted).unwrap();
    let extract = ["extract", "1.facts.json.zst.age", "--to", "encrypted"];
    assert_eq!(fleet(directory.path(), &extract).status.code(), Some(1));
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"));
    command.args(extract).current_dir(directory.path()).env("PAGEHAUL_IDENTITY", keys.join("ssh"));
    assert!(command.status().unwrap().success());
    let rows = |to: &str| common::rows(&directory.path().join(to), "dumps");
    assert!(rows("plain").len() == 1 && rows("plain") == rows("compressed"));
    assert!(rows("plain") == rows("encrypted"));
}

/// A Python without the package, in the search path of nothing.
const WITHOUT_PACKAGE: &str = "#!/bin/sh\nexec python3 -I -S \"$@\"\n";
/// A Python that has pyarrow, and no package.
const WITH_PYARROW: &str = "#!/bin/sh\ncode=$2\nshift 2\nexec python3 -I -S -c \"import sys, types
sys.modules['pyarrow'] = types.ModuleType('pyarrow')
$code\" \"$@\"\n";

#[test]
fn tables_in_python_without_the_package_say_what_to_install() {
    let directory = dump();
    let executable: fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    for (name, script, parts) in [
        ("bare", WITHOUT_PACKAGE, ["No module named 'pyarrow'", "pip install pyarrow", "--python"]),
        ("half", WITH_PYARROW, ["No module named 'pagehaul'", "install the wheel of pagehaul", "--python"]),
        ("none", "", ["cannot run ./none: ", "No such file", "--python"]),
    ] {
        let path = directory.path().join(name);
        if !script.is_empty() {
            fs::write(&path, script).unwrap();
            fs::set_permissions(&path, executable.clone()).unwrap();
        }
        let (python, to) = (format!("./{name}"), format!("{name}-tables"));
        let arguments = ["extract", "oops", "--to", &to, "--json", "--python-table", "team:sockets"];
        let output =
            fleet(directory.path(), &[&arguments[..], &["--only", "dumps", "--python", &python]].concat());
        let row: Value = serde_json::from_slice(&output.stdout).unwrap();
        let reason = row["missing"][0]["reason"].as_str().unwrap();
        assert!(parts.iter().all(|part| reason.contains(part)), "{name}: {reason}");
        // The table was asked for: it is named without a look at the manifest.
        assert!(
            said(&output).contains("no table sockets") && said(&output).contains(reason),
            "{name}: {output:?}"
        );
    }
}

#[test]
fn tables_that_are_asked_for_and_missing_are_named() {
    let directory = dump();
    fs::write(directory.path().join("1.json"), facts(1, "6.12", "web1", 1_793_491_200, "tcp_ack")).unwrap();
    let arguments = ["extract", "oops", "1.json", "--to", "tables", "--only", "dumps,tasks,latency_hist"];
    let output = fleet(directory.path(), &arguments);
    assert!(output.status.success());
    let said = said(&output);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(lines[0].contains("no table latency_hist of 2 dumps, such as oops: "), "{said}");
    assert!(lines[1].contains("no table tasks of 1.json: facts have no pages"), "{said}");
    // What another dump of the crash made is there.
    succeeds(directory.path(), &["extract", "oops", "--to", "all"]);
    assert!(
        common::fleet(directory.path(), &["extract", "oops", "--to", "all", "--only", "tasks"])
            .stderr
            .is_empty()
    );
}

#[test]
fn metrics_replace_no_device() {
    use std::os::unix::fs::FileTypeExt;
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fs::write(directory.path().join("facts.json"), "{}").unwrap();
    let output = fleet(directory.path(), &["metrics", "facts.json", "-o", "pipe"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("pipe is not a regular file"), "{}", said(&output));
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn names_that_are_not_utf8_are_extracted() {
    use std::os::unix::ffi::OsStrExt;
    let directory = dump();
    let name = std::ffi::OsStr::from_bytes(b"odd\xff\xfename");
    fs::rename(directory.path().join("oops"), directory.path().join(name)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"))
        .args(["extract", "--json", "--to", "tables"])
        .arg(name)
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(row["error"].is_null() && row["crash_id"].is_string(), "{row}");
    assert_eq!(row["path"], "odd\\xff\\xfename");
    assert!(common::rows(&directory.path().join("tables"), "tasks").len() > 1);
}
