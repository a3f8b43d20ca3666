//! Tables of dumps, and reports on them, by the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pagehaul_synth::{Era, Machine, Message};
use serde_json::Value;

fn fleet(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap()
}

/// Dumps of a crash in two formats, of a requested one, and a file that is no dump.
fn dumps() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let oops = [
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "RIP: 0010:demo_fill+0x5/0x40 [demo]",
        "Kernel panic - not syncing: Fatal exception",
    ];
    for (era, name, lines) in [
        (Era::V6_12, "oops", &oops[..]),
        (Era::V6_1, "other", &oops[..]),
        (Era::V5_10, "asked", &["Kernel panic - not syncing: sysrq triggered crash"][..]),
    ] {
        let message = |(at, text): (usize, &&'static str)| Message {
            nanoseconds: (at as u64 + 1) * 1_000_000,
            level: 1,
            caller: 7,
            text,
        };
        let messages: Vec<Message> = lines.iter().enumerate().map(message).collect();
        let mut machine = Machine::new(era);
        machine.sampler(0x4000).log(0x6000, &messages);
        let image = machine.build();
        image.elf().write(&directory.path().join(name)).unwrap();
        image.kdump().level(31).write(&directory.path().join(format!("{name}.kdump"))).unwrap();
    }
    fs::write(directory.path().join("bad"), "no dump").unwrap();
    directory
}

/// All files below a directory.
fn files(directory: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path.display().to_string(), fs::read(path).unwrap());
        }
    }
}

#[test]
fn a_bad_dump_is_a_failed_row_and_the_rest_is_reported() {
    let dumps = dumps();
    let output = fleet(dumps.path(), &["extract", "oops", "other", "asked.kdump", "bad", "--to", "tables"]);
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("pagehaul-fleet: bad: "), "{said}");
    assert!(said.contains("3 dumps of 3 crashes") && said.contains("1 failed"), "{said}");
    let mut manifest = BTreeMap::new();
    files(&dumps.path().join("tables/manifest"), &mut manifest);
    let rows: Vec<Value> = manifest.values().map(|bytes| serde_json::from_slice(bytes).unwrap()).collect();
    assert_eq!((rows.len(), rows.iter().filter(|row| row["error"].is_string()).count()), (4, 1));

    let report = fleet(dumps.path(), &["report", "tables", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["crashes"], &report["requested"]), (&3.into(), &1.into()));
    let first = &report["signatures"][0];
    assert_eq!((&first["title"], &first["crashes"]), (&"null-deref in demo:demo_fill".into(), &2.into()));
    assert_eq!(first["kernels"].as_object().unwrap().len(), 2);
    assert_eq!(report["signatures"][1]["kind"], "requested");
    let text = String::from_utf8(fleet(dumps.path(), &["report", "tables"]).stdout).unwrap();
    assert!(text.contains("null-deref in demo:demo_fill") && text.contains("(hardware?)"), "{text}");
}

#[test]
fn the_same_dump_gives_the_same_bytes() {
    let dumps = dumps();
    let tables = |to: &str, jobs: &str| {
        let output = fleet(dumps.path(), &["extract", "oops", "asked", "other", "--to", to, "-j", jobs]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut found = BTreeMap::new();
        files(&dumps.path().join(to), &mut found);
        found
            .into_iter()
            .map(|(path, bytes)| {
                (
                    path.rsplit('/').next().unwrap().to_owned(),
                    path.split("/v=").next().unwrap().rsplit('/').next().unwrap().to_owned(),
                    bytes,
                )
            })
            .collect::<Vec<_>>()
    };
    let once = tables("once", "1");
    assert_eq!(once.len(), 9);
    assert!(once == tables("again", "3"));
    // Over the same directory, too.
    assert!(once == tables("once", "2"));
}

#[test]
fn nothing_to_report_is_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let output = fleet(directory.path(), &["report", "."]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot read ./dumps/v=1"));
}

#[test]
fn a_dump_without_its_log_replaces_no_tables() {
    let dumps = dumps();
    let manifest = |arguments: &[&str]| -> Value {
        assert!(fleet(dumps.path(), arguments).status.success());
        let mut found = BTreeMap::new();
        files(&dumps.path().join("tables/manifest"), &mut found);
        let mut rows = found.values().map(|bytes| serde_json::from_slice::<Value>(bytes).unwrap());
        rows.find(|row| row["path"] == arguments[1]).unwrap()
    };
    let id = manifest(&["extract", "oops", "--to", "tables"])["crash_id"].clone();
    let mut tables = BTreeMap::new();
    files(&dumps.path().join("tables/dumps"), &mut tables);
    let facts = serde_json::json!({
        "schema_version": 1, "extractor": "a test", "crash_id": id, "id_weak": false, "crash_time": 1_750_000_000, "arch": "x86_64",
        "cpus": 2, "memory_bytes": 0, "missing": [], "log": [],
    });
    fs::write(dumps.path().join("lost.json"), facts.to_string()).unwrap();
    let row = manifest(&["extract", "lost.json", "--to", "tables"]);
    assert_eq!((row["tables"].as_array().unwrap().len(), &row["missing"][0]["what"]), (0, &"tables".into()));
    let mut again = BTreeMap::new();
    files(&dumps.path().join("tables/dumps"), &mut again);
    assert_eq!(tables, again);
}
