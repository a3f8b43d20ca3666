//! Removal of crashes from all tables: nothing of them is left, all of the others is.

mod common;
#[cfg(target_arch = "x86_64")]
use pagehaul_test_support::tracer;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{facts, files, fleet, rows, succeeds};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// 2021-11-01.
const NOVEMBER: u64 = 1_635_724_800;
const DAY: u64 = 86_400;
/// A host that is removed, and others. The first has a name that no table has otherwise.
const GONE: &str = "ledger-9.acme.example";
const RECLAIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../reclaim/tests/data/guest-6.12.pht");

/// A table of a user: a row for each crash, with the name of its host.
fn user_table(path: &Path, crashes: &[(u32, &str)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let schema = "message sockets { OPTIONAL BYTE_ARRAY crash_id (UTF8); OPTIONAL BYTE_ARRAY peer (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(fs::File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    let columns: [Vec<String>; 2] = [
        crashes.iter().map(|(number, _)| format!("{number:032x}")).collect(),
        crashes.iter().map(|(_, host)| format!("{host}:22")).collect(),
    ];
    for column in columns {
        let values: Vec<ByteArray> = column.into_iter().map(|text| text.into_bytes().into()).collect();
        let mut writer = group.next_column().unwrap().unwrap();
        writer.typed::<ByteArrayType>().write_batch(&values, Some(&vec![1; values.len()]), None).unwrap();
        writer.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
}

/// Tables of eight crashes of two months on three hosts, and of a dump that failed: in files of many crashes, and of one.
fn tables(options: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let at = |path: &str| directory.path().join(path);
    fs::write(at("key"), "0123456789abcdef").unwrap();
    for host in [GONE, "web1", "web2"] {
        fs::create_dir_all(at("dumps").join(host)).unwrap();
    }
    let crash = |number: u32, host: &str, day: u64| {
        let mut facts: serde_json::Value =
            serde_json::from_str(&facts(number, "6.12", host, NOVEMBER + day * DAY, "tcp_ack")).unwrap();
        let line =
            serde_json::json!({"time_ns": 1, "level": 3, "facility": 0, "text": format!("host {host} died")});
        facts["log"] = serde_json::json!([line]);
        let path = format!("dumps/{host}/{number}.json");
        fs::write(at(&path), facts.to_string()).unwrap();
        path
    };
    let old = [(1, GONE, 0), (2, "web1", 1), (3, GONE, 40), (4, "web2", 41)]
        .map(|(n, host, day)| crash(n, host, day));
    let new =
        [(5, GONE, 2), (6, "web1", 3), (7, GONE, 43), (1, GONE, 0)].map(|(n, host, day)| crash(n, host, day));
    let extract = |paths: &[String]| {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        fleet(directory.path(), &[&["extract", "--to", "tables"], options, &paths].concat())
    };
    assert!(extract(&old).status.success());
    user_table(&at("tables/sockets/v=1/month=2021-11/many-0.parquet"), &[(1, GONE), (2, "web1")]);
    user_table(
        &at("tables/sockets/v=1/month=unknown/00000000000000000000000000000003.parquet"),
        &[(3, GONE)],
    );
    succeeds(directory.path(), &["compact", "tables"]);
    assert!(extract(&new).status.success());
    fs::write(at("dumps").join(GONE).join("bad"), "no dump").unwrap();
    fs::write(at("dumps/web1/bad"), "no dump").unwrap();
    extract(&[format!("dumps/{GONE}/bad"), "dumps/web1/bad".to_owned()]);
    directory
}

/// Whether any file has the bytes, also in its name.
fn holds(directory: &Path, text: &str) -> bool {
    let has = |bytes: &[u8]| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    files(directory).iter().any(|(name, bytes)| {
        let name = name.strip_prefix(&directory.display().to_string()).unwrap();
        has(bytes) || name.contains(text)
    })
}

/// The rows of all tables.
fn all(directory: &Path) -> BTreeMap<String, Vec<String>> {
    let tables =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    tables
        .filter(|name| !name.starts_with(".tmp"))
        .map(|name| (name.clone(), rows(directory, &name)))
        .collect()
}

/// The rows of crashes that stay: none of these names is in them.
fn without(mut all: BTreeMap<String, Vec<String>>, gone: &[&str]) -> BTreeMap<String, Vec<String>> {
    all.values_mut().for_each(|rows| rows.retain(|row| !gone.iter().any(|text| row.contains(text))));
    all
}

#[test]
fn nothing_of_a_removed_host_is_left_in_any_file() {
    let directory = tables(&[]);
    let tables = directory.path().join("tables");
    let before = all(&tables);
    // What runs left that were killed.
    fs::write(tables.join("dumps/v=1/month=2021-11/.tmpAbCd"), GONE).unwrap();
    fs::create_dir(tables.join(".tmpEfGh")).unwrap();
    fs::write(tables.join(".tmpEfGh/file"), GONE).unwrap();
    assert!(holds(&tables, GONE) && before["sockets"].len() == 3 && before["dumps"].len() == 7);
    let bytes = files(&tables);
    let said = succeeds(directory.path(), &["remove", "tables", "--host", GONE, "--dry-run"]);
    assert!(
        said.contains("would remove ") && said.contains("of 4 crashes and 1 failed dumps from"),
        "{said}"
    );
    assert_eq!(files(&tables), bytes);

    let said = succeeds(directory.path(), &["remove", "tables", "--host", GONE]);
    let ids = [1, 3, 5, 7].map(|number| format!("{number:032x}"));
    assert!(!holds(&tables, GONE), "{said}");
    assert!(ids.iter().all(|id| !holds(&tables, id)), "{said}");
    let gone: Vec<&str> = ids.iter().map(String::as_str).chain([GONE]).collect();
    // Rows as readers see them: pages are compressed.
    assert!(!format!("{:?}", all(&tables)).contains(GONE));
    assert_eq!(all(&tables), without(before, &gone));
    for line in
        ["dumps", "log_lines", "manifest", "sockets", "removed 15 rows of 4 crashes and 1 failed dumps from "]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!tables.join("sockets/v=1/month=unknown").exists());
    let again = succeeds(directory.path(), &["remove", "tables", "--host", GONE]);
    assert_eq!(again, "nothing to remove\n");
    // What is left works.
    succeeds(directory.path(), &["compact", "tables"]);
    assert!(succeeds(directory.path(), &["report", "tables"]).contains("3 crashes on 2 hosts"));
}

