//! Tables of `pagehaul-fleet`, and the files that a team writes for its reports.

use std::fs;
use std::path::{Path, PathBuf};

use pagehaul_fleet::{Key, Table, Values, fuzzing};

/// Files of an input. An input is pieces: the number of a file, two bytes of length, its bytes. Numbers with [`AS_TEXT`] are those of
/// tables, whose values the bytes are as text.
pub const FILES: [&str; 10] = [
    "tables/dumps/v=1/month=2026-11/a.parquet",
    "tables/dumps/v=1/month=2026-11/many-b.parquet",
    "tables/page_classes/v=1/month=2026-11/a.parquet",
    "tables/memory_state/v=1/month=2026-11/a.parquet",
    "tables/tasks/v=1/month=2026-11/a.parquet",
    "tables/manifest/v=1/a.parquet",
    "bugs.toml",
    "hours.csv",
    "hosts.csv",
    "facts.json",
];

/// Bit of the number of a file: a table of these values, lines of words, and not the bytes of a Parquet file.
pub const AS_TEXT: u8 = 0x80;

/// Runs the target.
pub fn run(data: &[u8]) {
    let memory = Some(Path::new("/dev/shm")).filter(|directory| directory.is_dir());
    let directory = tempfile::tempdir_in(memory.unwrap_or(&std::env::temp_dir())).expect("a directory");
    let mut rest = data;
    let mut facts: Option<PathBuf> = None;
    while let [number, low, high, after @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (bytes, after) = after.split_at(length);
        let name = FILES[usize::from(number & !AS_TEXT) % FILES.len()];
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a directory above")).expect("room for it");
        let table = name.strip_prefix("tables/").and_then(|rest| rest.split('/').next());
        match table.filter(|_| number & AS_TEXT != 0) {
            Some(table) => fs::write(&path, parquet(table, bytes)).expect("room for it"),
            None => fs::write(&path, bytes).expect("room for it"),
        }
        facts = facts.or_else(|| (name == "facts.json").then_some(path));
        rest = after;
    }
    if let Some(path) = facts {
        fuzzing::facts(&path);
    }
    fuzzing::commands(directory.path());
}

/// Makes a table: a line for each row, in which words follow the columns. `-` is null. The first is the key of the rows that follow.
pub fn parquet(table: &str, text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let cell =
        |row: &Vec<&str>, at: usize| row.get(at).copied().filter(|word| *word != "-").map(str::to_owned);
    let words = |at: usize| Values::text(rows.iter().map(|row| cell(row, at)));
    let number = |row: &Vec<&str>, at: usize| cell(row, at)?.parse::<i64>().ok();
    let numbers = |at: usize| Values::long(rows.iter().map(|row| number(row, at)));
    let lists = |at: usize| {
        let list = |row| cell(row, at).map(|list| list.split('<').map(str::to_owned).collect());
        Values::texts(rows.iter().map(|row| list(row).unwrap_or_default()))
    };
    let times = |at: usize| Values::Time(rows.iter().map(|row| number(row, at)).collect());
    let flags =
        |at: usize| Values::Bool(rows.iter().map(|row| number(row, at).map(|number| number != 0)).collect());
    let (name, columns) = match table {
        "dumps" => (
            "dumps",
            vec![
                ("sig", words(1)),
                ("sig_coarse", words(2)),
                ("frames", lists(3)),
                ("title", words(4)),
                ("kind", words(5)),
                ("release", words(6)),
                ("host", words(7)),
                ("crash_time", times(8)),
                ("log_whole", flags(9)),
                ("complete", flags(10)),
                ("level", numbers(11)),
            ],
        ),
        "page_classes" => ("page_classes", vec![("class", words(1)), ("pages", numbers(2))]),
        "memory_state" => (
            "memory_state",
            vec![("node", numbers(1)), ("zone", words(2)), ("item", words(3)), ("value", numbers(4))],
        ),
        "tasks" => ("tasks", vec![("state", words(1))]),
        _ => (
            "manifest",
            vec![("crash_id", words(1)), ("path", words(2)), ("rows", numbers(3)), ("host", words(4))],
        ),
    };
    let key = |column| Key { column, id: String::new(), schema_version: 1, extractor: String::new() };
    let column = if name == "manifest" { "dump_id" } else { "crash_id" };
    let mut made = Table::new(name, &key(column), columns);
    // Each row has the key that it says.
    if let Some((_, keys)) = made.columns.first_mut() {
        *keys = words(0);
    }
    let mut bytes = Vec::new();
    made.write(&mut bytes).expect("memory takes it");
    bytes
}
