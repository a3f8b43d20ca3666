//! What the commands print, as text and as JSON, reviewed as files in `snapshots/`.
//!
//! `INSTA_UPDATE=always cargo test -p pagehaul --test goldens` rewrites them.
#![cfg(all(feature = "census", feature = "stalls"))]

mod common {
    pub mod setup;
}

use std::path::Path;

use common::setup::Setup;
use pagehaul_synth::{Content, Era, Machine, Message};
use serde_json::Value;

/// A machine with a page of every class, a process, and a log.
fn machine() -> Setup {
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000).anon(0x5000).fill(0x5000, Content::Random);
    let record = |nanoseconds, level, text| Message { nanoseconds, level, caller: 7, text };
    machine.log(
        0x6000,
        &[
            record(1_000_000, 6, "Linux version 6.12.0"),
            record(1_500_000_000, 0, "Kernel panic - not syncing: sysrq triggered crash"),
        ],
    );
    Setup::new(&mut machine)
}

/// Compares with the committed snapshot, with times, rates and memory use masked.
fn check(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => "snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
        filters => vec![
            (r"\d+\.\d+ s\b", "[SECONDS]"),
            (r"[\d.]+ [KMG]?i?B/s", "[RATE]"),
            (r"[\d.]+ [KMG]iB (of anonymous|anonymous) memory", "[MEMORY] anonymous memory"),
            (r#""(prepare|scan|pack|finish|seconds)": [\d.e-]+"#, "\"$1\": \"[SECONDS]\""),
            (r#""peak_anonymous_bytes": \d+"#, "\"peak_anonymous_bytes\": \"[BYTES]\""),
        ],
    }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn capture_reports() {
    let setup = machine();
    check("capture", &setup.succeeds(&["capture", "-t", "2", "vmcore", "dump"]));
    check("capture-json", &setup.succeeds(&["capture", "-t", "2", "--json", "vmcore", "again"]));
}

#[test]
fn dumps_are_described() {
    let setup = machine();
    setup.succeeds(&["capture", "-q", "--checksums", "vmcore", "dump"]);
    for command in ["info", "dmesg", "pages", "verify"] {
        check(command, &setup.succeeds(&[command, "dump"]));
        let json = setup.succeeds(&[command, "--json", "dump"]);
        check(&format!("{command}-json"), &if command == "pages" { shape(&json) } else { json });
    }
    check("page", &setup.succeeds(&["pages", "--pfn", "0x5000", "dump"]));
    check("page-json", &setup.succeeds(&["pages", "--pfn", "0x5000", "--json", "vmcore"]));
    check("info-all", &setup.succeeds(&["info", "--classes", "--notes", "dump"]));
}

#[test]
fn damage_is_described() {
    let setup = machine();
    setup.succeeds(&["capture", "-q", "-c", "zlib", "vmcore", "dump"]);
    let mut bytes = std::fs::read(setup.path("dump")).unwrap();
    let end = bytes.len() - 6000;
    bytes[end..].fill(0xa5);
    std::fs::write(setup.path("dump"), bytes).unwrap();
    let output = setup.run(&["verify", "dump"]);
    assert_eq!(output.status.code(), Some(3));
    check("verify-damaged", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn reclaim_reports() {
    let setup = machine();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reclaim/tests/data");
    std::fs::copy(data.join("guest-6.12.pht"), setup.path("reclaim.pht")).unwrap();
    check("reclaim-report", &setup.succeeds(&["reclaim", "report", "reclaim.pht"]));
    check("reclaim-report-json", &shape(&setup.succeeds(&["reclaim", "report", "--json", "reclaim.pht"])));
}

/// The keys of large JSON, and the types of their values: one line per key, of arrays the first element.
fn shape(json: &str) -> String {
    fn walk(path: &str, value: &Value, out: &mut String) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| walk(&format!("{path}.{key}"), value, out))
            }
            Value::Array(values) => match values.first() {
                Some(first) => walk(&format!("{path}[]"), first, out),
                None => *out += &format!("{path}: []\n"),
            },
            Value::String(_) => *out += &format!("{path}: string\n"),
            Value::Number(_) => *out += &format!("{path}: number\n"),
            Value::Bool(_) => *out += &format!("{path}: bool\n"),
            Value::Null => *out += &format!("{path}: null\n"),
        }
    }
    let mut out = String::new();
    walk("", &serde_json::from_str(json).unwrap(), &mut out);
    out
}