#[test]
fn hosts_that_were_redacted_are_removed_by_key_or_by_hash() {
    for by_key in [true, false] {
        let directory = tables(&["--redact", "key"]);
        let tables = directory.path().join("tables");
        let host =
            rows(&tables, "dumps").into_iter().find(|row| row.contains(&format!("{:032x}", 7))).unwrap();
        let hash = host.split_once("host: \"").unwrap().1.split('"').next().unwrap().to_owned();
        fs::remove_dir_all(tables.join("sockets")).unwrap();
        assert!(hash.starts_with("host-") && holds(&tables, &hash) && !holds(&tables, GONE));
        let by = if by_key { vec!["--host", GONE, "--redact", "key"] } else { vec!["--host", hash.as_str()] };
        let said = succeeds(directory.path(), &[&["remove", "tables"], &by[..]].concat());
        assert!(said.contains("of 4 crashes from"), "{said}");
        assert!(!holds(&tables, &hash) && !format!("{:?}", all(&tables)).contains(&hash), "{said}");
        assert_eq!(rows(&tables, "dumps").len(), 3);
        // Without the key, the name is unknown.
        let said = succeeds(directory.path(), &["remove", "tables", "--host", "web1"]);
        assert_eq!(said, "nothing to remove\n");
        fs::write(directory.path().join("other"), "fedcba9876543210").unwrap();
        for (options, hint) in [
            (vec!["--host", "web1"], "to find web1 by its hash, give --redact KEY"),
            (vec!["--host", "web1", "--redact", "other"], "none is that of web1 with this key"),
            (vec!["--host", "host-0123456789ab"], ""),
            (vec!["--host", "web1", "--redact", "key"], ""),
        ] {
            let output = fleet(directory.path(), &[&["remove", "tables"], &options[..]].concat());
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success() && text.contains(hint), "{options:?}: {text}");
            assert_eq!(text.is_empty(), hint.is_empty(), "{options:?}: {text}");
            assert_eq!(text.contains("hashes of a key"), !hint.is_empty(), "{options:?}: {text}");
        }
    }
}

