//! `capture --erase` and `convert --erase`. Keys are erased in real kernels only (`tools/lab/tests/erase.rs`).

mod common {
    pub mod setup;
}

use common::setup::Setup;
use serde_json::Value;

/// A part of the text of the log of [`Setup::crashed`].
const TEXT: &str = "sysrq triggered";

fn holds(setup: &Setup, name: &str, text: &str) -> bool {
    let bytes = std::fs::read(setup.path(name)).unwrap();
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

fn erased(setup: &Setup, name: &str) -> String {
    let info: Value = serde_json::from_str(&setup.succeeds(&["info", "--json", name])).unwrap();
    info["erased"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn no_format_has_the_text_of_an_erased_log() {
    let setup = Setup::crashed();
    setup.succeeds(&["convert", "-q", "-f", "elf", "vmcore", "plain"]);
    assert!(holds(&setup, "plain", TEXT));
    assert_eq!(erased(&setup, "plain"), "");
    for (command, level) in [("capture", "0"), ("capture", "31"), ("convert", "31")] {
        for format in ["elf", "kdump", "flattened"] {
            let name = format!("{command}-{level}-{format}");
            setup.succeeds(&[command, "-q", "-d", level, "-f", format, "--erase", "log", "vmcore", &name]);
            assert!(
                erased(&setup, &name).starts_with("erase log size "),
                "{name}: {}",
                erased(&setup, &name)
            );
            // The record stays with the dump.
            let core = format!("{name}.core");
            setup.succeeds(&["convert", "-q", "-f", "elf", &name, &core]);
            assert_eq!(erased(&setup, &core), erased(&setup, &name));
            assert!(!holds(&setup, &core, TEXT), "{name}");
            let log = setup.succeeds(&["dmesg", &name]);
            assert!(log.contains("1.500000") && log.contains("XXXXXXXX"), "{name}: {log}");
        }
    }
}

#[test]
fn names_of_user_tasks_are_erased_and_nothing_else_of_them() {
    let setup = Setup::crashed();
    let task = |name: &str| -> Value {
        let report = setup.succeeds(&["triage", "--json", "--tasks", name]);
        let report: Value = serde_json::from_str(&report).unwrap();
        let tasks = report["tasks"].as_array().unwrap();
        tasks.iter().find(|task| task["pid"] == 20).unwrap().clone()
    };
    assert_eq!(task("vmcore")["comm"], "writer");
    // The synthetic kernel has no types of host names.
    setup.succeeds(&["convert", "-q", "--erase", "names", "--allow-unerased", "vmcore", "dump"]);
    let mut expected = task("vmcore");
    expected["comm"] = task("dump")["comm"].clone();
    assert!(expected["comm"].as_str().unwrap().chars().all(|letter| letter == 'X'), "{expected}");
    assert_eq!(task("dump"), expected);
    let record = erased(&setup, "dump");
    assert!(record.contains("erase task_struct.comm size 15") && record.contains("not erased: "), "{record}");
}

#[test]
fn what_cannot_be_found_is_an_error_before_anything_is_written() {
    let setup = Setup::crashed();
    for command in ["capture", "convert"] {
        let said = setup.fails(&[command, "-q", "--erase", "keys", "vmcore", "dump"], 1);
        assert!(said.contains("nothing is written") && said.contains("--allow-unerased"), "{said}");
        assert!(!setup.path("dump").exists());
    }
    let said = setup.fails(&["capture", "--erase", "log", "--facts", "vmcore", "dump"], 2);
    assert!(said.contains("--facts would write the log"), "{said}");
    let said = setup.fails(&["convert", "--erase", "everything", "vmcore", "dump"], 2);
    assert!(said.contains("free-objects"), "{said}");
    let said = setup.fails(&["convert", "--allow-unerased", "vmcore", "dump"], 2);
    assert!(said.contains("--erase"), "{said}");
    let without_types = Setup::small();
    let said = without_types.fails(&["convert", "--erase", "keys", "vmcore", "dump"], 1);
    assert!(said.contains("nothing can be erased") && !without_types.path("dump").exists(), "{said}");
    assert!(!setup.path("dump").exists());
}
