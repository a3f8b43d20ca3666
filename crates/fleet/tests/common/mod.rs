//! The program, and synthetic machines that died.
#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pagehaul_synth::{Era, Inside, Machine, Message, Task};
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Runs pagehaul-fleet in a directory.
pub fn fleet(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagehaul-fleet"))
        .args(arguments)
        .current_dir(directory)
        .env("NO_PROXY", "127.0.0.1")
        .output()
        .unwrap()
}

/// Runs pagehaul-fleet, and returns its standard output.
#[track_caller]
pub fn succeeds(directory: &Path, arguments: &[&str]) -> String {
    let output = fleet(directory, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A machine with tasks, a log and everything that triage reads.
pub fn machine(era: Era, comm: &str, lines: &[&'static str]) -> Machine {
    let stack = vec!["__schedule", "schedule", "io_schedule"];
    let task = |pid, comm: &str, state| Task {
        pid,
        comm: comm.into(),
        state,
        ran: 1,
        stack: stack.clone(),
        pages: Some(100),
    };
    let message = |(at, text): (usize, &&'static str)| Message {
        nanoseconds: (at as u64 + 1) * 1_000_000,
        level: 1,
        caller: 7,
        text,
    };
    let messages: Vec<Message> = lines.iter().enumerate().map(message).collect();
    let mut machine = Machine::new(era);
    machine.inside(
        0x4000,
        &Inside {
            tasks: vec![task(1, "init", 1), task(20, comm, 2), task(21, "writer", 2)],
            clock: 60,
            free: 100_000,
            counters: [10_000, 20_000, 3_000, 800],
            caches: vec![("dentry", 400, 8_400)],
            areas: vec![("vmalloc", 65_536)],
            backlog: 12,
            modules: vec![("ext4", 1 << 20)],
            ..Inside::default()
        },
    );
    machine.log(0x6000, &messages);
    machine
}

/// The lines of an oops.
pub const OOPS: [&str; 4] = [
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "CPU: 0 PID: 20 Comm: billing Not tainted 6.12.0",
    "RIP: 0010:demo_fill+0x5/0x40 [demo]",
    "Kernel panic - not syncing: Fatal exception",
];

/// All files below a directory.
pub fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.display().to_string(), fs::read(path).unwrap());
        }
    }
    found
}

/// The rows of all Parquet files of a table as text, sorted.
pub fn rows(tables: &Path, table: &str) -> Vec<String> {
    let paths = files(&tables.join(table)).into_keys();
    let mut rows: Vec<String> = paths
        .flat_map(|path| {
            let file = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
            file.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect::<Vec<_>>()
        })
        .collect();
    rows.sort_unstable();
    rows
}

/// Facts of a crash as `capture --facts` writes them: `number` makes its ID.
pub fn facts(number: u32, release: &str, host: &str, time: u64, function: &str) -> String {
    let sig = function.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let kind = if function == "sysrq_handle_crash" { "requested" } else { "bug" };
    serde_json::json!({
        "schema_version": 1, "extractor": "a test", "crash_id": format!("{number:032x}"), "id_weak": false, "crash_time": time,
        "arch": "x86_64", "cpus": 2, "memory_bytes": 0, "host": host, "release": release, "missing": [], "log": [],
        "crash": {
            "kind": kind, "version": 1, "sig_version": 1, "sig": format!("{sig:016x}"), "sig_fine": "0", "corrupted": false,
            "frames": [function], "title": format!("{kind} in {function}"), "uptime_ns": 1,
        },
    })
    .to_string()
}