#[test]
fn crashes_are_removed_by_id_and_by_date() {
    let directory = tables(&[]);
    let tables = directory.path().join("tables");
    succeeds(directory.path(), &["extract", RECLAIM, "--to", "tables"]);
    let run = rows(&tables, "reclaim_runs").remove(0);
    let run = &run.split_once("run_id: \"").unwrap().1[..32];
    let before = all(&tables);
    let crash = format!("{:032x}", 2);
    let ids = ["--crash", &crash, "--crash", &run.to_uppercase(), "--crash", &"f".repeat(32)];
    let said = succeeds(directory.path(), &[&["remove", "tables"], &ids[..]].concat());
    assert!(said.contains("of 2 crashes from"), "{said}");
    assert!(!holds(&tables, &crash) && !holds(&tables, run));
    let mut left = without(before, &[&crash, run]);
    left.retain(|name, rows| {
        assert_eq!(rows.is_empty(), name.starts_with("reclaim_"), "{name}");
        true
    });
    assert_eq!(all(&tables), left);

    // 2021-12-01: crashes 1, 5 and 6. The failed dumps were extracted later.
    let said = succeeds(directory.path(), &["remove", "tables", "--before", "2021-12-01"]);
    assert!(said.contains("of 3 crashes from"), "{said}");
    let dumps = rows(&tables, "dumps");
    assert!(dumps.len() == 3 && dumps.iter().all(|row| row.contains("2021-12-")), "{dumps:?}");
    assert_eq!(rows(&tables, "manifest").iter().filter(|row| row.contains("crash_id: null")).count(), 2);
    succeeds(directory.path(), &["remove", "tables", "--before", "2999-01-01"]);
    assert!(all(&tables).values().flatten().all(|row| row.contains("peer")));
}

