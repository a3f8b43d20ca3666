//! Reports, compaction and old files, on facts of crashes.

mod common;

use std::fs;
use std::path::Path;

use common::{Cell, INT, dumps_row, facts, files, fleet, rows, succeeds, write_row};
use serde_json::Value;

/// 2026-11-01.
const NOVEMBER: u64 = 1_793_491_200;
const DAY: u64 = 86_400;

/// Tables of 12 crashes: a regression from 6.1 to 6.12, one bad machine, and requested crashes.
fn tables() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut crashes =
        vec![("6.1.90", "web1".to_owned(), 0, "tcp_ack"), ("6.1.90", "web2".into(), 1, "ext4_map")];
    crashes.extend((0..3).map(|at| ("6.1.90", format!("web{at}"), at, "xfs_trans_commit")));
    crashes.extend((0..6).map(|at| ("6.12.3", format!("web{at}"), at + 10, "folio_wait_writeback")));
    crashes.push(("6.12.3", "web2".to_owned(), 20, "sysrq_handle_crash"));
    for (at, function) in ["rb_erase", "rb_insert_color", "rb_erase"].into_iter().enumerate() {
        crashes.push(("6.1.90", "bad".to_owned(), 30 + at as u64, function));
    }
    for (number, (release, host, day, function)) in crashes.iter().enumerate() {
        let facts = facts(number as u32, release, host, NOVEMBER + day * DAY, function);
        fs::write(directory.path().join(format!("{number}.json")), facts).unwrap();
    }
    let names: Vec<String> = (0..crashes.len()).map(|number| format!("{number}.json")).collect();
    let mut arguments = vec!["extract", "--to", "tables"];
    arguments.extend(names.iter().map(String::as_str));
    succeeds(directory.path(), &arguments);
    directory
}

fn report(directory: &Path, more: &[&str]) -> Value {
    let arguments = [&["report", "tables", "--json"], more].concat();
    serde_json::from_str(&succeeds(directory, &arguments)).unwrap()
}

fn titles(report: &Value) -> Vec<&str> {
    report["signatures"].as_array().unwrap().iter().map(|group| group["title"].as_str().unwrap()).collect()
}

#[test]
fn signatures_come_by_count_and_requested_ones_last() {
    let directory = tables();
    let all = report(directory.path(), &[]);
    let titles = titles(&all);
    assert_eq!(
        (titles[0], *titles.last().unwrap()),
        ("bug in folio_wait_writeback", "requested in sysrq_handle_crash")
    );
    // Several crashes of a signature on one host only, of seven.
    let suspected = |title: &str| {
        let groups = all["signatures"].as_array().unwrap();
        groups.iter().find(|group| group["title"] == title).unwrap()["hardware"].as_bool().unwrap()
    };
    assert!(
        suspected("bug in rb_erase")
            && !suspected("bug in xfs_trans_commit")
            && !suspected("bug in rb_insert_color")
    );
    let host = |name: &str| {
        let mut hosts = all["repeated"].as_array().unwrap().iter();
        hosts.find(|host| host["host"] == name).unwrap()["hardware"].as_bool().unwrap()
    };
    // Three different signatures.
    assert!(host("bad") && host("web2") && !host("web0"));
    let kernels = all["kernels"].as_array().unwrap();
    assert_eq!((&kernels[1]["release"], &kernels[1]["first_here"]), (&"6.12.3".into(), &2.into()));
}

#[test]
fn a_log_that_could_not_be_read_is_not_one_without_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let write = |number: u32, reason: Option<&str>| {
        let mut facts: Value =
            serde_json::from_str(&facts(number, "6.12.3", "web1", NOVEMBER, "tcp_ack")).unwrap();
        facts["crash"] = Value::Null;
        let missing = reason.map(|reason| serde_json::json!({"what": "log", "reason": reason}));
        facts["missing"] = missing.into_iter().collect();
        fs::write(path.join(format!("{number}.json")), facts.to_string()).unwrap();
    };
    write(1, None);
    write(2, Some("cannot read the kernel's printk ring buffer"));
    write(3, Some("7 records are inconsistent or unreadable"));
    // All of it was searched for a crash.
    write(4, Some("the first 9 records are missing: the log is longer than 8 MiB"));
    succeeds(path, &["extract", "--to", "tables", "1.json", "2.json", "3.json", "4.json"]);
    let found = report(path, &[]);
    assert_eq!((&found["without_signature"], &found["log_unread"]), (&2.into(), &2.into()));
    let text = succeeds(path, &["report", "tables"]);
    assert!(text.contains("2 without a crash in the log, 2 whose log was lost or erased"), "{text}");
}

