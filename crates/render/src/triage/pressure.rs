//! Pressure.

use pagehaul_inspect::Pressures;
use pagehaul_present::Table;
use pagehaul_present::number::count;
use pagehaul_present::time::seconds;

use super::lines::{Lines as _, whys};

pub(super) fn pressure(found: &Pressures, out: &mut String) {
    match (found.all.is_empty(), found.measured, found.broken.is_empty()) {
        (true, false, true) => put!(out, "\nPressure: the kernel does not measure it (CONFIG_PSI, psi=1)"),
        (true, ..) => put!(out, "\nPressure: not known"),
        _ => put!(out, "\nPressure: time in which tasks waited"),
    }
    let mut table = Table::new(["resource", "tasks", "10 s", "60 s", "300 s", "since boot"]).left([0, 1]);
    table.rows(found.all.iter().map(|of| {
        let [ten, sixty, most] = of.percent.map(|percent| format!("{percent:.2} %"));
        [of.resource.clone(), of.kind.clone(), ten, sixty, most, seconds(of.total)]
    }));
    if !found.all.is_empty() {
        out.put_table(&table);
        let tasks: Vec<String> =
            found.tasks.iter().map(|(name, tasks)| format!("{name} {}", count(*tasks))).collect();
        put!(out, "  tasks now: {}", tasks.join(", "));
    }
    whys(&found.broken, out);
}
