//! Timers.

use pagehaul_inspect::Timers;
use pagehaul_present::Table;
#[cfg(feature = "html")]
use pagehaul_present::number::count;
use pagehaul_present::time::seconds;

use super::lines::{Lines as _, known, whys};

pub(super) fn timers(timers: &Timers, out: &mut String) {
    put!(out, "\nPending timers: {}", known(timers.all.len(), &timers.broken));
    if !timers.all.is_empty() {
        out.put_table(&table(timers));
    }
    whys(&timers.broken, out);
}

pub(super) fn table(timers: &Timers) -> Table {
    let mut table = Table::new(["CPU", "expires in", "kind", "function", "for", "address"]).left([2, 3, 4]);
    for timer in &timers.all {
        table.row([
            timer.cpu.to_string(),
            signed(timer.seconds),
            timer.kind.to_owned(),
            timer.function.clone(),
            timer.of.clone().unwrap_or_default(),
            timer.address.to_string(),
        ]);
    }
    table
}

/// Timers of one kind and function as one row.
#[cfg(feature = "html")]
pub(super) fn groups(timers: &Timers) -> Table {
    let mut groups: std::collections::BTreeMap<(&str, &str), (u64, f64, f64)> =
        std::collections::BTreeMap::new();
    for timer in &timers.all {
        let group =
            groups.entry((timer.kind, &timer.function)).or_insert((0, f64::INFINITY, f64::NEG_INFINITY));
        *group = (group.0 + 1, group.1.min(timer.seconds), group.2.max(timer.seconds));
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, (number, ..))| std::cmp::Reverse(*number));
    let mut table = Table::new(["timers", "kind", "function", "first expires in", "last"]).left([1, 2]);
    table.rows(groups.into_iter().map(|((kind, function), (number, first, last))| {
        [count(number), kind.to_owned(), function.to_owned(), signed(first), signed(last)]
    }));
    table
}

fn signed(time: f64) -> String {
    format!("{}{}", if time < 0.0 { "-" } else { "" }, seconds(time.abs()))
}
