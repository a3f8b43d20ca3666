//! What grew between two moments.

use std::fmt::Write as _;

use pagehaul_machine::{PageCount, PageSize};
use pagehaul_owners::{Growth, OwnerGrowth, RowKind};
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
    let counted = Numbers { page_size: growth.page_size, lost: growth.lost };
    let exact = Numbers { page_size: growth.page_size, lost: [PageCount::ZERO; 2] };
    // Writing to a string cannot fail.
    if let Some(managed) = growth.managed {
        let [before, after] = managed.map(|pages| pages.map_or_else(|| "not known".to_owned(), size));
        let _ = writeln!(out, "managed: {before}, then {after}");
    }
    let mut table = Table::new(["owner", "before", "after", "change"]);
    for row in &growth.rows {
        // What is lost is known.
        let numbers = if row.kind == RowKind::Undecided { exact } else { counted };
        table.row(numbers.row(row.kind.name().to_owned(), [row.before, row.after], row.growth()));
        owners(&row.owners, FEW, "  ", numbers, &mut table);
    }
    let _ = match growth.rows.is_empty() {
        true => writeln!(out, "\nno row changed"),
        false => write!(out, "\n{table}"),
    };
    if !growth.cgroups.is_empty() {
        let mut table = Table::new(["memory cgroup", "before", "after", "change"]);
        // Of the kernel's own counters.
        owners(&growth.cgroups, MAX_CGROUPS, "", exact, &mut table);
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

/// How numbers of two moments are printed.
#[derive(Clone, Copy)]
struct Numbers {
    page_size: PageSize,
    /// Pages of each that may be anyone's.
    lost: [PageCount; 2],
}

impl Numbers {
    /// The cells of a row.
    fn row(self, name: String, moments: [Option<PageCount>; 2], growth: i128) -> [String; 4] {
        let [before, after] = [0, 1].map(|at| self.size(moments[at], self.lost[at]));
        [name, before, after, self.change(moments, growth)]
    }

    fn size(self, pages: Option<PageCount>, lost: PageCount) -> String {
        let Some(pages) = pages else { return NOT_KNOWN.to_owned() };
        let size = bytes(pages.bytes(self.page_size));
        if lost == PageCount::ZERO { size } else { format!("≥ {size}") }
    }

    /// By how much something grew. Each moment may have its lost pages in addition.
    fn change(self, moments: [Option<PageCount>; 2], growth: i128) -> String {
        let signed = |pages| signed(pages, self.page_size);
        let [least, most] =
            [growth - i128::from(self.lost[0].get()), growth + i128::from(self.lost[1].get())];
        match (moments, least == most) {
            ([Some(_), Some(_)], true) => signed(growth),
            (_, true) => format!("{} at most", signed(growth)),
            // Grown or shrunk.
            (_, false) if least < 0 && most > 0 => NOT_KNOWN.to_owned(),
            (_, false) => format!("{} to {}", signed(least), signed(most)),
        }
    }
}

/// Adds the first `most` owners to a table.
fn owners(owners: &[OwnerGrowth], most: usize, indent: &str, numbers: Numbers, table: &mut Table) {
    for owner in owners.iter().take(most) {
        let name = format!("{indent}{}", printable(&owner.name));
        table.row(numbers.row(name, [owner.before, owner.after], owner.growth()));
    }
    let rest = owners.len().saturating_sub(most);
    if rest > 0 {
        let name = format!("{indent}{} smaller changes", count(rest as u64));
        table.row([name, String::new(), String::new(), String::new()]);
    }
}

/// Pages with a sign, as bytes.
fn signed(pages: i128, page_size: PageSize) -> String {
    let sign = if pages < 0 { '-' } else { '+' };
    let pages = PageCount::new(u64::try_from(pages.unsigned_abs()).unwrap_or(u64::MAX));
    format!("{sign}{}", bytes(pages.bytes(page_size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_among_lost_pages_is_a_range() {
        let pages = PageCount::new;
        let row = |before: u64, after: u64, lost: [u64; 2]| {
            let numbers = Numbers { page_size: PageSize::KIB_4, lost: lost.map(pages) };
            let [_, cells @ ..] = numbers.row(
                String::new(),
                [Some(pages(before)), Some(pages(after))],
                i128::from(after) - i128::from(before),
            );
            cells.join(" ")
        };
        assert_eq!(row(256, 512, [0, 0]), "1.0 MiB 2.0 MiB +1.0 MiB");
        assert_eq!(row(512, 256, [0, 256]), "2.0 MiB ≥ 1.0 MiB -1.0 MiB to +0 B");
        assert_eq!(row(512, 256, [0, 257]), "2.0 MiB ≥ 1.0 MiB ?");
        assert_eq!(row(256, 1024, [256, 0]), "≥ 1.0 MiB 4.0 MiB +2.0 MiB to +3.0 MiB");
        assert_eq!(row(256, 256, [1, 1]), "≥ 1.0 MiB ≥ 1.0 MiB ?");
    }
}
