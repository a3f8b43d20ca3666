//! docs/schema.md describes what a balance is as JSON.

use std::path::Path;

use pagehaul_owners::RowKind;

/// The first column of the rows of a table, below its header.
fn first_column<'a>(text: &'a str, header: &str) -> Vec<&'a str> {
    let (_, table) = text.split_once(header).unwrap_or_else(|| panic!("no table {header}"));
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('|').nth(1)).map(str::trim).collect()
}

#[test]
fn each_kind_of_row_is_described_once() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema.md");
    let text = std::fs::read_to_string(path).unwrap();
    let kinds = RowKind::ALL.map(|kind| serde_json::to_value(kind).unwrap());
    let mut kinds: Vec<String> = kinds.iter().map(|kind| format!("`{}`", kind.as_str().unwrap())).collect();
    let mut described = first_column(&text, "| `kind` | pages |");
    kinds.sort();
    described.sort_unstable();
    assert_eq!(described, kinds);
    for line in text.lines().filter(|line| kinds.iter().any(|kind| line.starts_with(&format!("| {kind} |"))))
    {
        assert!(line.split('|').nth(2).is_some_and(|what| what.trim().len() > 10), "{line}");
    }
}
