//! `capture --erase` and `convert --erase`. Keys are erased in real kernels only (`tools/lab/tests/erase.rs`).

mod common {
    pub mod setup;
}

use common::setup::Setup;
use pagehaul_synth::{Content, Era, Inside, Machine, Message};
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
    let is_said = |name: &str| setup.succeeds(&["triage", name]).contains("names of user tasks are erased");
    assert!(is_said("dump") && !is_said("vmcore"));
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

/// A machine with a log, to be built.
fn logging(pfn: u64, text: &'static str) -> Machine {
    let mut machine = Machine::new(Era::V6_12);
    machine.log(pfn, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
    machine
}

/// A kernel with `log_buf_len=` copies its log into a larger buffer, and leaves the text in the first one.
#[test]
fn the_text_that_a_moved_log_leaves_behind_is_erased() {
    const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
    let mut machine = logging(0x6000, "Command line: password=first");
    machine.log(0x6100, &[Message { nanoseconds: 2, level: 0, caller: 7, text: "password=second" }]);
    machine.info("SYMBOL(printk_rb_static)", format!("{:x}", DIRECT_MAP + 0x6000 * 4096));
    machine.inside(0x5000, &Inside::default());
    let setup = Setup::new(&mut machine);
    setup.succeeds(&["convert", "-q", "-f", "elf", "vmcore", "plain"]);
    setup.succeeds(&["convert", "-q", "-f", "elf", "--erase", "log", "vmcore", "erased"]);
    for text in ["password=first", "password=second"] {
        assert!(holds(&setup, "plain", text) && !holds(&setup, "erased", text), "{text}");
    }
}

/// ELF dumps keep short runs of excluded pages. One that is given away must not.
#[test]
fn no_excluded_page_is_in_an_elf_dump_of_which_something_is_erased() {
    let mut machine = logging(0x6000, TEXT);
    let mut page = [0x5a; 4096];
    page[..8].copy_from_slice(b"my data!");
    machine.slab(0x4080, 3).anon(0x4088).slab(0x4090, 3).fill(0x4088, Content::Bytes(Box::new(page)));
    machine.inside(0x5000, &Inside::default());
    let setup = Setup::new(&mut machine);
    let elf = |options: &[&str], source: &str, name: &str| {
        setup.succeeds(&[&["convert", "-q", "-f", "elf"], options, &[source, name]].concat());
        holds(&setup, name, "my data!")
    };
    assert!(elf(&["-d", "31"], "vmcore", "plain"));
    assert!(!elf(&["-d", "31", "--erase", "log"], "vmcore", "erased"));
    // Nor is it later.
    setup.succeeds(&["convert", "-q", "-d", "0", "--erase", "log", "vmcore", "whole"]);
    assert!(!elf(&["-d", "31"], "whole", "later"));
}

#[test]
fn an_erased_log_does_not_say_that_nothing_happened() {
    let setup = Setup::crashed();
    setup.succeeds(&["convert", "-q", "--erase", "log", "vmcore", "dump"]);
    assert!(setup.succeeds(&["triage", "vmcore"]).contains("sysrq"));
    let said = setup.succeeds(&["triage", "dump"]);
    assert!(said.contains("What happened: not known") && said.contains("its text was erased"), "{said}");
    assert!(!said.contains("no panic:") && !said.contains("nothing suspicious found\n"), "{said}");
    let facts: Value = serde_json::from_str(&setup.succeeds(&["facts", "dump"])).unwrap();
    assert!(facts["missing"].to_string().contains("its text was erased"), "{facts}");
}
