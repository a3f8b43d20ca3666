//! `capture --triage`: whatever happens to the report, the dump is the same.

#[path = "common/setup.rs"]
mod setup;

use std::fs;

use pagehaul_synth::{Era, Inside, Kind, Machine};
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

/// PFNs of free pages on per-CPU lists.
const ON_LISTS: [u64; 4] = [0x4802, 0x4800, 0x4801, 0x4900];

/// A machine whose free pages on per-CPU lists look like those of the kernel, between pages of the kernel.
fn with_lists(change: impl FnOnce(&mut Inside)) -> Setup {
    let mut machine = Machine::new(Era::V6_12);
    for pfn in 0x4800..0x4910 {
        machine.page(Kind::Kernel, pfn, 0);
    }
    let mut inside = Inside { clock: 60, free: 1 << 17, on_lists: ON_LISTS.to_vec(), ..Inside::default() };
    change(&mut inside);
    machine.inside(0x5000, &inside);
    Setup::new(&mut machine)
}

/// Pages that a capture with these options keeps, and what it says besides.
fn kept(setup: &Setup, options: &[&str]) -> (u64, serde_json::Value) {
    let said = setup.succeeds(&[&["capture", "--json", "--force"], options, &["vmcore", "dump"]].concat());
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    (report["pages_kept"].as_u64().unwrap(), report)
}

#[test]
fn free_pages_on_per_cpu_lists_are_excluded_on_request() {
    let setup = with_lists(|_| {});
    let (plain, report) = kept(&setup, &["-d", "16"]);
    assert!(report.get("per_cpu_free").is_none(), "{report}");
    for format in ["kdump", "flattened"] {
        let (fewer, report) = kept(&setup, &["-d", "16", "--exclude-per-cpu-lists", "--format", format]);
        assert_eq!((plain - fewer, &report["per_cpu_free"]), (4, &4.into()), "{format}: {report}");
        for pfn in ON_LISTS {
            let address = format!("{:#x}", pfn << 12);
            assert!(!setup.run(&["read", "--phys", &address, "--len", "8", "dump"]).status.success());
        }
        let neighbour = format!("{:#x}", 0x4803_u64 << 12);
        setup.succeeds(&["read", "--phys", &neighbour, "--len", "8", "dump"]);
    }
    let said = setup.fails(&["capture", "-d", "15", "--exclude-per-cpu-lists", "vmcore", "other"], 2);
    assert!(said.contains("needs a dump level that excludes free pages"), "{said}");
}

#[test]
fn lists_that_contradict_themselves_keep_their_pages() {
    // A page on the list twice, and one outside of the zone.
    for pages in [vec![0x4800, 0x4801, 0x4800], vec![0x4800, 0x6100]] {
        let setup = with_lists(|inside| inside.on_lists = pages);
        let (plain, _) = kept(&setup, &["-d", "16"]);
        let (same, report) = kept(&setup, &["-d", "16", "--exclude-per-cpu-lists"]);
        assert_eq!((plain, &report["per_cpu_free"]), (same, &0.into()), "{report}");
        assert!(
            report["warnings"][0].as_str().unwrap().starts_with("per-CPU lists of CPU 0, node 0 DMA32: ")
        );
    }
}
