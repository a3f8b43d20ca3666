//! Tables that other programs changed: what cannot be read rightly is named, and never read as nothing.

mod common;

use std::fs;
use std::path::Path;

use common::{Cell, Column, INT, LONG, TEXT, dumps_row, facts, fleet, succeeds, write_row};
use serde_json::Value;

/// 2026-11-01.
const NOVEMBER: u64 = 1_793_491_200;

/// Tables of one crash.
fn tables() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("1.json"), facts(1, "6.12", "web1", NOVEMBER, "tcp_ack")).unwrap();
    succeeds(directory.path(), &["extract", "--to", "tables", "1.json"]);
    directory
}

/// The row of `dumps` with one column replaced, or without it.
fn changed(name: &str, column: Option<Column>) -> Vec<Column> {
    let mut row = dumps_row();
    row.retain(|(known, ..)| *known != name);
    row.extend(column);
    row
}

/// Reports, and returns the crashes and what is unreadable.
fn report(directory: &Path, options: &[&str]) -> (Option<i32>, u64, Vec<String>) {
    let output = fleet(directory, &[&["report", "tables", "--json"], options].concat());
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let unreadable = all["unreadable"].as_array().unwrap().iter().map(|why| why.as_str().unwrap().to_owned());
    (output.status.code(), all["crashes"].as_u64().unwrap(), unreadable.collect())
}

#[test]
fn a_column_that_is_not_as_documented_is_named() {
    for (name, column, expected) in [
        ("crash_id", None, "column crash_id: expected texts, found no such column"),
        ("crash_id", Some((LONG, Cell::Long(1))), "column crash_id: expected texts, found whole numbers"),
        ("crash_id", Some((TEXT, Cell::NullText)), "a row has no crash_id"),
        ("sig", None, "column sig: expected texts, found no such column"),
        ("sig", Some((LONG, Cell::Long(1))), "column sig: expected texts, found whole numbers"),
        ("crash_time", None, "column crash_time: expected times, found no such column"),
        ("crash_time", Some((TEXT, Cell::Text("2026"))), "column crash_time: expected times, found texts"),
        ("crash_time", Some((LONG, Cell::Long(1))), "column crash_time: expected times, found whole numbers"),
        ("schema_version", Some((INT, Cell::Int(99))), "column schema_version: expected at most 1, found 99"),
        ("sig_coarse", Some((INT, Cell::Int(1))), "column sig_coarse: expected texts, found whole numbers"),
    ] {
        let column = column.map(|(field, cell)| (name, field, cell));
        let directory = tables();
        let path = directory.path().join("tables/dumps/v=1/month=2026-11/changed.parquet");
        write_row(&path, &changed(name, column));
        for options in [&[][..], &["--fail-on-new", "--since", "2026-11-02"]] {
            let (code, crashes, unreadable) = report(directory.path(), options);
            assert!(!options.is_empty() || crashes == 1, "{name}: {crashes}");
            assert_eq!(code, Some(3), "{name}");
            assert!(
                unreadable.len() == 1
                    && unreadable[0].contains("changed.parquet")
                    && unreadable[0].contains(expected),
                "{expected}: {unreadable:?}"
            );
        }
        let metrics = succeeds(directory.path(), &["metrics", "--tables", "tables"]);
        assert!(metrics.contains("pagehaul_unreadable_tables 1\n"), "{metrics}");
        let before = fs::read(&path).unwrap();
        let output = fleet(directory.path(), &["compact", "tables"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && said.contains(expected), "{expected}: {said}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn numbers_of_pages_that_cannot_be_are_named() {
    for pages in [-1, i64::MAX] {
        let directory = tables();
        let month = directory.path().join("tables/page_classes/v=1/month=2026-11");
        let id = "00000000000000000000000000000001";
        let row = |pages| {
            [
                ("crash_id", TEXT, Cell::Text(id)),
                ("class", TEXT, Cell::Text("free")),
                ("pages", LONG, Cell::Long(pages)),
            ]
        };
        write_row(&month.join("changed.parquet"), &row(pages));
        write_row(&month.join("right.parquet"), &row(7));
        let (code, _, unreadable) = report(directory.path(), &[]);
        assert_eq!(code, Some(3));
        assert!(
            unreadable.len() == 1 && unreadable[0].contains("changed.parquet: column pages: expected 0 to "),
            "{unreadable:?}"
        );
        // It stays out of a file of many crashes, which would be unreadable with it.
        assert_eq!(fleet(directory.path(), &["compact", "tables"]).status.code(), Some(3));
        assert!(month.join("changed.parquet").exists());
    }
}

#[test]
fn types_that_other_programs_choose_are_read() {
    for (name, field, cell) in [
        ("crash_time", "OPTIONAL INT64 NAME (TIMESTAMP(MILLIS,true));", Cell::Long(1_793_491_200_000)),
        (
            "crash_time",
            "OPTIONAL INT64 NAME (TIMESTAMP(NANOS,false));",
            Cell::Long(1_793_491_200_000_000_000),
        ),
        ("crash_time", "REQUIRED INT64 NAME (TIMESTAMP(MICROS,false));", Cell::Long(1_793_491_200_000_000)),
        ("sig", "OPTIONAL BYTE_ARRAY NAME (STRING);", Cell::Text("0123456789abcdef")),
        ("size_bytes", INT, Cell::Int(1)),
        ("level", LONG, Cell::NullLong),
        ("title", "OPTIONAL INT32 NAME (UNKNOWN);", Cell::NullInt),
    ] {
        let directory = tables();
        let path = directory.path().join("tables/dumps/v=1/month=2026-11/changed.parquet");
        write_row(&path, &changed(name, Some((name, field, cell))));
        let all = succeeds(directory.path(), &["report", "tables", "--json"]);
        let all: Value = serde_json::from_str(&all).unwrap();
        assert_eq!(all["crashes"], 2, "{name} {field}");
        let groups = all["signatures"].as_array().unwrap();
        let group = groups.iter().find(|group| group["sig"] == "0123456789abcdef").unwrap();
        assert_eq!(group["last_seen"], NOVEMBER, "{name} {field}");
    }
}
