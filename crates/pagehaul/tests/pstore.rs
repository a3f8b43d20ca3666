//! Records of pstore in place of a dump.

mod common {
    pub mod setup;
}

use std::fs;

use common::setup::Setup;
use serde_json::Value;

#[test]
fn facts_and_triage_read_the_records_of_a_crash() {
    let setup = Setup::small();
    let log = concat!(env!("CARGO_MANIFEST_DIR"), "/../facts/tests/data/null.6.12.log");
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().collect();
    let (first, last) = lines.split_at(lines.len() / 2);
    for (part, lines) in [(2, first), (1, last)] {
        let text = format!("Panic#1 Part{part}\n{}\n", lines.join("\n"));
        fs::write(setup.path(&format!("dmesg-ramoops-{}", part - 1)), text).unwrap();
    }
    let records = ["dmesg-ramoops-0", "dmesg-ramoops-1"];
    let facts: Value = serde_json::from_str(&setup.succeeds(&[&["facts"], &records[..]].concat())).unwrap();
    assert_eq!(facts["crash"]["kind"], "null-deref");
    assert_eq!(facts["log"].as_array().unwrap().len(), lines.len());
    let text = setup.succeeds(&[&["triage"], &records[..]].concat());
    let signature = facts["crash"]["sig"].as_str().unwrap();
    assert!(text.contains(signature) && text.contains(facts["crash"]["title"].as_str().unwrap()), "{text}");
    let json: Value =
        serde_json::from_str(&setup.succeeds(&[&["triage", "--json"], &records[..]].concat())).unwrap();
    assert_eq!(json, facts);
    let said = setup.fails(&["triage", "--stacks", records[0]], 1);
    assert!(said.contains("pstore has only the end of the log"), "{said}");
    let said = setup.fails(&["facts", records[0], "vmcore"], 1);
    assert!(said.contains("vmcore is no record of pstore"), "{said}");
}
