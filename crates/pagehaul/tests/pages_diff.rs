//! `pages diff`: dumps and outputs of `pages --owners --json` say the same, and what cannot be compared is refused.
#![cfg(feature = "census")]

mod common {
    pub mod setup;
}

use std::fs;

use common::setup::Setup;
use pagehaul_synth::{Era, Inside, Machine};
use serde_json::{Value, json};

/// A machine with so many pages of slab.
fn setup(slabs: u64) -> Setup {
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x5000, &Inside { clock: 60, free: 1 << 17, ..Inside::default() });
    machine.anon(0x2000);
    for slab in 0..slabs {
        machine.slab(0x2010 + 4 * slab, 2);
    }
    Setup::new(&mut machine)
}

fn slab(grown: &str) -> Value {
    let grown: Value = serde_json::from_str(grown).unwrap();
    let row = grown["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "slab").unwrap().clone();
    json!([row["before"], row["after"]])
}

#[test]
fn dumps_and_their_json_say_the_same() {
    let (setup, later) = (setup(1), setup(3));
    fs::copy(later.path("vmcore"), setup.path("later")).unwrap();
    for (dump, name) in [("vmcore", "before.json"), ("later", "after.json")] {
        let owners = setup.succeeds(&["pages", "--owners", "--json", dump]);
        fs::write(setup.path(name), owners).unwrap();
    }
    let diff = |before, after| setup.succeeds(&["pages", "diff", "--json", before, after]);
    let expected = slab(&diff("vmcore", "later"));
    assert!(expected[0].as_u64() < expected[1].as_u64(), "{expected}");
    for (before, after) in [("before.json", "after.json"), ("vmcore", "after.json"), ("before.json", "later")]
    {
        assert_eq!(slab(&diff(before, after)), expected, "{before}, {after}");
    }
    for same in ["vmcore", "before.json"] {
        // The machine lacks structures by which some rows are found.
        let out = setup.succeeds(&["pages", "diff", same, same]);
        assert!(
            out.contains("no row changed") || out.contains("no row is known to have changed"),
            "{same}: {out}"
        );
    }
}

/// The output of `pages --owners --json` of a machine, with these rows.
fn moment(setup: &Setup, name: &str, is_whole: bool, rows: Value) {
    let owners = setup.succeeds(&["pages", "--owners", "--json", "vmcore"]);
    let mut owners: Value = serde_json::from_str(&owners).unwrap();
    let rows_lost = rows.as_array().unwrap().iter().any(|row| row["kind"] == "undecided");
    owners["rows"] = rows;
    owners["is_whole"] = json!(is_whole);
    owners["incomplete"] = json!(rows_lost);
    fs::write(setup.path(name), owners.to_string()).unwrap();
}

fn row(kind: &str, pages: u64) -> Value {
    json!({ "kind": kind, "pages": pages, "owners": [], "owner_count": 0 })
}

#[test]
fn of_a_damaged_moment_rows_are_bounds_or_not_known() {
    let setup = setup(1);
    moment(&setup, "whole", true, json!([row("slab", 70), row("page_tables", 9), row("per_cpu", 6)]));
    let lost = json!([row("slab", 69), row("page_tables", 30), row("undecided", 1)]);
    moment(&setup, "lost", true, lost);
    moment(&setup, "broken", false, json!([row("slab", 70), row("page_tables", 9)]));
    assert!(setup.succeeds(&["pages", "diff", "whole", "whole"]).contains("no row changed"));
    for (before, after, status, expected) in [
        (
            "whole",
            "lost",
            3,
            json!({ "slab": [70, 69, false, true], "page_tables": [9, null, false, false] }),
        ),
        (
            "lost",
            "whole",
            3,
            json!({ "slab": [69, 70, true, false], "page_tables": [null, 9, false, false] }),
        ),
        ("whole", "broken", 0, json!({ "per_cpu": [6, null, false, false] })),
    ] {
        let output = setup.run(&["pages", "diff", "--json", before, after]);
        assert_eq!(output.status.code(), Some(status), "{before}, {after}");
        let grown: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(grown["damaged"], json!([before != "whole", after != "whole"]));
        for (kind, expected) in expected.as_object().unwrap() {
            let rows = grown["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["kind"] == kind.as_str());
            let row = row.unwrap_or_else(|| panic!("{before}, {after}: no {kind} in {rows:?}"));
            let found = json!([row["before"], row["after"], row["at_least"][0], row["at_least"][1]]);
            assert_eq!(&found, expected, "{before}, {after}: {kind}");
        }
    }
}

#[test]
fn without_struct_pages_nothing_is_compared() {
    let setup = setup(1);
    moment(&setup, "whole", true, json!([row("slab", 70)]));
    moment(&setup, "nothing", false, json!([row("undecided", 1000)]));
    for sides in [["whole", "nothing"], ["nothing", "whole"], ["nothing", "nothing"]] {
        let said = setup.fails(&["pages", "diff", sides[0], sides[1]], 1);
        assert!(said.contains("nothing: the struct pages of all its memory are lost"), "{said}");
    }
}

/// Neither by `pages` nor by `pages --owners`.
#[test]
fn pages_that_the_machine_does_not_have_are_not_undecided() {
    let setup = setup(1);
    let parts = setup.image.kdump().level(0).parts(60);
    let names: Vec<String> = (0..parts.len()).map(|index| format!("part.{index}")).collect();
    for (name, part) in names.iter().zip(&parts) {
        fs::write(setup.path(name), part).unwrap();
    }
    let mut lost = 0;
    for left_out in 0..names.len() {
        let undecided = |arguments: &[&str], rows: &str, kind: &str| {
            let mut arguments = arguments.to_vec();
            arguments
                .extend(names.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, name)| &**name));
            let output = setup.run(&arguments);
            let report: Value = serde_json::from_slice(&output.stdout).ok()?;
            let row = report[rows].as_array().unwrap().iter().find(|row| row[kind] == "undecided").cloned();
            Some(row.map_or(0, |row| row["pages"].as_u64().unwrap()))
        };
        let by_class = undecided(&["pages", "--json"], "classes", "class");
        assert_eq!(
            undecided(&["pages", "--owners", "--json"], "rows", "kind"),
            by_class,
            "without {left_out}"
        );
        lost = lost.max(by_class.unwrap_or(0));
    }
    assert!(lost > 0);
}

