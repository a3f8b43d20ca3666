//! Tables of dumps by the program.

mod common;

use std::fs;
use std::io::Write;
use std::process::Command;

use common::{OOPS, files, fleet, machine, rows, succeeds};
use pagehaul_synth::Era;
use pagehaul_test_support::server::{Response, Server};
use serde_json::Value;

/// Dumps of a crash on two kernels, of a requested one, and a file that is not a dump.
fn dumps() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let requested = ["Kernel panic - not syncing: sysrq triggered crash"];
    for (era, name, lines) in [
        (Era::V6_12, "oops", &OOPS[..]),
        (Era::V6_1, "other", &OOPS[..]),
        (Era::V5_10, "asked", &requested[..]),
    ] {
        let image = machine(era, "billing", lines).build();
        image.elf().write(&directory.path().join(name)).unwrap();
        image.kdump().level(31).write(&directory.path().join(format!("{name}.kdump"))).unwrap();
    }
    fs::write(directory.path().join("bad"), "no dump").unwrap();
    directory
}

#[test]
fn a_bad_dump_is_a_failed_row_and_the_rest_is_reported() {
    let dumps = dumps();
    let output = fleet(dumps.path(), &["extract", "oops", "other", "asked.kdump", "bad", "--to", "tables"]);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("pagehaul-fleet: bad: "), "{said}");
    assert!(said.contains("3 dumps of 3 crashes") && said.contains("1 failed"), "{said}");
    let rows = rows(&dumps.path().join("tables"), "manifest");
    assert_eq!((rows.len(), rows.iter().filter(|row| row.contains("error: null")).count()), (4, 3));

    let report: Value =
        serde_json::from_str(&succeeds(dumps.path(), &["report", "tables", "--json"])).unwrap();
    assert_eq!((&report["crashes"], &report["requested"]), (&3.into(), &1.into()));
    let first = &report["signatures"][0];
    assert_eq!((&first["title"], &first["crashes"]), (&"null-deref in demo:demo_fill".into(), &2.into()));
    assert_eq!(first["kernels"].as_object().unwrap().len(), 2);
    assert!(first["at_death"]["classes"]["kernel"].as_f64().unwrap() > 0.0, "{first}");
    assert_eq!(report["signatures"][1]["kind"], "requested");
    let text = succeeds(dumps.path(), &["report", "tables"]);
    assert!(text.contains("null-deref in demo:demo_fill"), "{text}");
}

#[test]
fn dumps_on_a_server_give_the_same_tables() {
    let dumps = dumps();
    let bytes = fs::read(dumps.path().join("oops.kdump")).unwrap();
    let server = Server::start(move |request| match request.target.starts_with("/oops.kdump?") {
        true => Response::range(request, &bytes, "v1"),
        false => Response::status(404, ""),
    });
    let tables = |dump: &str, to: &str| {
        let output = fleet(dumps.path(), &["extract", dump, "--to", to]);
        let shorter = |(path, bytes): (String, Vec<u8>)| (path.split_once(to).unwrap().1.to_owned(), bytes);
        let mut tables: Vec<_> = files(&dumps.path().join(to)).into_iter().map(shorter).collect();
        tables.retain(|(path, _)| !path.contains("manifest"));
        let manifest = rows(&dumps.path().join(to), "manifest").concat();
        (output.status.code(), tables, manifest)
    };
    let (code, local, _) = tables("oops.kdump", "local");
    assert_eq!((code, local.is_empty()), (Some(0), false));
    let (code, remote, manifest) = tables(&server.url("/oops.kdump?X-Amz-Signature=hidden"), "remote");
    assert!(code == Some(0) && remote == local, "{manifest}");
    assert!(manifest.contains(&server.url("/oops.kdump\"")), "{manifest}");
    let (code, remote, manifest) = tables(&server.url("/other"), "none");
    assert!(code == Some(1) && remote.is_empty() && manifest.contains("404 Not Found"), "{manifest}");
}

#[test]
fn the_same_dump_gives_the_same_bytes() {
    let dumps = dumps();
    let tables = |to: &str, jobs: &str| {
        succeeds(dumps.path(), &["extract", "oops", "asked", "other", "--to", to, "-j", jobs]);
        // The manifest says when a dump was extracted.
        let found =
            files(&dumps.path().join(to)).into_iter().filter(|(path, _)| !path.contains("/manifest/"));
        found.map(|(path, bytes)| (path.split_once(to).unwrap().1.to_owned(), bytes)).collect::<Vec<_>>()
    };
    let once = tables("once", "1");
    assert!(once.len() >= 12);
    assert!(once == tables("again", "3"));
    // Over the same directory, too.
    assert!(once == tables("once", "2"));
}

