//! What grew between two moments.

use std::fmt::Write as _;

use pagehaul_machine::{PageCount, PageSize};
use pagehaul_owners::{Growth, OwnerGrowth};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count};

use super::{FEW, printable};

/// Memory cgroups that are printed.
const MAX_CGROUPS: usize = 10;
/// An owner that is not among the largest, or what a damaged moment does not tell.
const NOT_KNOWN: &str = "?";

/// Formats what grew from `before` to `after`.
pub fn growth(growth: &Growth, [before, after]: [&str; 2]) -> String {
    let mut out = format!(
        "Memory from {} to {}\n",
        pagehaul_present::printable(before),
        pagehaul_present::printable(after)
    );
    let size = |pages: PageCount| bytes(pages.bytes(growth.page_size));
    let numbers = Numbers { page_size: growth.page_size, damaged: growth.damaged };
    // Writing to a string cannot fail.
    if let Some(managed) = growth.managed {
        let [before, after] = managed.map(|pages| pages.map_or_else(|| "not known".to_owned(), size));
        let _ = writeln!(out, "managed: {before}, then {after}");
    }
    let mut table = Table::new(["owner", "before", "after", "change"]);
    for row in &growth.rows {
        let moments = [row.before, row.after];
        table.row(numbers.row(row.kind.name().to_owned(), moments, row.at_least, row.growth()));
        owners(&row.owners, FEW, "  ", numbers, &mut table);
    }
    let _ = match (growth.rows.is_empty(), growth.damaged) {
        (true, [false, false]) => writeln!(out, "\nno row changed"),
        (true, _) => writeln!(out, "\nno row is known to have changed"),
        (false, _) => write!(out, "\n{table}"),
    };
    if !growth.cgroups.is_empty() {
        let mut table = Table::new(["memory cgroup", "before", "after", "change"]);
        owners(&growth.cgroups, MAX_CGROUPS, "", numbers, &mut table);
        let _ = write!(out, "\n{table}");
    }
    let [old, new] = &growth.missing;
    for (name, damaged) in [before, after].into_iter().zip(growth.damaged) {
        if damaged {
            let line = format!(
                "note: {name} is damaged: rows can have more than ≥ says, and some are not known (?)"
            );
            let _ = writeln!(out, "{}", pagehaul_present::printable(&line));
        }
    }
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
    /// Moments in which what is not known is lost, and not small.
    damaged: [bool; 2],
}

impl Numbers {
    /// The cells of a row.
    fn row(
        self,
        name: String,
        moments: [Option<PageCount>; 2],
        at_least: [bool; 2],
        growth: i128,
    ) -> [String; 4] {
        let [before, after] = [0, 1].map(|at| self.size(moments[at], at_least[at]));
        [name, before, after, self.change(moments, at_least, growth)]
    }

    fn size(self, pages: Option<PageCount>, at_least: bool) -> String {
        let Some(pages) = pages else { return NOT_KNOWN.to_owned() };
        let size = bytes(pages.bytes(self.page_size));
        if at_least { format!("≥ {size}") } else { size }
    }

    /// By how much something grew.
    fn change(self, moments: [Option<PageCount>; 2], at_least: [bool; 2], growth: i128) -> String {
        let change = signed(growth, self.page_size);
        let is_lost = |at: usize| moments[at].is_none() && self.damaged[at];
        if is_lost(0) || is_lost(1) {
            return NOT_KNOWN.to_owned();
        }
        match (moments, at_least) {
            ([Some(_), Some(_)], [false, false]) => change,
            ([Some(_), Some(_)], [false, true]) => format!("≥ {change}"),
            ([Some(_), Some(_)], [true, false]) => format!("≤ {change}"),
            // An owner that was left out has fewer than those that were kept.
            (_, [false, false]) => format!("{change} at most"),
            _ => NOT_KNOWN.to_owned(),
        }
    }
}

/// Adds the first `most` owners to a table.
fn owners(owners: &[OwnerGrowth], most: usize, indent: &str, numbers: Numbers, table: &mut Table) {
    for owner in owners.iter().take(most) {
        let name = format!("{indent}{}", printable(&owner.name));
        table.row(numbers.row(name, [owner.before, owner.after], owner.at_least, owner.growth()));
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
    fn what_a_damaged_moment_tells_is_a_bound() {
        let cells = |moments: [Option<u64>; 2], at_least: [bool; 2], damaged: [bool; 2]| {
            let numbers = Numbers { page_size: PageSize::KIB_4, damaged };
            let [before, after] = moments.map(|pages| i128::from(pages.unwrap_or(0)));
            let moments = moments.map(|pages| pages.map(PageCount::new));
            let [_, cells @ ..] = numbers.row(String::new(), moments, at_least, after - before);
            cells.join(" ")
        };
        let (whole, old, new) = ([false, false], [true, false], [false, true]);
        assert_eq!(cells([Some(256), Some(512)], whole, whole), "1.0 MiB 2.0 MiB +1.0 MiB");
        assert_eq!(cells([Some(512), Some(256)], new, new), "2.0 MiB ≥ 1.0 MiB ≥ -1.0 MiB");
        assert_eq!(cells([Some(256), Some(1024)], old, old), "≥ 1.0 MiB 4.0 MiB ≤ +3.0 MiB");
        assert_eq!(cells([Some(256), Some(512)], [true; 2], [true; 2]), "≥ 1.0 MiB ≥ 2.0 MiB ?");
        // The row of what is lost.
        assert_eq!(cells([Some(0), Some(256)], whole, new), "0 B 1.0 MiB +1.0 MiB");
        assert_eq!(cells([Some(256), None], whole, new), "1.0 MiB ? ?");
        assert_eq!(cells([None, Some(256)], whole, old), "? 1.0 MiB ?");
        // Left out.
        assert_eq!(cells([None, Some(256)], whole, whole), "? 1.0 MiB +1.0 MiB at most");
        assert_eq!(cells([None, Some(256)], new, new), "? ≥ 1.0 MiB ?");
    }
}