#[test]
fn a_lost_page_of_struct_pages_is_said_even_if_the_dump_says_that_it_is_complete() {
    let setup = setup(1);
    setup.succeeds(&["convert", "-d", "0", "-c", "zlib", "vmcore", "dump"]);
    let page: Value =
        serde_json::from_str(&setup.succeeds(&["pages", "--pfn", "0x2000", "--json", "dump"])).unwrap();
    let at = page["struct_page"]["address"].as_u64().unwrap() & !0xfff;
    let at = format!("{at:#x}");
    let contents = setup.run(&["read", "--virt", &at, "--len", "4K", "--format", "raw", "dump"]).stdout;
    let mut damaged = fs::read(setup.path("dump")).unwrap();
    damage(&mut damaged, frame(&fs::read(setup.path("vmcore")).unwrap(), &contents));
    fs::write(setup.path("damaged"), damaged).unwrap();
    for arguments in [&["pages"][..], &["pages", "--owners"], &["triage", "--section", "memory"]] {
        let ran = setup.run(&[arguments, &["damaged"]].concat());
        let said = String::from_utf8(ran.stdout).unwrap();
        assert_eq!(ran.status.code(), Some(3), "{arguments:?}: {said}");
        assert!(
            said.contains("are damaged or missing, though it says that it is complete"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn what_is_no_moment_is_refused() {
    let setup = setup(1);
    let owners = setup.succeeds(&["pages", "--owners", "--json", "vmcore"]);
    let damaged = [
        ("cut", &owners[..owners.len() / 2], "EOF"),
        ("other", "{}", "missing field"),
        ("negative", &owners.replacen("\"pages\": ", "\"pages\": -", 1), "invalid value"),
        ("pages", &owners.replacen("\"page_size\": 4096", "\"page_size\": 4097", 1), "4097 bytes"),
    ];
    for (name, text, why) in damaged {
        fs::write(setup.path(name), text).unwrap();
        let said = setup.fails(&["pages", "diff", "vmcore", name], 1);
        assert!(said.contains(name) && said.contains(why), "{said}");
    }
    // Of a machine with other pages.
    fs::write(setup.path("arm64"), owners.replacen("\"page_size\": 4096", "\"page_size\": 16384", 1))
        .unwrap();
    let said = setup.fails(&["pages", "diff", "vmcore", "arm64"], 1);
    assert!(said.contains("pages of 4096 and 16384 bytes"), "{said}");
}

/// Returns the PFN of a page of an ELF vmcore with these contents.
fn frame(vmcore: &[u8], contents: &[u8]) -> u64 {
    let number = |at: usize| u64::from_le_bytes(*vmcore[at..].first_chunk().unwrap());
    let count = u16::from_le_bytes(*vmcore[56..].first_chunk().unwrap());
    let headers = (0..usize::from(count)).map(|header| number(32) as usize + 56 * header);
    let found = headers.filter(|header| vmcore[*header] == 1).find_map(|header| {
        let [offset, paddr, size] = [8, 24, 32].map(|at| number(header + at));
        let pages = vmcore[offset as usize..(offset + size) as usize].as_chunks::<4096>().0;
        Some(paddr / 4096 + pages.iter().position(|page| page == contents)? as u64)
    });
    found.unwrap()
}

/// Damages the data of a page in a dump of all pages, of blocks of 4 KiB, that says it is complete.
fn damage(dump: &mut [u8], pfn: u64) {
    let number = |at: usize| u32::from_le_bytes(*dump[at..].first_chunk().unwrap()) as usize;
    let (block, sub_header, bitmaps) = (number(428), number(432), number(436));
    let second = (1 + sub_header) * block + bitmaps * block / 2;
    let before = (0..pfn).filter(|pfn| dump[second + *pfn as usize / 8] >> (pfn % 8) & 1 == 1).count();
    let descriptor = (1 + sub_header + bitmaps) * block + 24 * before;
    dump[descriptor..descriptor + 24].fill(0);
}

#[test]
fn a_lost_page_of_the_kernel_is_said_even_if_the_dump_says_that_it_is_complete() {
    let setup = setup(1);
    setup.succeeds(&["convert", "-d", "0", "-c", "zlib", "vmcore", "dump"]);
    setup.succeeds(&["pages", "--owners", "dump"]);
    let mut dump = fs::read(setup.path("dump")).unwrap();
    // Where the first task is.
    damage(&mut dump, 0x5000);
    fs::write(setup.path("damaged"), dump).unwrap();
    let ran = setup.run(&["pages", "--owners", "damaged"]);
    let said = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(ran.status.code(), Some(3), "{said}");
    assert!(said.contains("note: owners: a page that it needs could not be read"), "{said}");
    let is_damaged = "are damaged or missing, though it says that it is complete";
    assert!(said.contains(is_damaged), "{said}");
    let ran = setup.run(&["pages", "diff", "dump", "damaged"]);
    assert_eq!(ran.status.code(), Some(3), "{}", String::from_utf8_lossy(&ran.stdout));
    // Other commands, of which `pages` without --owners does not need that page.
    for arguments in [&["triage"][..], &["triage", "--section", "memory"], &["triage", "--json"], &["pages"]]
    {
        let whole = setup.run(&[arguments, &["dump"]].concat());
        assert_eq!(whole.status.code(), Some(0), "{arguments:?}");
        assert!(!String::from_utf8_lossy(&whole.stdout).contains(is_damaged), "{arguments:?}");
        let ran = setup.run(&[arguments, &["damaged"]].concat());
        let said = String::from_utf8(ran.stdout).unwrap();
        let is_needed = arguments != ["pages"];
        assert_eq!(ran.status.code(), Some(if is_needed { 3 } else { 0 }), "{arguments:?}: {said}");
        assert_eq!(said.contains(is_damaged), is_needed, "{arguments:?}: {said}");
    }
    let said = setup.fails(&["pages", "--owners", "--interval", "1", "dump"], 2);
    assert!(said.contains("--interval needs --live"), "{said}");
}
