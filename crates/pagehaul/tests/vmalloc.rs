//! `pagehaul vmalloc` on a recording of Linux 6.12.

use std::process::{Command, Output};

const VMALLOC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vmalloc/tests/data/vmalloc-6.12.pht");
const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../latency/tests/data/functions-6.12.pht");

fn vmalloc(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagehaul")).arg("vmalloc").args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = vmalloc(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_recording_gives_rows_and_a_summary() {
    assert_eq!(text(&["--from", VMALLOC, "-i", "1"]), include_str!("golden/vmalloc.txt"));
}

#[test]
fn intervals_add_up_to_the_whole() {
    let lines = |arguments: &[&str]| -> Vec<serde_json::Value> {
        text(arguments).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let whole = lines(&["--from", VMALLOC, "--json"]);
    let parts = lines(&["--from", VMALLOC, "--json", "-i", "1"]);
    assert!(whole.len() == 1 && parts.len() > 1);
    for field in ["freed", "purges", "purged"] {
        let sum: u64 = parts.iter().map(|part| part[field].as_u64().unwrap()).sum();
        assert_eq!(Some(sum), whole[0][field].as_u64(), "{field}");
    }
    let areas: u64 = parts.iter().map(|part| part["allocated"]["areas"].as_u64().unwrap()).sum();
    assert_eq!(Some(areas), whole[0]["allocated"]["areas"].as_u64());
}

#[test]
fn a_recording_can_be_read_in_part() {
    let areas = |arguments: &[&str]| -> u64 {
        let report: serde_json::Value = serde_json::from_str(&text(arguments)).unwrap();
        report["allocated"]["areas"].as_u64().unwrap()
    };
    let whole = areas(&["--from", VMALLOC, "--json"]);
    let part = areas(&["--from", VMALLOC, "--json", "--duration", "1500ms"]);
    assert!(0 < part && part < whole, "{part} of {whole}");
    assert_eq!(areas(&["--from", VMALLOC, "--json", "--duration", "1h"]), whole);
}

#[test]
fn a_trace_of_something_else_is_refused() {
    let output = vmalloc(&["--from", FUNCTIONS]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("no vmalloc events") && said.lines().count() == 1, "{said}");
}

#[test]
fn a_cut_recording_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let cut = directory.path().join("cut.pht");
    std::fs::write(&cut, &std::fs::read(VMALLOC).unwrap()[..20_000]).unwrap();
    let cut = cut.to_str().unwrap();
    let warning = "the recording is truncated: it has no end block, and its last events may be missing";
    let shown = text(&["--from", cut]);
    assert!(shown.contains(&format!("! {warning}\n")), "{shown}");
    let shown = text(&["--from", cut, "--json"]);
    let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let warnings = report["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|found| found == warning), "{shown}");
}
