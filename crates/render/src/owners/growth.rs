//! What grew between two moments.

use std::fmt::Write as _;

use pagehaul_machine::{PageCount, PageSize};
use pagehaul_owners::{Growth, OwnerGrowth};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count};

use super::{FEW, printable};

/// Memory cgroups that are printed.
const MAX_CGROUPS: usize = 10;
/// An owner that is not among the largest, or what may be in memory whose struct pages cannot be read.
const NOT_KNOWN: &str = "?";

/// Formats what grew from `before` to `after`.
pub fn growth(growth: &Growth, [before, after]: [&str; 2]) -> String {
    let mut out = format!(
        "Memory from {} to {}\n",
        pagehaul_present::printable(before),
        pagehaul_present::printable(after)
    );
    let size = |pages: PageCount| bytes(pages.bytes(growth.page_size));
    let known = |pages: Option<PageCount>| pages.map_or_else(|| NOT_KNOWN.to_owned(), size);
    // Writing to a string cannot fail.
    if let Some(managed) = growth.managed {
        let [before, after] = managed.map(|pages| pages.map_or_else(|| "not known".to_owned(), size));
        let _ = writeln!(out, "managed: {before}, then {after}");
    }
    let mut table = Table::new(["owner", "before", "after", "change"]);
    for row in &growth.rows {
        let change = change([row.before, row.after], row.growth(), growth.page_size);
        table.row([row.kind.name().to_owned(), known(row.before), known(row.after), change]);
        owners(&row.owners, FEW, "  ", growth.page_size, &mut table);
    }
    let _ = match growth.rows.is_empty() {
        true => writeln!(out, "\nno row changed"),
        false => write!(out, "\n{table}"),
    };
    if !growth.cgroups.is_empty() {
        let mut table = Table::new(["memory cgroup", "before", "after", "change"]);
        owners(&growth.cgroups, MAX_CGROUPS, "", growth.page_size, &mut table);
        let _ = write!(out, "\n{table}");
    }
    let [old, new] = &growth.missing;
    for (name, missing) in [(before, old), (after, new)] {
        for why in missing {
            let line = format!("note: {name}: {why}");
            let _ = writeln!(out, "{}", pagehaul_present::printable(&line));
        }
    }
    out
}

/// Adds the first `most` owners to a table.
fn owners(owners: &[OwnerGrowth], most: usize, indent: &str, page_size: PageSize, table: &mut Table) {
    let size = |pages: Option<PageCount>| {
        pages.map_or_else(|| NOT_KNOWN.to_owned(), |pages| bytes(pages.bytes(page_size)))
    };
    for owner in owners.iter().take(most) {
        table.row([
            format!("{indent}{}", printable(&owner.name)),
            size(owner.before),
            size(owner.after),
            change([owner.before, owner.after], owner.growth(), page_size),
        ]);
    }
    let rest = owners.len().saturating_sub(most);
    if rest > 0 {
        let name = format!("{indent}{} smaller changes", count(rest as u64));
        table.row([name, String::new(), String::new(), String::new()]);
    }
}

/// By how much something grew.
fn change(moments: [Option<PageCount>; 2], growth: i128, page_size: PageSize) -> String {
    let change = signed(growth, page_size);
    if moments.iter().all(Option::is_some) { change } else { format!("{change} at most") }
}

/// Pages with a sign, as bytes.
fn signed(pages: i128, page_size: PageSize) -> String {
    let sign = if pages < 0 { '-' } else { '+' };
    let pages = PageCount::new(u64::try_from(pages.unsigned_abs()).unwrap_or(u64::MAX));
    format!("{sign}{}", bytes(pages.bytes(page_size)))
}