#[test]
fn triage_and_struct_pages_give_tables_with_the_key_of_the_crash() {
    let dumps = dumps();
    succeeds(dumps.path(), &["extract", "oops", "--to", "tables"]);
    let tables = dumps.path().join("tables");
    let all = [
        "dumps",
        "log_lines",
        "page_classes",
        "memory_state",
        "tasks",
        "stacks",
        "modules",
        "slab_caches",
        "vmalloc_callers",
    ];
    let id = rows(&tables, "dumps")[0].split_once("crash_id: ").unwrap().1[..34].to_owned();
    for table in all {
        let rows = rows(&tables, table);
        assert!(!rows.is_empty() && rows.iter().all(|row| row.contains(&id)), "{table}: {rows:?}");
    }
    let has = |table: &str, parts: &[&str]| {
        let rows = rows(&tables, table);
        let found = rows.iter().any(|row| parts.iter().all(|part| row.contains(part)));
        assert!(found, "{parts:?} in {table}: {rows:#?}");
    };
    has("tasks", &["pid: 20", "comm: \"billing\"", "state: \"D\"", "kthread: false"]);
    has("stacks", &["io_schedule", "depth: "]);
    has("memory_state", &["item: \"free\"", "unit: \"pages\"", "node: 0"]);
    has("memory_state", &["item: \"vmalloc_backlog\"", "value: 12", "node: -1"]);
    has("slab_caches", &["name: \"dentry\"", "objects: 8400"]);
    has("modules", &["name: \"ext4\""]);
    has("page_classes", &["class: \"kernel\"", "order: 0"]);
    // Pages are counted once.
    let pages: u64 = rows(&tables, "page_classes")
        .iter()
        .map(|row| row.split_once("pages: ").unwrap().1.split(',').next().unwrap().parse::<u64>().unwrap())
        .sum();
    let memory: u64 = rows(&tables, "dumps")[0]
        .split_once("memory_bytes: ")
        .unwrap()
        .1
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(pages, memory / 4096);
}