#[test]
fn what_is_no_table_is_named_and_stays() {
    let directory = tables(&[]);
    let tables = directory.path().join("tables");
    fs::write(tables.join("notes.txt"), GONE).unwrap();
    fs::write(tables.join("dumps/v=1/month=2021-11/damaged.parquet"), GONE).unwrap();
    let output = fleet(directory.path(), &["remove", "tables", "--host", GONE]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3), "{said}");
    assert!(
        said.contains("notes.txt is not a file of a table") && said.contains("damaged.parquet"),
        "{said}"
    );
    assert!(tables.join("notes.txt").exists() && rows(&tables, "log_lines").len() == 3);
    // By the manifest, a second run finds what the damaged file may have.
    assert!(
        said.contains("manifest, without which") && rows(&tables, "manifest").concat().contains(GONE),
        "{said}"
    );
    fs::remove_file(tables.join("notes.txt")).unwrap();
    fs::remove_file(tables.join("dumps/v=1/month=2021-11/damaged.parquet")).unwrap();
    succeeds(directory.path(), &["remove", "tables", "--host", GONE]);
    assert!(!holds(&tables, GONE));

    for wrong in [
        &["remove", "tables"][..],
        &["remove", "tables", "--host", GONE, "--before", "2026-11-01"],
        &["remove", "tables", "--crash", "1"],
        &["remove", "tables", "--crash", &"1".repeat(32), "--redact", "key"],
    ] {
        assert_eq!(fleet(directory.path(), wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(fleet(directory.path(), &["remove", "absent", "--host", GONE]).status.code(), Some(1));
}

/// Runs `remove` on copies of tables, with faults, until `next` has no more of them. Each file is the old or the new one after each, and a
/// second run ends the work. Returns the number of faults.
#[cfg(target_arch = "x86_64")]
fn with_faults(mut next: impl FnMut(usize) -> Option<(usize, tracer::Fault)>) -> usize {
    let directory = tables(&[]);
    let copy = |to: &str| {
        let mut cp = std::process::Command::new("cp");
        assert!(cp.args(["-r", "tables", to]).current_dir(directory.path()).status().unwrap().success());
    };
    // Paths without the name of the copy.
    let contents = |of: &str| -> BTreeMap<String, Vec<u8>> {
        let root = directory.path().join(of);
        let shorter = |name: String| name.strip_prefix(root.to_str().unwrap()).unwrap().to_owned();
        files(&root).into_iter().map(|(name, bytes)| (shorter(name), bytes)).collect()
    };
    let before = contents("tables");
    copy("whole");
    succeeds(directory.path(), &["remove", "whole", "--host", GONE]);
    let after = contents("whole");
    let (mut faults, mut calls) = (0, usize::MAX);
    while let Some((moment, fault)) = next(calls) {
        let to = format!("copy-{faults}");
        copy(&to);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"));
        command.args(["remove", &to, "--host", GONE]).current_dir(directory.path());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let trace = tracer::run(&mut command, moment, fault);
        assert!(!trace.hung, "{fault:?} at call {moment}");
        calls = if trace.at.is_some() { usize::MAX } else { trace.calls };
        faults += usize::from(trace.at.is_some());
        for (name, bytes) in contents(&to) {
            let known = before.get(&name) == Some(&bytes) || after.get(&name) == Some(&bytes);
            assert!(known || name.contains("/.tmp"), "{fault:?} at call {moment}: {name}");
        }
        succeeds(directory.path(), &["remove", &to, "--host", GONE]);
        assert!(contents(&to) == after, "{fault:?} at call {moment}");
        fs::remove_dir_all(directory.path().join(&to)).unwrap();
    }
    faults
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_run_that_is_killed_at_any_moment_is_ended_by_the_next() {
    let calls = [libc::SYS_rename, libc::SYS_unlink, libc::SYS_fdatasync, libc::SYS_fsync, libc::SYS_rmdir];
    let mut calls = calls.into_iter();
    let (mut call, mut moment) = (calls.next(), 0);
    let kills = with_faults(|last| {
        // There was no such call any more.
        if last != usize::MAX {
            (call, moment) = (calls.next(), 0);
        }
        moment += 1;
        Some((moment, tracer::Fault::KillAt(call?)))
    });
    assert!(kills > 20, "{kills}");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_run_in_which_any_call_fails_is_ended_by_the_next() {
    let mut moment = 1;
    let failures = with_faults(|calls| {
        moment += 23;
        (moment <= calls).then_some((moment, tracer::Fault::Error(libc::ENOSPC)))
    });
    assert!(failures > 20, "{failures}");
}

/// A file system that turned read-only, as after an error of its disk.
#[test]
fn read_only_tables_stay_and_one_sentence_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    for number in [1, 2] {
        let facts = facts(number, "6.12", "web1", 1_793_491_200, "tcp_ack");
        fs::write(directory.join(format!("{number}.json")), facts).unwrap();
    }
    succeeds(directory, &["extract", "1.json", "2.json", "--to", "tables"]);
    let before = files(&directory.join("tables"));
    let script = "mount --bind tables tables && mount -o remount,bind,ro tables && exec \"$0\" \"$@\"";
    let run = |arguments: &[&str]| {
        let fleet = env!("CARGO_BIN_EXE_pagehaul-fleet");
        let command = [&["-rm", "sh", "-c", script, fleet], arguments].concat();
        std::process::Command::new("unshare").args(command).current_dir(directory).output().unwrap()
    };
    if !run(&["--version"]).status.success() {
        println!("skipped: this user may not mount");
        return;
    }
    for arguments in [&["compact", "tables"][..], &["remove", "tables", "--host", "web1"]] {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("nothing was changed: cannot write to tables; mount it writable"), "{said}");
        assert!(said.contains("Read-only file system") && said.lines().count() == 1, "{said}");
    }
    assert!(run(&["remove", "tables", "--host", "web1", "--dry-run"]).status.success());
    assert!(files(&directory.join("tables")) == before);
}
