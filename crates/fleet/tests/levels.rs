//! Dumps of one crash that have more or less of it: all tables are of one of them, in whichever order or at once they are extracted.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use common::{OOPS, files, fleet, machine, rows, succeeds};
use pagehaul_synth::Era;

/// All files of tables but the manifest.
fn tables(directory: &Path, to: &str) -> BTreeMap<String, Vec<u8>> {
    let found = files(&directory.join(to)).into_iter().filter(|(name, _)| !name.contains("/manifest/"));
    found.map(|(name, bytes)| (name.split_once(to).unwrap().1.to_owned(), bytes)).collect()
}

/// Extracts two dumps in all orders, and at the same time. The tables have to be those of `best`, and the manifest says why.
fn only_one_counts(directory: &Path, best: &str, other: &str, why: &str) {
    succeeds(directory, &["extract", best, "--to", "alone"]);
    let alone = tables(directory, "alone");
    assert!(alone.len() >= 8, "{:?}", alone.keys());
    for (name, order) in [("first", [best, other]), ("last", [other, best])] {
        order.iter().for_each(|dump| drop(succeeds(directory, &["extract", dump, "--to", name])));
        assert!(tables(directory, name) == alone, "{best} {name}");
    }
    let manifest = rows(&directory.join("first"), "manifest");
    let left: Vec<_> = manifest.iter().filter(|row| row.contains(why)).collect();
    assert!(left.len() == 1 && left[0].contains(&format!("{other}\"")), "{manifest:#?}");
    for round in 0..8 {
        let to = format!("both-{round}");
        let [one, two] = if round % 2 == 0 { [best, other] } else { [other, best] };
        // Each twice: dumps of a crash wait for each other, and those of others do not.
        succeeds(directory, &["extract", one, two, one, two, "-j", "3", "--to", &to]);
        assert!(tables(directory, &to) == alone, "{best} {to}");
        succeeds(directory, &["extract", other, "--to", &to]);
        assert!(tables(directory, &to) == alone, "{best} {to}");
    }
}

#[test]
fn the_dump_of_the_lower_level_has_more() {
    let directory = tempfile::tempdir().unwrap();
    let image = machine(Era::V6_12, "billing", &OOPS).build();
    for level in [0, 31] {
        fs::write(directory.path().join(format!("level-{level}")), image.kdump().level(level).bytes())
            .unwrap();
    }
    only_one_counts(directory.path(), "level-0", "level-31", "stay: it has more");
    // After compact, too.
    let directory = directory.path();
    machine(Era::V6_1, "other", &OOPS).build().elf().write(&directory.join("other")).unwrap();
    succeeds(directory, &["extract", "level-0", "other", "--to", "tables"]);
    succeeds(directory, &["compact", "tables"]);
    let before = tables(directory, "tables");
    succeeds(directory, &["extract", "level-31", "--to", "tables"]);
    assert!(tables(directory, "tables") == before);
}

#[test]
fn of_equal_dumps_the_larger_one_counts() {
    let directory = tempfile::tempdir().unwrap();
    let bytes = machine(Era::V6_12, "billing", &OOPS).build().kdump().level(31).bytes();
    fs::write(directory.path().join("large"), [&bytes[..], &[0; 4096]].concat()).unwrap();
    fs::write(directory.path().join("small"), bytes).unwrap();
    only_one_counts(directory.path(), "large", "small", "stay: it has as much");
}

#[test]
fn a_dump_whose_vmcoreinfo_is_damaged_is_no_whole_one() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut bytes = machine(Era::V6_12, "billing", &OOPS).build().kdump().level(31).bytes();
    let at = bytes.windows(10).position(|text| text == b"OSRELEASE=").unwrap();
    bytes[at + 11] ^= 0x80;
    fs::write(directory.join("dump"), bytes).unwrap();
    let damaged = "VMCOREINFO is damaged: the crash ID is not that of other dumps";
    // Again, and for tables that tell nothing of the crash.
    for more in [&[][..], &[], &["--only", "tasks"]] {
        let output = fleet(directory, &[&["extract", "dump", "--to", "tables"], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(damaged), "{:?}: {said}", output.status);
        let manifest = rows(&directory.join("tables"), "manifest").concat();
        assert_eq!(manifest.matches(damaged).count(), 1, "{manifest}");
    }
    assert_eq!(rows(&directory.join("tables"), "dumps").len(), 1);
}

#[test]
fn names_that_differ_in_bytes_that_are_no_text_have_a_row_each() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let names = [b"dump-\xff", b"dump-\xfe"].map(|name| OsStr::from_bytes(name));
    names.iter().for_each(|name| fs::write(directory.join(name), "no dump").unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"));
    command.current_dir(directory).args(["extract", "--json", "--to", "tables"]).args(names);
    let output = command.output().unwrap();
    let manifest = rows(&directory.join("tables"), "manifest").concat();
    for name in ["dump-\\xff", "dump-\\xfe"] {
        assert!(manifest.contains(&format!("{name}\"")), "{manifest}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains(&format!("{name}: at offset")),
            "{output:?}"
        );
        assert!(String::from_utf8_lossy(&output.stdout).contains(&name.replace('\\', "\\\\")), "{output:?}");
    }
}

#[test]
fn rows_count_once_and_failed_writes_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(
        directory.join("dump"),
        machine(Era::V6_12, "billing", &OOPS).build().kdump().level(31).bytes(),
    )
    .unwrap();
    let said = succeeds(directory, &["extract", "dump", "dump", "--to", "tables"]);
    let tables = fs::read_dir(directory.join("tables")).unwrap();
    let names = tables.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let all: usize = names
        .filter(|name| name != "manifest")
        .map(|name| rows(&directory.join("tables"), &name).len())
        .sum();
    assert!(said.contains(&format!(" {all} rows in tables")), "{all}: {said}");
    // As on a full disk.
    fs::remove_dir_all(directory.join("tables/manifest/v=1")).unwrap();
    fs::write(directory.join("tables/manifest/v=1"), "").unwrap();
    let output = fleet(directory, &["extract", "dump", "--to", "tables"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.code() == Some(1) && said.contains("0 dumps of 1 crashes") && said.contains("1 failed"),
        "{said}"
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("dump: cannot write tables/manifest"),
        "{output:?}"
    );
}