#[test]
fn only_new_signatures_are_listed_since_a_date() {
    let directory = tables();
    let new = report(directory.path(), &["--since", "2026-11-20"]);
    assert_eq!(
        titles(&new),
        ["bug in rb_erase", "bug in rb_insert_color", "requested in sysrq_handle_crash"]
    );
    assert_eq!(new["crashes"], 15);
    // rb_erase was first seen a second earlier.
    let later = report(directory.path(), &["--since", "2026-12-01T00:00:01Z"]);
    assert_eq!(titles(&later), ["bug in rb_insert_color"]);
    let output = fleet(directory.path(), &["report", "tables", "--since", "yesterday"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_regression_between_kernels_is_more_than_chance() {
    let directory = tables();
    let compared = &report(directory.path(), &["--compare", "6.1", "6.12"])["comparison"];
    let verdicts: Vec<_> = compared["signatures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["title"].as_str().unwrap(), change["verdict"].as_str().unwrap()))
        .collect();
    assert_eq!(verdicts[0], ("bug in folio_wait_writeback", "regression"));
    assert!(verdicts[1..].iter().all(|(_, verdict)| *verdict == "gone"), "{verdicts:?}");
    let text = succeeds(directory.path(), &["report", "tables", "--compare", "6.1", "6.12"]);
    assert!(text.contains("kernel 6.1 (8 crashes) and 6.12 (6 crashes)"), "{text}");
    let output = fleet(directory.path(), &["report", "tables", "--compare", "6.1", "5.4"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no crash of a kernel 5.4"));
}

#[test]
fn the_page_has_plots_and_needs_no_network() {
    let directory = tables();
    succeeds(directory.path(), &["report", "tables", "--html", "fleet.html", "--compare", "6.1", "6.12"]);
    let page = fs::read_to_string(directory.path().join("fleet.html")).unwrap();
    for part in ["<svg", "bug in folio_wait_writeback", "Signatures over time", "hardware?", "regression"] {
        assert!(page.contains(part), "{part}");
    }
    // From the row of a signature to its crashes and their dumps.
    let sig = report(directory.path(), &[])["signatures"][0]["sig"].as_str().unwrap().to_owned();
    assert!(page.contains(&format!("<a href=\"#sig-{sig}\">{sig}</a>")), "{page}");
    let (_, crashes) = page.split_once(&format!("<h3 id=\"sig-{sig}\">")).unwrap();
    let (crashes, _) = crashes.split_once("<h3").unwrap();
    assert_eq!(crashes.matches("<tr>").count(), 7);
    for (host, number) in (0..6).map(|at| (format!("web{at}"), at + 5)) {
        let path = directory.path().join(format!("{number}.json"));
        for part in [host, format!("{number:032x}"), path.display().to_string(), "6.12.3".to_owned()] {
            assert!(crashes.contains(&part), "{part} in {crashes}");
        }
    }
    assert!(!page.contains("http:") && !page.contains("https:"));
}

#[test]
fn a_page_replaces_no_file_unasked_and_is_private() {
    let directory = tables();
    let path = directory.path().join("fleet.html");
    fs::write(&path, "precious").unwrap();
    let output = fleet(directory.path(), &["report", "tables", "--html", "fleet.html"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("fleet.html exists; remove it"), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    succeeds(directory.path(), &["report", "tables", "--html", "fleet.html", "--force"]);
    assert!(fs::read_to_string(&path).unwrap().contains("<svg"));
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(&path).unwrap());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fleet(directory.path(), &["report", "tables", "--force"]).status.code(), Some(2));
}

#[test]
fn a_comparison_names_the_crashes_that_it_leaves_out() {
    let directory = tables();
    let mut facts: Value = serde_json::from_str(&facts(99, "6.1.90", "web1", NOVEMBER, "x")).unwrap();
    facts.as_object_mut().unwrap().remove("crash");
    fs::write(directory.path().join("99.json"), facts.to_string()).unwrap();
    succeeds(directory.path(), &["extract", "99.json", "--to", "tables"]);
    let compared = &report(directory.path(), &["--compare", "6.1", "6.12"])["comparison"];
    let left_out: Vec<_> = compared["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|crash| {
            (crash["crash_id"].as_str().unwrap().trim_start_matches('0'), crash["why"].as_str().unwrap())
        })
        .collect();
    assert_eq!(left_out, [("b", "requested"), ("63", "no-signature")]);
    let text = succeeds(directory.path(), &["report", "tables", "--compare", "6.1", "6.12"]);
    for part in ["2 left out", "requested (sysrq)", "no crash in the log", &format!("{:032x}", 11)] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Both kernels have crashes, but 7.0 only requested ones.
    let requested = common::facts(100, "7.0.1", "web1", NOVEMBER, "sysrq_handle_crash");
    fs::write(directory.path().join("100.json"), requested).unwrap();
    succeeds(directory.path(), &["extract", "100.json", "--to", "tables"]);
    let output = fleet(directory.path(), &["report", "tables", "--compare", "6.1", "7.0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no crash of a kernel 7.0 counts") && said.contains("requested"), "{said}");
}

#[test]
fn compaction_keeps_every_row() {
    let directory = tables();
    let tables = directory.path().join("tables");
    let (before, counted) = (rows(&tables, "dumps"), report(directory.path(), &[]));
    let small = files(&tables.join("dumps"));
    succeeds(directory.path(), &["compact", "tables"]);
    // Two months.
    assert_eq!((files(&tables.join("dumps")).len(), small.len()), (2, 15));
    assert_eq!(rows(&tables, "dumps"), before);
    let many = files(&tables.join("dumps"));
    succeeds(directory.path(), &["compact", "tables"]);
    assert_eq!(files(&tables.join("dumps")), many);
    // Killed after it wrote the new file: each crash counts once.
    for (path, bytes) in &small {
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(report(directory.path(), &[]), counted);
    succeeds(directory.path(), &["compact", "tables"]);
    assert_eq!(files(&tables.join("dumps")), many);
}

#[test]
fn a_crash_that_is_extracted_again_replaces_its_compacted_rows() {
    let directory = tables();
    succeeds(directory.path(), &["compact", "tables"]);
    fs::write(directory.path().join("0.json"), facts(0, "6.1.90", "web1", NOVEMBER, "tcp_ack_renamed"))
        .unwrap();
    let before = rows(&directory.path().join("tables"), "dumps").len();
    succeeds(directory.path(), &["extract", "0.json", "--to", "tables"]);
    // Also for readers that know nothing of the names of files.
    assert_eq!(rows(&directory.path().join("tables"), "dumps").len(), before);
    let check = || {
        let all = report(directory.path(), &[]);
        assert_eq!(all["crashes"], 15);
        assert!(
            titles(&all).contains(&"bug in tcp_ack_renamed") && !titles(&all).contains(&"bug in tcp_ack")
        );
    };
    check();
    succeeds(directory.path(), &["compact", "tables"]);
    assert_eq!(files(&directory.path().join("tables/dumps")).len(), 2);
    check();
}

/// Writes `dumps` of another version of this program: few columns, one of them unknown.
fn old_file(path: &Path, column: &'static str) {
    let mut row = dumps_row();
    row.retain(|(name, ..)| *name != column);
    row.push((column, INT, Cell::Int(7)));
    row.iter_mut().filter(|(name, ..)| *name == "crash_time").for_each(|(.., cell)| *cell = Cell::NullLong);
    write_row(path, &row);
}

#[test]
fn files_of_other_versions_are_read_next_to_new_ones() {
    let directory = tables();
    let month = directory.path().join("tables/dumps/v=1/month=2026-11");
    old_file(&month.join(format!("{}.parquet", "f".repeat(32))), "column_of_tomorrow");
    let check = || {
        let all = report(directory.path(), &[]);
        assert_eq!((&all["crashes"], &all["unreadable"]), (&16.into(), &Value::Array(Vec::new())));
        let old = all["signatures"]
            .as_array()
            .unwrap()
            .iter()
            .find(|group| group["sig"] == "0123456789abcdef")
            .unwrap();
        assert_eq!(
            (&old["crashes"], &old["first_seen"], &old["title"]),
            (&1.into(), &Value::Null, &"".into())
        );
    };
    check();
    succeeds(directory.path(), &["compact", "tables"]);
    check();
    let all = rows(&directory.path().join("tables"), "dumps").join("\n");
    assert!(all.contains("column_of_tomorrow: 7") && all.contains("column_of_tomorrow: null"), "{all}");
    // A column with another type stays where it is.
    old_file(&month.join("1.parquet"), "release");
    let output = fleet(directory.path(), &["compact", "tables"]);
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(month.join("1.parquet").exists());
}

#[test]
fn a_damaged_file_is_named_and_the_rest_counts() {
    let directory = tables();
    let path = files(&directory.path().join("tables/dumps")).into_keys().next().unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let output = fleet(directory.path(), &["report", "tables", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&all["crashes"], all["unreadable"].as_array().unwrap().len()), (&14.into(), 1));
    assert!(all["unreadable"][0].as_str().unwrap().contains(".parquet"));
}

#[test]
fn views_have_each_table_and_no_other_directory() {
    let directory = tables();
    let views = succeeds(directory.path(), &["sql", "tables", "--views"]);
    assert_eq!(views.lines().count(), 2, "{views}");
    assert!(views.starts_with("CREATE VIEW dumps AS") && views.contains("\nCREATE VIEW manifest AS"));
    let output = fleet(directory.path(), &["sql", "tables", "SELECT 1", "--engine", "/nonexistent/duckdb"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("pip install duckdb"));
}

#[test]
fn metrics_name_the_last_crash() {
    let directory = tempfile::tempdir().unwrap();
    for (number, day, function) in [(1, 3, "rb_erase"), (2, 9, "tcp_ack"), (3, 5, "sysrq_handle_crash")] {
        let facts = facts(number, "6.1\"90", "web1", NOVEMBER + day * DAY, function);
        fs::write(directory.path().join(format!("{number}.json")), facts).unwrap();
    }
    fs::write(directory.path().join("bad.json"), "{").unwrap();
    fs::copy(directory.path().join("2.json"), directory.path().join("again.json")).unwrap();
    let files = ["1.json", "2.json", "3.json", "again.json", "bad.json"];
    succeeds(directory.path(), &[&["metrics", "-o", "pagehaul.prom"], &files[..]].concat());
    let text = fs::read_to_string(directory.path().join("pagehaul.prom")).unwrap();
    for line in [
        "# TYPE pagehaul_crashes gauge",
        "pagehaul_crashes{kind=\"bug\"} 2",
        "pagehaul_crashes{kind=\"requested\"} 1",
        &format!("pagehaul_last_crash_timestamp_seconds {}", NOVEMBER + 9 * DAY),
        "pagehaul_unreadable_facts 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    let info = text.lines().find(|line| line.starts_with("pagehaul_last_crash_info{")).unwrap();
    assert!(info.contains("kind=\"bug\",release=\"6.1\\\"90\"} 1"), "{info}");
    assert!(text.ends_with('\n'));
}

#[test]
fn a_page_replaces_no_table() {
    let directory = tables();
    let directory = directory.path();
    let before = files(&directory.join("tables"));
    let table = before.keys().find(|name| name.contains("/dumps/")).unwrap();
    std::os::unix::fs::symlink(table, directory.join("link.html")).unwrap();
    for page in [table.as_str(), "tables/page.html", "link.html"] {
        let output = fleet(directory, &["report", "tables", "--html", page, "--force"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("below the directory of the tables"),
            "{page}: {said}"
        );
        assert!(files(&directory.join("tables")) == before, "{page}");
    }
}

#[test]
fn text_of_facts_does_not_steer_what_shows_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let host = "web\u{1b}[2J\u{7}\u{202e}1";
    fs::write(directory.join("1.json"), facts(1, "6.12", host, NOVEMBER, "tcp_ack")).unwrap();
    fs::write(directory.join("2.json"), facts(2, "6.12", host, NOVEMBER, "tcp_ack")).unwrap();
    succeeds(directory, &["extract", "1.json", "2.json", "--to", "tables"]);
    succeeds(directory, &["report", "tables", "--html", "page.html"]);
    let page = fs::read_to_string(directory.join("page.html")).unwrap();
    assert!(
        page.contains("web\\u{1b}[2J\\u{7}\\u{202e}1") && !page.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{page}"
    );
}

#[test]
fn a_time_to_come_is_not_that_of_the_last_crash() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("1.json"), facts(1, "6.12", "web1", NOVEMBER, "tcp_ack")).unwrap();
    for (number, time) in [(2, 253_402_300_800), (3, 4_102_444_800)] {
        fs::write(directory.join(format!("{number}.json")), facts(number, "6.12", "web1", time, "tcp_ack"))
            .unwrap();
    }
    let files = ["1.json", "2.json", "3.json"];
    succeeds(directory, &[&["extract", "--to", "tables"], &files[..]].concat());
    let all = report(directory, &[]);
    assert_eq!((&all["signatures"][0]["last_seen"], &all["crashes"]), (&NOVEMBER.into(), &3.into()), "{all}");
    for arguments in [&["metrics", "--tables", "tables"][..], &[&["metrics"], &files[..]].concat()] {
        let text = succeeds(directory, arguments);
        assert!(text.contains(&format!("pagehaul_last_crash_timestamp_seconds {NOVEMBER}\n")), "{text}");
        assert!(!text.contains("253402300800") && !text.contains("4102444800"), "{text}");
    }
}

#[test]
fn redacted_rows_beside_clear_ones_are_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("key"), "0123456789abcdef").unwrap();
    for number in [1, 2] {
        let facts = facts(number, "6.12", "web1", NOVEMBER, "tcp_ack");
        fs::write(directory.join(format!("{number}.json")), facts).unwrap();
    }
    let warns = |arguments: &[&str]| {
        let output = fleet(directory, &[&["extract"], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).contains("made without --redact")
    };
    assert!(!warns(&["1.json", "--to", "hashed", "--redact", "key"]));
    assert!(!warns(&["2.json", "--to", "hashed", "--redact", "key"]));
    assert!(!warns(&["1.json", "--to", "clear"]));
    assert!(warns(&["2.json", "--to", "clear", "--redact", "key"]));
    succeeds(directory, &["compact", "clear"]);
    assert!(warns(&["2.json", "--to", "clear", "--redact", "key"]));
}
