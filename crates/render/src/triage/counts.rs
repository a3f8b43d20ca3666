//! Counts of tasks.

use pagehaul_inspect::Counts;
use pagehaul_present::Table;
use pagehaul_present::number::count;

use super::lines::{Lines as _, known, more, whys};

/// Rows of each table.
const MOST: usize = 30;

pub(super) fn counts(found: &Counts, out: &mut String) {
    let processes = match found.tasks {
        0 => String::new(),
        _ => format!(" in {} processes", count(found.processes as u64)),
    };
    put!(out, "\nTasks counted: {}{processes}", known(found.tasks, &found.broken));
    if found.tasks > 0 {
        let mut names = Table::new(["name", "tasks", "processes", "by state"]).left([0, 3]);
        names.rows(found.by_name.iter().take(MOST).map(|name| {
            let states = name.states.iter().map(|(state, tasks)| format!("{state} {}", count(*tasks as u64)));
            [
                name.name.clone(),
                count(name.tasks as u64),
                count(name.processes as u64),
                states.collect::<Vec<_>>().join(", "),
            ]
        }));
        out.put_table(&names);
        more(found.by_name.len(), MOST, "names", out);
        put!(out, "");
        let mut parents = Table::new(["parent", "children", "most of them"]).left([0, 2]);
        parents.rows(found.by_parent.iter().take(MOST).map(|parent| {
            [
                parent.parent.clone(),
                count(parent.children as u64),
                format!("{} ({})", parent.name, count(parent.named as u64)),
            ]
        }));
        out.put_table(&parents);
        more(found.by_parent.len(), MOST, "parents", out);
    }
    whys(&found.broken, out);
}
