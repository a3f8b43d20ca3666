use std::collections::BTreeSet;
use std::fmt::Write;

use pagehaul_census::Census;
use pagehaul_present::Table;
use pagehaul_present::number::count;

use super::tables;

/// Formats a census as text.
pub fn text(census: &Census) -> String {
    let mut out = format!("{}\n", tables::classes(census, &census.classes));
    if !census.zones.is_empty() {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", zones(census));
    }
    let _ = write!(out, "{}", tables::orders(census));
    for warning in &census.warnings {
        let _ = writeln!(out, "note: {warning}");
    }
    out
}

/// Pages by node and zone, a column for each class.
fn zones(census: &Census) -> Table {
    let names: BTreeSet<&str> = census.zones.iter().flat_map(|zone| zone.classes.keys().copied()).collect();
    let used: Vec<&str> = census.class_names.iter().copied().filter(|name| names.contains(name)).collect();
    let mut table = Table::new(["node", "zone", "size"].iter().chain(&used).copied()).left([0, 1]);
    for zone in &census.zones {
        let head = [zone.node.to_string(), zone.zone.to_owned(), tables::size(census, zone.pages())];
        let pages = |class: &&str| zone.classes.get(class).map_or(String::new(), |pages| count(*pages));
        table.row(head.into_iter().chain(used.iter().map(pages)));
    }
    table
}
