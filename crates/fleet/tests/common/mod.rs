//! The program, and synthetic machines that died.
#![allow(dead_code)] // each test file uses its own part

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use pagehaul_synth::{Era, Inside, Machine, Message, Task};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

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

/// The value of a column of one row. `Null` is for one whose type counts.
#[derive(Debug, Clone, Copy)]
pub enum Cell {
    Text(&'static str),
    Int(i32),
    Long(i64),
    NullInt,
    NullLong,
    NullText,
    NullFlag,
}

/// A column: its name, its declaration with `NAME` in the place of it, and its value.
pub type Column = (&'static str, &'static str, Cell);

pub const TEXT: &str = "OPTIONAL BYTE_ARRAY NAME (UTF8);";
pub const LONG: &str = "OPTIONAL INT64 NAME;";
pub const INT: &str = "OPTIONAL INT32 NAME;";

/// A row of `dumps`, with the columns that all versions have.
pub fn dumps_row() -> Vec<Column> {
    let frames = "OPTIONAL group NAME (LIST) { REPEATED group list { OPTIONAL BYTE_ARRAY element (UTF8); } }";
    vec![
        ("crash_id", TEXT, Cell::Text("ffffffffffffffffffffffffffffffff")),
        ("sig", TEXT, Cell::Text("0123456789abcdef")),
        ("title", TEXT, Cell::NullText),
        ("kind", TEXT, Cell::NullText),
        ("release", TEXT, Cell::NullText),
        ("host", TEXT, Cell::NullText),
        ("format", TEXT, Cell::NullText),
        ("frames", frames, Cell::NullText),
        ("crash_time", "OPTIONAL INT64 NAME (TIMESTAMP(MICROS,true));", Cell::Long(1_793_491_200_000_000)),
        ("level", INT, Cell::NullInt),
        ("size_bytes", LONG, Cell::Long(1)),
        ("complete", "OPTIONAL BOOLEAN NAME;", Cell::NullFlag),
    ]
}

/// Writes a table of one row, as another program may.
pub fn write_row(path: &Path, columns: &[Column]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let fields: String = columns.iter().map(|(name, field, _)| field.replace("NAME", name)).collect();
    let schema = Arc::new(parse_message_type(&format!("message t {{ {fields} }}")).unwrap());
    let properties = Arc::new(WriterProperties::builder().build());
    let mut file = SerializedFileWriter::new(fs::File::create(path).unwrap(), schema, properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    for (name, _, cell) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        let repeated: Option<&[i16]> = (*name == "frames").then_some(&[0]);
        match *cell {
            Cell::Text(text) => {
                column.typed::<ByteArrayType>().write_batch(&[ByteArray::from(text)], Some(&[1]), repeated)
            }
            Cell::Int(number) => column.typed::<Int32Type>().write_batch(&[number], Some(&[1]), None),
            Cell::Long(number) => column.typed::<Int64Type>().write_batch(&[number], Some(&[1]), None),
            Cell::NullInt => column.typed::<Int32Type>().write_batch(&[], Some(&[0]), None),
            Cell::NullLong => column.typed::<Int64Type>().write_batch(&[], Some(&[0]), None),
            Cell::NullText => column.typed::<ByteArrayType>().write_batch(&[], Some(&[0]), repeated),
            Cell::NullFlag => column.typed::<BoolType>().write_batch(&[], Some(&[0]), None),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
}