#[test]
fn nothing_to_report_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    for command in [&["report", "."][..], &["sql", ".", "SELECT 1"]] {
        let output = fleet(directory.path(), command);
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.contains("has no tables: run pagehaul-fleet extract") && said.lines().count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_dump_with_less_replaces_no_tables() {
    let dumps = dumps();
    let manifest = |arguments: &[&str]| -> Value {
        let said = succeeds(dumps.path(), &[arguments, &["--json"]].concat());
        serde_json::from_str(&said).unwrap()
    };
    let id = manifest(&["extract", "oops", "--to", "tables"])["crash_id"].clone();
    let all = || {
        let mut files = files(&dumps.path().join("tables"));
        files.retain(|name, _| !name.contains("/manifest/"));
        files
    };
    let tables = all();
    let facts = serde_json::json!({
        "schema_version": 1, "extractor": "a test", "crash_id": id, "id_weak": false, "crash_time": 1_750_000_000, "arch": "x86_64",
        "cpus": 2, "memory_bytes": 0, "missing": [], "log": [],
    });
    fs::write(dumps.path().join("lost.json"), facts.to_string()).unwrap();
    let row = manifest(&["extract", "lost.json", "--to", "tables"]);
    let without_tables = |row: &Value| {
        let missing = row["missing"].as_array().unwrap();
        let lacks = |table: &str| missing.iter().any(|missing| missing["what"] == table);
        row["tables"].as_array().unwrap().is_empty()
            && lacks("dumps")
            && lacks("page_classes")
            && lacks("tasks")
    };
    assert!(without_tables(&row), "{row}");
    // Level 31 of the same crash, with the mark of an incomplete dump in `status`.
    let path = dumps.path().join("oops.kdump");
    let mut bytes = fs::read(&path).unwrap();
    bytes[424] |= 8;
    fs::write(&path, bytes).unwrap();
    let row = manifest(&["extract", "oops.kdump", "--to", "tables"]);
    assert!(without_tables(&row), "{row}");
    assert_eq!(tables, all());
}

#[test]
fn redacted_tables_hold_no_names() {
    let dumps = dumps();
    fs::write(dumps.path().join("key"), "0123456789abcdef").unwrap();
    fs::write(dumps.path().join("short"), "0").unwrap();
    let redacted =
        |to: &str, key: &str| fleet(dumps.path(), &["extract", "oops", "--to", to, "--redact", key]);
    assert_eq!(redacted("short-key", "short").status.code(), Some(1));
    assert!(redacted("tables", "key").status.success());
    succeeds(dumps.path(), &["extract", "oops", "--to", "plain"]);
    for table in ["dumps", "log_lines", "tasks"] {
        let text = |to: &str| rows(&dumps.path().join(to), table).join("\n");
        assert!(text("plain").contains("billing"), "{table}");
        assert!(!text("tables").contains("billing") && text("tables").contains("comm-"), "{table}");
    }
    // The signature is that of the crash.
    let sig = |to: &str| {
        let row = rows(&dumps.path().join(to), "dumps").remove(0);
        row.split_once("sig: ").unwrap().1[..18].to_owned()
    };
    assert_eq!(sig("tables"), sig("plain"));
}

/// Recordings of real kernels.
const RECLAIM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../reclaim/tests/data/guest-6.12.pht");
const LATENCY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../latency/tests/data/functions-6.12.pht");

#[test]
fn recordings_have_tables_like_those_of_the_report() {
    let directory = tempfile::tempdir().unwrap();
    let said = succeeds(directory.path(), &["extract", RECLAIM, LATENCY, "--to", "tables", "--json"]);
    let manifest: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(manifest.iter().all(|row| row["error"].is_null() && row["crash_id"].is_null()), "{said}");
    let lacks =
        |row: &Value, what| row["missing"].as_array().unwrap().iter().any(|missing| missing["what"] == what);
    assert!(lacks(&manifest[0], "latency_hist") && lacks(&manifest[1], "reclaim_stalls"), "{said}");

    let open = |path: &str| pagehaul_trace::TraceFile::open(path.as_ref()).unwrap();
    let (report, intervals) = pagehaul_reclaim::analyse_all(&mut open(RECLAIM), "", "").unwrap();
    let tables = directory.path().join("tables");
    let id = manifest[0]["run_id"].as_str().unwrap();
    let stalls = rows(&tables, "reclaim_stalls");
    assert_eq!(stalls.len(), intervals.stalls.len() + intervals.kswapd.len());
    assert!(!intervals.stalls.is_empty() && !intervals.kswapd.is_empty());
    for stall in &intervals.stalls {
        let has = [
            format!("run_id: \"{id}\""),
            format!("start_ns: {}, duration_ns: {},", stall.begin_ns, stall.duration_ns),
            format!("tid: {}, comm: \"{}\",", stall.pid, stall.comm),
            format!("scanned_pages: {}, reclaimed_pages: {},", stall.scanned, stall.reclaimed),
        ];
        assert!(stalls.iter().any(|row| has.iter().all(|part| row.contains(part))), "{has:?}: {stalls:#?}");
    }
    assert_eq!(stalls.iter().filter(|row| row.contains("kind: \"kswapd\"")).count(), intervals.kswapd.len());
    let runs = rows(&tables, "reclaim_runs");
    let host = report.source.machine.hostname.clone().unwrap();
    assert!(
        runs.len() == 1
            && runs[0].contains(&host)
            && runs[0].contains(&format!("events: {},", report.source.events))
    );
    let figures: usize = report.rows().map(|row| row.values.len()).sum();
    assert_eq!(rows(&tables, "reclaim_figures").len(), figures);

    let (calls, buckets) = (rows(&tables, "latency_runs"), rows(&tables, "latency_hist"));
    let number = |row: &str, name: &str| -> u64 {
        let rest = row.split_once(name).unwrap().1;
        rest.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    };
    let sum: u64 = buckets.iter().map(|row| number(row, " count: ")).sum();
    assert!(sum > 0 && sum == number(&calls[0], "calls: "), "{calls:?} {buckets:?}");

    // Again, and with a copy of another name: the same files.
    let before = files(&tables);
    std::fs::copy(RECLAIM, directory.path().join("copy")).unwrap();
    succeeds(directory.path(), &["extract", "copy", "--to", "tables"]);
    let mut after = files(&tables);
    after.retain(|path, _| before.contains_key(path));
    let same = after.iter().all(|(path, bytes)| path.contains("/manifest/") || before[path] == *bytes);
    assert!(same && after.len() == before.len());
    assert_eq!(rows(&tables, "reclaim_runs").len(), 1);
    succeeds(directory.path(), &["compact", "tables"]);
    assert_eq!(rows(&tables, "reclaim_stalls"), stalls);
}

#[test]
fn recordings_on_a_server_give_the_same_tables() {
    let directory = tempfile::tempdir().unwrap();
    succeeds(directory.path(), &["extract", RECLAIM, LATENCY, "--to", "local"]);
    let server = Server::start(|request| match request.target.as_str() {
        "/reclaim?X-Amz-Signature=hidden" => Response::range(request, &fs::read(RECLAIM).unwrap(), "v1"),
        "/latency" => Response::range(request, &fs::read(LATENCY).unwrap(), "v1"),
        _ => Response::status(404, ""),
    });
    let urls = ["/reclaim?X-Amz-Signature=hidden", "/latency", "/absent?X-Amz-Signature=hidden"]
        .map(|path| server.url(path));
    let [reclaim, latency, absent] = urls.each_ref().map(String::as_str);
    let output = fleet(directory.path(), &["extract", reclaim, latency, absent, "--to", "remote"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && said.contains("404 Not Found"), "{said}");
    let tables = |to: &str| -> Vec<_> {
        let found = files(&directory.path().join(to)).into_iter();
        let inside = found.map(|(path, bytes)| (path.split_once(to).unwrap().1.to_owned(), bytes));
        inside.filter(|(path, _)| !path.contains("manifest")).collect()
    };
    assert!(!tables("local").is_empty() && tables("remote") == tables("local"), "{said}");
    let manifest = rows(&directory.path().join("remote"), "manifest").concat();
    assert!(![said, manifest].iter().any(|text| text.contains("hidden")));
}

#[test]
fn redacted_recordings_hold_no_names() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("key"), "0123456789abcdef").unwrap();
    succeeds(directory.path(), &["extract", RECLAIM, "--to", "tables", "--redact", "key"]);
    let file = pagehaul_trace::TraceFile::open(RECLAIM.as_ref()).unwrap();
    let machine = &file.info().machine;
    let tables = directory.path().join("tables");
    let runs = rows(&tables, "reclaim_runs").remove(0);
    assert!(runs.contains("host: \"host-") && runs.contains("command: \"<redacted>\""), "{runs}");
    assert!(!runs.contains(machine.hostname.as_ref().unwrap()), "{runs}");
    let stalls = rows(&tables, "reclaim_stalls");
    assert!(stalls.iter().any(|row| row.contains("comm: \"comm-")), "{stalls:?}");
}

