//! `capture --triage`: whatever happens to the report, the dump is the same.

#[path = "common/setup.rs"]
mod setup;

use std::fs;

use setup::Setup;

/// Captures with `options` and without; the dumps have to be equal. Returns what the capture printed.
fn same_dump(setup: &Setup, options: &[&str]) -> String {
    setup.succeeds(&["capture", "-q", "--force", "vmcore", "plain"]);
    let output = setup.run(&[&["capture"], options, &["--force", "vmcore", "dump"]].concat());
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{options:?}: {said}");
    assert_eq!(fs::read(setup.path("plain")).unwrap(), fs::read(setup.path("dump")).unwrap(), "{options:?}");
    said
}

#[test]
fn a_kernel_without_symbols_gives_a_dump_without_report() {
    let setup = Setup::small();
    let said = same_dump(&setup, &["--triage"]);
    assert!(said.contains("note: no triage report: "), "{said}");
    assert!(!setup.path("dump.triage").exists());
}

#[test]
fn a_budget_of_nothing_gives_a_dump_without_report() {
    let setup = Setup::small();
    for budget in ["--triage=0s", "--triage=1ms"] {
        let said = same_dump(&setup, &[budget]);
        assert!(said.contains("note: no triage report: "), "{said}");
    }
    assert!(same_dump(&setup, &["--triage=0s"]).contains("its time budget is 0"));
}

#[test]
fn damaged_memory_gives_a_dump_without_report() {
    let setup = Setup::small();
    // Headers and notes stay; page tables, sections and data become what they point at.
    let mut vmcore = fs::read(setup.path("vmcore")).unwrap();
    for at in (1 << 16..vmcore.len()).step_by(4096 + 8) {
        vmcore[at] ^= 0x55;
    }
    fs::write(setup.path("vmcore"), vmcore).unwrap();
    let plain = setup.run(&["capture", "-q", "-d", "0", "vmcore", "plain"]);
    let with = setup.run(&["capture", "-q", "-d", "0", "--triage", "vmcore", "dump"]);
    assert_eq!(plain.status.code(), with.status.code());
    let read = |name| fs::read(setup.path(name)).ok();
    assert!(read("plain") == read("dump"));
    assert!(read("dump").is_some(), "{}", String::from_utf8_lossy(&with.stderr));
}
