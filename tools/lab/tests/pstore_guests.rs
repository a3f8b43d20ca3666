//! Crashes guests whose kernels keep the end of their log in pstore, and compares it with the vmcore of the same crash.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::workload::Step;
use lab::{Config, Crash, Pstore};
use serde_json::Value;

const SCRIPT: &str = include_str!("../scenarios/pstore.sh");

fn crash(kernel: &str, pstore: Pstore, scenario: Option<&str>) -> Option<Crash> {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return None;
    }
    let config = Config {
        kernel: kernel.into(),
        cpus: 1,
        fill: 20,
        scenario: scenario.map(str::to_owned),
        pstore: Some(pstore),
        after: vec![Step { name: "pstore".into(), script: SCRIPT.into(), time_limit: 60 }],
        packages: vec!["systemd".into()],
        ..Config::default()
    };
    Some(lab::crash(&config).unwrap())
}

fn pagehaul(command: &str, files: &[PathBuf]) -> String {
    let mut pagehaul = Command::new(lab::build::pagehaul_of_tests().unwrap());
    let output = pagehaul.arg(command).args(files).output().unwrap();
    assert!(output.status.success(), "{files:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn facts(files: &[PathBuf]) -> Value {
    serde_json::from_str(&pagehaul("facts", files)).unwrap()
}

/// Files whose names begin with `dmesg`, in a directory and those below it.
fn records(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(records(&path));
        } else if path.file_name().unwrap().to_str().unwrap().starts_with("dmesg") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Compares the records of a crash, wherever they were found, with its vmcore. Returns those that the kernel shows.
fn compare(crash: &Crash, what: &str) -> Vec<PathBuf> {
    let out = crash.directory().join("out");
    let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
    let vmcore = facts(&[crash.vmcore()]);
    let shown = records(&out.join("shown"));
    assert!(!shown.is_empty(), "{what}: pstore has no record: {}", text("pstore.stderr"));
    let of_records = facts(&shown);
    let mut expected = vmcore["crash"].clone();
    let mut found = of_records["crash"].clone();
    // A line of the records has microseconds.
    for of in [&mut expected, &mut found] {
        let uptime = of["uptime_ns"].as_u64().unwrap();
        of["uptime_ns"] = (uptime / 1000).into();
    }
    // The records end when they were written: what the kernel logged later is in the dump only.
    let (whole, part) = (expected["text"].take(), found["text"].take());
    let (whole, part) = (whole.as_str().unwrap(), part.as_str().unwrap());
    assert!(whole.starts_with(part) && part.lines().count() > 20, "{what}: {part}\n---\n{whole}");
    assert_eq!(found, expected, "{what}");
    assert_eq!(of_records["release"], vmcore["release"], "{what}");
    // Neither VMCOREINFO nor registers are in a log.
    assert_ne!(of_records["crash_id"], vmcore["crash_id"], "{what}");
    assert_eq!((&of_records["id_weak"], &vmcore["id_weak"]), (&true.into(), &false.into()), "{what}");

    // The log of the records is a part of that of the dump, without a line of ramoops or systemd.
    let lines = |facts: &Value| -> Vec<(String, String, String)> {
        let records = facts["log"].as_array().unwrap().iter();
        let key = |record: &Value| {
            (record["time_ns"].to_string(), record["level"].to_string(), record["text"].to_string())
        };
        records.map(key).collect()
    };
    let (all, end) = (lines(&vmcore), lines(&of_records));
    assert!(end.len() > 30, "{what}: {} lines", end.len());
    let is_there = all.windows(end.len()).any(|part| part.iter().zip(&end).all(|(a, b)| same_line(a, b)));
    assert!(is_there, "{what}: the log of the records is not that of the dump:\n{end:#?}");

    // The capture kernel, which found the same records, did not decompress them.
    let compressed = records(&out.join("pstore"));
    assert!(compressed.iter().all(|path| path.to_str().unwrap().ends_with(".enc.z")), "{compressed:?}");
    assert_eq!(facts(&compressed), of_records, "{what}");
    // systemd-pstore moved them all.
    let kept = records(&out.join("kept"));
    let (joined, moved): (Vec<_>, Vec<_>) = kept.into_iter().partition(|path| path.ends_with("dmesg.txt"));
    assert_eq!((moved.len(), text("left").as_str()), (shown.len(), ""), "{what}: {moved:?}");
    assert_eq!(facts(&moved), of_records, "{what}");
    for joined in joined {
        assert_eq!(facts(&[joined])["crash"]["sig"], of_records["crash"]["sig"], "{what}");
    }

    let sig = vmcore["crash"]["sig"].as_str().unwrap();
    for files in [&shown, &moved] {
        assert!(pagehaul("triage", files).contains(sig), "{what}");
    }
    for (place, directory) in [("shown", "/sys/fs/pstore/dmesg-"), ("kept", "/var/lib/systemd/pstore/")] {
        let said = text(&format!("report.{place}"));
        assert_eq!(text(&format!("status.{place}")).trim(), "1", "{what}: {said}");
        assert!(said.contains(&format!("`pagehaul triage {directory}")), "{what}: {said}");
    }
    shown
}

/// Whether two lines are the same; pstore has microseconds.
fn same_line(one: &(String, String, String), other: &(String, String, String)) -> bool {
    let micros = |(time, ..): &(String, String, String)| time.parse::<u64>().unwrap() / 1000;
    micros(one) == micros(other) && (&one.1, &one.2) == (&other.1, &other.2)
}

#[test]
fn records_of_ramoops_tell_what_the_dump_tells() {
    for kernel in lab::few_or_all(&["6.12"], ["6.1", "6.12"]) {
        let Some(crash) = crash(kernel, Pstore::Ramoops, Some("null")) else { return };
        let shown = compare(&crash, &format!("ramoops, {kernel}"));
        // An oops, and the panic that follows it: one record each, which ECC ends.
        assert_eq!(shown.len(), 2, "{shown:?}");
        for path in shown {
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.ends_with("No errors detected\n"), "{text}");
        }
    }
}

#[test]
fn records_in_several_parts_are_joined() {
    let Some(crash) = crash("6.12", Pstore::Erst, None) else { return };
    let shown = compare(&crash, "ERST");
    assert!(shown.len() > 1, "{shown:?}");
}