#[test]
fn damaged_recordings_are_failed_rows() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = fs::read(RECLAIM).unwrap();
    fs::write(directory.path().join("damaged"), &bytes[..64]).unwrap();
    let output = fleet(directory.path(), &["extract", "damaged", RECLAIM, "--to", "tables"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && said.contains("damaged"), "{said}");
}

#[test]
fn a_split_set_is_one_dump() {
    let directory = tempfile::tempdir().unwrap();
    let image = machine(Era::V6_12, "billing", &OOPS).build();
    image.elf().write(&directory.path().join("whole")).unwrap();
    for (at, part) in image.kdump().parts(2).into_iter().enumerate() {
        fs::write(directory.path().join(format!("part.{at}")), part).unwrap();
    }
    let said = succeeds(directory.path(), &["extract", "--split", "part.0", "part.1", "--to", "parts"]);
    assert!(said.contains("1 dumps of 1 crashes"), "{said}");
    succeeds(directory.path(), &["extract", "whole", "--to", "tables"]);
    for table in ["log_lines", "tasks", "stacks"] {
        assert_eq!(
            rows(&directory.path().join("parts"), table),
            rows(&directory.path().join("tables"), table)
        );
    }
}

/// Stands for a Python with the package: `-m pagehaul._extractor DIR FUNCTION DUMP...`. The rows that it claims say what it could do.
const PYTHON: &str = r#"#!/bin/sh
rows=0
add() { rows=$((rows + $1)); }
case $4 in
*:dies) kill -KILL $$ ;;
*:fails) echo '{"rows": 0, "error": "LookupError: no socket"}' ; exit ;;
*:says) echo 'no answer' ; exit ;;
esac
(true >"$3/sockets/file") 2>/dev/null && add 1
(true >"$TMPDIR/file") 2>/dev/null && add 1
[ "$(ulimit -d)" = 65536 ] && add 1
[ -z "$AWS_SECRET_ACCESS_KEY" ] || add 100
# Only Landlock refuses these (Linux 5.13).
(true >"$3/dumps/forged.parquet") 2>/dev/null && add 10
(true >"$5.changed") 2>/dev/null && add 10
echo "{\"rows\": $rows, \"error\": null}"
"#;

