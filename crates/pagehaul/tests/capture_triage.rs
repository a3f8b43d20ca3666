//! `capture --triage`: whatever happens to the report, the dump is the same.

mod common {
    pub mod setup;
}

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use common::setup::Setup;
use pagehaul_synth::{Era, Inside, Kind, Machine};
use rustix::process::{Pid, Signal, kill_process};

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

/// Starts a capture, and stops the process that makes its facts. None if that process has ended before.
fn with_stopped_child(setup: &Setup) -> Option<(Child, Pid)> {
    let mut capture = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
    capture.args(["capture", "-q", "--force", "--facts=1h", "vmcore", "early"]).current_dir(setup.path("."));
    let mut capture = capture.stderr(Stdio::piped()).spawn().unwrap();
    let children = format!("/proc/{0}/task/{0}/children", capture.id());
    while capture.try_wait().unwrap().is_none() {
        let child = fs::read_to_string(&children).ok().and_then(|text| text.trim().parse().ok());
        let Some(child) = child.and_then(Pid::from_raw) else { continue };
        // Not before its exec, for which its parent waits.
        let line = fs::read(format!("/proc/{}/cmdline", child.as_raw_pid())).unwrap_or_default();
        if !String::from_utf8_lossy(&line).contains("--for-capture") {
            continue;
        }
        let _ = kill_process(child, Signal::STOP);
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.as_raw_pid())).unwrap_or_default();
        if stat.contains(") T ") {
            return Some((capture, child));
        }
    }
    None
}

#[test]
fn a_signal_before_the_dump_is_begun_is_one_sentence() {
    let setup = Setup::small();
    let (capture, child) =
        std::iter::repeat_with(|| with_stopped_child(&setup)).take(1000).flatten().next().unwrap();
    kill_process(Pid::from_child(&capture), Signal::TERM).unwrap();
    let output = capture.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped by a signal before the dump was begun"), "{said}");
    assert!(!PathBuf::from(format!("/proc/{}", child.as_raw_pid())).exists());
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
