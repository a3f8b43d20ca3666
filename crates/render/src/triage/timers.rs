//! Timers.

use pagehaul_inspect::Timers;
use pagehaul_present::Table;
use pagehaul_present::time::seconds;

use super::lines::{Lines as _, known, whys};

pub(super) fn timers(timers: &Timers, out: &mut String) {
    put!(out, "\nPending timers: {}", known(timers.all.len(), &timers.broken));
    let mut table = Table::new(["CPU", "expires in", "kind", "function", "for", "address"]).left([2, 3, 4]);
    for timer in &timers.all {
        let sign = if timer.seconds < 0.0 { "-" } else { "" };
        table.row([
            timer.cpu.to_string(),
            format!("{sign}{}", seconds(timer.seconds.abs())),
            timer.kind.to_owned(),
            timer.function.clone(),
            timer.of.clone().unwrap_or_default(),
            timer.address.to_string(),
        ]);
    }
    if !timers.all.is_empty() {
        out.put_table(&table);
    }
    whys(&timers.broken, out);
}