#[test]
fn functions_in_python_make_tables_in_processes_with_limits() {
    let dumps = dumps();
    fs::write(dumps.path().join("python"), PYTHON).unwrap();
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(dumps.path().join("python"), executable).unwrap();
    let functions =
        ["team:sockets", "team:dies", "team:fails", "team:says"].map(|name| ["--python-table", name]);
    let output = Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"))
        .args([
            "extract",
            "oops",
            "--to",
            "tables",
            "--json",
            "--python",
            "./python",
            "--python-memory",
            "64",
        ])
        .args(functions.as_flattened())
        .env("AWS_SECRET_ACCESS_KEY", "x")
        .current_dir(dumps.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let row: Value = serde_json::from_slice(&output.stdout).unwrap();
    let made = row["tables"].as_array().unwrap().iter().find(|table| table[0] == "sockets").unwrap();
    assert_eq!(made[1].as_u64().map(|rows| (rows % 10, rows / 100)), Some((3, 0)), "{row}");
    let reason = |what: &str| {
        let missing = row["missing"].as_array().unwrap().iter().find(|missing| missing["what"] == what);
        missing.unwrap()["reason"].as_str().unwrap().to_owned()
    };
    assert!(reason("dies").contains("signal: 9"), "{row}");
    assert_eq!(reason("fails"), "LookupError: no socket");
    assert_eq!(reason("says"), "the process that runs it failed (exit status: 0): no answer");
    // Nothing that it left is in the way of other tables.
    let left = fs::read_dir(dumps.path().join("tables")).unwrap();
    assert!(
        !left.map(|entry| entry.unwrap().file_name()).any(|name| name.to_string_lossy().starts_with('.'))
    );

    for (wrong, why) in [("team:tasks", "there is a table tasks already"), ("team", "write MODULE:NAME")] {
        let output = fleet(dumps.path(), &["extract", "oops", "--to", "tables", "--python-table", wrong]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(why), "{said}");
    }
}

#[test]
fn one_table_is_made_without_the_others() {
    let dumps = dumps();
    succeeds(dumps.path(), &["extract", "oops", "--to", "all"]);
    succeeds(dumps.path(), &["extract", "oops", "--to", "some", "--only", "tasks,log_lines"]);
    let parquet = |to: &str| {
        let path = dumps.path().join(to);
        let mut found = files(&path);
        // It is always made.
        let manifest = found.keys().filter(|name| name.contains("/manifest/")).count();
        assert_eq!(manifest, 1);
        found.retain(|name, _| !name.contains("/manifest/"));
        found
            .into_iter()
            .map(|(name, bytes)| (name.split_once(to).unwrap().1.to_owned(), bytes))
            .collect::<Vec<_>>()
    };
    let mut all = parquet("all");
    all.retain(|(name, _)| name.starts_with("/tasks/") || name.starts_with("/log_lines/"));
    assert_eq!(all.len(), 2);
    assert_eq!(parquet("some"), all);
}

#[test]
fn the_process_that_reads_a_dump_is_confined() {
    let dumps = dumps();
    fs::create_dir(dumps.path().join("tables")).unwrap();
    // Its row goes to a pipe that takes no byte more: it never ends.
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"))
        .args(["extract-one", "--stage", "facts", "--to", "tables", "--", "oops"])
        .current_dir(dumps.path())
        .stdout(writer)
        .spawn()
        .unwrap();
    let status = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let mut found = status();
    while !found.contains("\nSeccomp:\t2\n") && !found.contains("\nState:\tZ") {
        std::thread::yield_now();
        found = status();
    }
    drop(reader);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(found.contains("\nSeccomp:\t2\n") && found.contains("\nCapEff:\t0000000000000000\n"), "{found}");
}
